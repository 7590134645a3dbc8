// Tape: firings as they are recorded, or replayed in place of entering functions.
#pragma once
#include <postern/record.h>

#include <deque>
#include <map>
#include <mutex>
#include <tuple>

#include "host/run_state.h"

namespace postern::host {

class Tape {
 public:
  Tape() = default;  // that records
  /// That replays. `programs`: digests of the runs' programs.
  Tape(std::vector<std::string> programs, std::vector<RecordedFiring> firings);

  bool replays() const { return replays_; }

  /// The next run, of the program with this text. Throws Error(failed_precondition) when another
  /// one was recorded.
  std::uint64_t begin_run(std::string_view program);

  /// Records a firing whose function has been entered, or (of an asynchronous tap) will be.
  /// `went_well`: else the run has failed, or been ended.
  void record(const RunState& run, const HostSite& site, void* const* data, int device,
              std::int64_t element, bool went_well);
  /// Gives a call the results that it was recorded with. False when the run has failed or ended,
  /// because it did so or the call differs.
  bool replay(RunState& run, const HostSite& site, void* const* data, int device,
              std::int64_t element);

  const std::vector<std::string>& programs() const { return programs_; }
  const std::vector<RecordedFiring>& firings() const { return firings_; }
  /// Nothing is recorded from here on.
  void close();

 private:
  using Key =
      std::tuple<std::uint64_t, std::int64_t, int, std::int64_t>;  // run, site, device, element

  const bool replays_ = false;
  std::mutex guard_;
  bool closed_ = false;
  std::uint64_t runs_ = 0;
  std::vector<std::string> programs_;
  std::vector<RecordedFiring> firings_;
  std::map<Key, std::deque<std::size_t>> next_;  // of firings_, when it replays
  std::map<Key, std::uint64_t> replayed_;
};

/// Whether such a run enters its functions: not when a tape gives their results.
inline bool enters_functions(const std::shared_ptr<Tape>& tape) {
  return !tape || !tape->replays();
}

/// What this thread's runs are taped on, or null: also null inside host functions.
std::shared_ptr<Tape> current_tape();
/// Throws Error(failed_precondition) when there is one already.
void set_current_tape(std::shared_ptr<Tape> tape);

}  // namespace postern::host
