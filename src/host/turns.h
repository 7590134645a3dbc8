// Turns: one order of invocations over all devices of a run.
#pragma once
#include <vector>

#include "host/stop.h"

namespace postern::internal::host {

/// The devices of a run take turns, always in the same order. Every device fires equally often, so
/// nobody waits for one that never comes; who waits is woken when the run stops.
class Turns {
 public:
  /// Starts them, before the run starts.
  void start(std::vector<int> order);
  /// Returns whether there is anything to wait for.
  bool several() const { return order_.size() > 1; }
  int first() const { return order_.front(); }
  const std::vector<int>& devices() const { return order_; }

  /// Waits until it is this device's turn, the run is to stop, or the limit has passed.
  void wait(int device, const detail::StopState& run, std::chrono::steady_clock::time_point limit);
  void pass();

 private:
  std::vector<int> order_;
  Mutex guard_;
  StopCondition turned_;
  std::size_t next_ = 0;
};

}  // namespace postern::internal::host
