// The list of compiled programs.
#include "core/known_programs.h"

#include <deque>

#include "core/mutex.h"

namespace postern::internal {

namespace {

struct All {
  Mutex guard;
  std::deque<KnownProgram> programs;
  std::uint64_t count = 0;
};
All& all() {
  static All* const a = new All;  // programs may be compiled after main
  return *a;
}

}  // namespace

void add_known_program(const std::string& name, const std::shared_ptr<const Program>& program) {
  All& a = all();
  std::scoped_lock lock(a.guard);
  a.programs.push_back({++a.count, name, program});
  if (a.programs.size() > most_programs) a.programs.pop_front();
}

std::vector<KnownProgram> known_programs() {
  std::scoped_lock lock(all().guard);
  return {all().programs.begin(), all().programs.end()};
}

}  // namespace postern::internal
