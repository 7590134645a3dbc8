// Who waits for whom: a wait that could never end is refused.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace postern::internal::host {

/// Names a run for as long as anybody may ask, or a started function, or what is inside a Gate; a
/// part of a run goes by the whole's name.
struct RunName {
  std::uint64_t started = 0;   // of Runtime::add_started; what has none
  std::uint64_t lane_run = 0;  // goes by its number on its lane
  std::uint64_t job = 0;       // of PendingCalls
  std::uint64_t gate = 0;      // of functions that may be turned off
  bool operator==(const RunName& other) const {
    if (gate || other.gate) return gate == other.gate;
    if (job || other.job) return job == other.job;
    return started || other.started ? started == other.started : lane_run == other.lane_run;
  }
};

/// Returns the runs whose functions the calling thread is inside of, with their lanes, and the
/// started functions: none of them ends before it goes on.
std::vector<RunName> surrounding_runs();

/// While this lives the calling thread, and the runs that it is inside of, wait for others without
/// a limit. Throws CallbackError(reentry) when those wait for it in their turn, however many runs
/// lie between. Costs nothing where the thread is inside no function.
class Wait {
 public:
  explicit Wait(std::span<const RunName> runs);
  explicit Wait(const RunName& run) : Wait(std::span(&run, 1)) {}
  ~Wait();
  Wait(const Wait&) = delete;

 private:
  std::optional<std::uint64_t> number_;
};

}  // namespace postern::internal::host
