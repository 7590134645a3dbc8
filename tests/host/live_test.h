// A loop that goes on as far as a test lets it.
#pragma once
#include <postern/postern.h>

#include <condition_variable>
#include <mutex>

#include "support.h"

namespace postern::test {

/// A listener for a step's number, which waits until it may go on.
class Steps {
 public:
  void reach(int step, const StopToken& stop) {
    std::unique_lock lock(guard_);
    reached_ = step;
    changed_.notify_all();
    while (step >= allowed_ && !stop.stop_requested())
      changed_.wait_for(lock, std::chrono::milliseconds(5));
  }
  /// Lets the loop go on to the beginning of a step; whether it came there.
  bool go_to(int step) {
    std::unique_lock lock(guard_);
    allowed_ = step;
    changed_.notify_all();
    return changed_.wait_for(lock, std::chrono::seconds(30), [&] { return reached_ == step; });
  }
  void finish() {
    std::scoped_lock lock(guard_);
    allowed_ = 1 << 30;
    changed_.notify_all();
  }
  /// As a tap of the step.
  Tensor at(Tensor step) {
    return tap({.name = "step"}, step, [this](const TapInfo& info, int k) { reach(k, info.stop); });
  }

 private:
  std::mutex guard_;
  std::condition_variable changed_;
  int reached_ = -1, allowed_ = 0;
};

/// x + 1 for so many steps, shown to a live hook "value".
inline auto counting(Steps& steps, int n, JitOptions options = {},
                     TapOptions hooked = {.live = true}) {
  return jit(
      [&steps, n, hooked](Tensor x) {
        return fori_loop(
            0, n,
            [&](Tensor i, Tensor v) {
              steps.at(i);
              return hook("value", v + 1.0f, hooked);
            },
            x);
      },
      std::move(options));
}

/// The only one of this name.
inline LiveHook only(const std::vector<LiveHook>& hooks, const std::string& name = "value") {
  std::vector<LiveHook> found;
  for (const LiveHook& h : hooks)
    if (h.name() == name) found.push_back(h);
  if (found.size() != 1) throw std::runtime_error("there are " + std::to_string(found.size()));
  return found[0];
}

}  // namespace postern::test
