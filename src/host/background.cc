// The list of what goes on beside the runs.
#include "host/background.h"

#include <vector>

#include "core/fork.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"

namespace postern::internal::host {

namespace {

struct All {
  Mutex guard;
  std::vector<std::weak_ptr<Background>> works;
};
All& all() { return never_destroyed<All>(); }

}  // namespace

void wait_also_for(const std::shared_ptr<Background>& work) {
  refuse_forked();
  std::scoped_lock lock(all().guard);
  std::erase_if(all().works, [](const auto& w) { return w.expired(); });
  all().works.push_back(work);
}

std::size_t wait_for_background(std::optional<std::chrono::steady_clock::time_point> until) {
  std::vector<std::shared_ptr<Background>> works;
  {
    std::scoped_lock lock(all().guard);
    for (const auto& w : all().works)
      if (auto work = w.lock()) works.push_back(std::move(work));
  }
  std::size_t left = 0;
  for (const auto& work : works) left += !work->settle(until);
  return left;
}

}  // namespace postern::internal::host
