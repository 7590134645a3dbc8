// A loop that goes on as far as a test lets it.
#pragma once
#include <postern/postern.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "support.h"

namespace postern::test {

/// A listener for a step's number, which waits until it may go on. A loop that outlives a test that
/// has failed goes on to its end.
class Steps {
 public:
  Steps() = default;
  Steps(const Steps&) = delete;
  ~Steps() { finish(); }

  /// Lets the loop go on to the beginning of a step; whether it came there.
  bool go_to(int step) {
    std::unique_lock lock(of_->guard);
    of_->allowed = step;
    of_->changed.notify_all();
    return of_->changed.wait_for(lock, std::chrono::seconds(30),
                                 [&] { return of_->reached == step; });
  }
  void finish() {
    std::scoped_lock lock(of_->guard);
    of_->allowed = 1 << 30;
    of_->changed.notify_all();
  }
  /// As a tap of the step.
  Tensor at(Tensor step) {
    return tap({.name = "step"}, step,
               [of = of_](const TapInfo& info, int k) { of->reach(k, info.stop); });
  }

 private:
  struct Shared {
    void reach(int step, const StopToken& stop) {
      std::unique_lock lock(guard);
      reached = step;
      changed.notify_all();
      while (step >= allowed && !stop.stop_requested())
        changed.wait_for(lock, std::chrono::milliseconds(5));
    }
    std::mutex guard;
    std::condition_variable changed;
    int reached = -1, allowed = 0;
  };
  const std::shared_ptr<Shared> of_ = std::make_shared<Shared>();
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
