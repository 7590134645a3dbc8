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

struct Known {
  Mutex guard;
  std::deque<KnownProgram> programs;  // by number
  std::uint64_t count = 0;            // those that were dropped included
};
Known& all() { return never_destroyed<Known>(); }

}  // namespace

void add_known_program(const std::string& name, const std::shared_ptr<const Program>& program) {
  KnownProgram known{.number = 0, .name = name, .program = program};
  any_equation(*program, [&](const Equation& e) {
    ++known.operations;
    if (const SiteSpec* const site = site_of(e); site && site->enters())
      known.sites.push_back({word_of(site->kind), site->name, site->place});
    return false;  // so that all are seen
  });
  std::scoped_lock lock(all().guard);
  known.number = ++all().count;
  all().programs.push_back(std::move(known));
  if (all().programs.size() > most_programs) all().programs.pop_front();
}

std::vector<KnownProgram> known_programs(std::uint64_t after) {
  std::scoped_lock lock(all().guard);
  const auto first = std::ranges::upper_bound(all().programs, after, {}, &KnownProgram::number);
  return {first, all().programs.end()};
}

std::vector<std::uint64_t> gone_programs() {
  std::vector<std::uint64_t> numbers;
  std::scoped_lock lock(all().guard);
  for (const KnownProgram& known : all().programs)
    if (known.program.expired()) numbers.push_back(known.number);
  return numbers;
}

}  // namespace postern::internal
