// The list of compiled programs.
#include "core/known_programs.h"

#include <algorithm>
#include <deque>

#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "core/primitive.h"
#include "core/site_spec.h"

namespace postern::internal {

namespace {

struct All {
  Mutex guard;
  std::deque<KnownProgram> programs;
  std::uint64_t count = 0;
};
All& all() { return never_destroyed<All>(); }

}  // namespace

void add_known_program(const std::string& name, const std::shared_ptr<const Program>& program) {
  KnownProgram known{0, name, program};
  any_equation(*program, [&](const Equation& e) {
    ++known.operations;
    if (const SiteSpec* const site = site_of(e); site && site->enters())
      known.sites.push_back({word_of(site->kind), site->name, site->place});
    return false;  // so that all are seen
  });
  All& a = all();
  std::scoped_lock lock(a.guard);
  known.number = ++a.count;
  a.programs.push_back(std::move(known));
  if (a.programs.size() > most_programs) a.programs.pop_front();
}

std::vector<KnownProgram> known_programs(std::uint64_t after) {
  std::scoped_lock lock(all().guard);
  const auto first = std::ranges::upper_bound(all().programs, after, {}, &KnownProgram::number);
  return {first, all().programs.end()};
}

std::vector<std::uint64_t> gone_programs() {
  std::vector<std::uint64_t> out;
  std::scoped_lock lock(all().guard);
  for (const KnownProgram& known : all().programs)
    if (known.program.expired()) out.push_back(known.number);
  return out;
}

}  // namespace postern::internal
