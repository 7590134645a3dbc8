// Recording: invocations as they are recorded, or replayed in place of entering functions.
#pragma once
#include <postern/record.h>

#include <deque>
#include <map>
#include <optional>
#include <tuple>

#include "core/mutex.h"
#include "host/recording_mark.h"
#include "host/stage.h"

namespace postern::internal::host {

class Recording {
 public:
  Recording() = default;  // that records
  /// Makes one that replays. `programs`: digests of the runs' programs.
  Recording(std::vector<std::string> programs, std::vector<RecordedFiring> firings);
  virtual ~Recording() = default;
  Recording(const Recording&) = delete;

  bool replays() const { return replays_; }

  /// Begins the next run, of the program with this text. Throws Error(failed_precondition) when
  /// another one was recorded.
  virtual std::uint64_t begin_run(std::string_view program);

  /// Records an invocation whose function has been entered, or (of an asynchronous tap) will be.
  /// `went_well`: else the run has failed, or been ended.
  virtual void record(const Invocation& i, bool went_well);
  /// Gives a call the results that it was recorded with. False when the run has failed or ended,
  /// because it did so or the call differs.
  bool replay(const Invocation& i);
  /// Gives what a recording has that else records; none: the function is to be entered.
  virtual std::optional<bool> give(const Invocation&) { return {}; }
  /// Returns where the run is, in a recording for resume().
  virtual std::optional<RecordingMark> mark(const RunState&) { return {}; }

  const std::vector<std::string>& programs() const { return programs_; }
  const std::vector<RecordedFiring>& firings() const { return firings_; }
  /// Returns whether it gives what another process has recorded, and then goes on.
  virtual bool is_resumed() const { return false; }
  /// Closes it: nothing is recorded from here on.
  void close();
  /// Returns whether its invocations are to be written when it is closed.
  virtual bool is_to_be_written() const { return !replays_; }

 protected:
  using Key =
      std::tuple<std::uint64_t, std::int64_t, int, std::int64_t>;  // run, site, device, element
  static Key key_of(const Invocation& i);
  static RecordedFiring firing_of(const Invocation& i, bool went_well);
  /// Gives what `recorded` gave, if the operands are equal and it did not fail; `where`: the call.
  static bool give(const RecordedFiring& recorded, const Invocation& i, const std::string& where);

  Mutex guard_;
  bool closed_ = false;
  std::uint64_t runs_ = 0;
  std::vector<std::string> programs_;

 private:
  const bool replays_ = false;
  std::vector<RecordedFiring> firings_;
  std::map<Key, std::deque<std::size_t>> next_;  // of firings_, when it replays
  std::map<Key, std::uint64_t> replayed_;
};

/// Returns "call 3 of run 0, element 2", for errors.
std::string call_text(const Invocation& i, std::uint64_t number);

/// Returns whether such a run enters its functions: not when a recording gives their results.
inline bool enters_functions(const std::shared_ptr<Recording>& recording) {
  return !recording || !recording->replays();
}

/// Returns what this thread's runs are recorded in, or null: also null inside host functions.
std::shared_ptr<Recording> current_recording();
/// Throws Error(failed_precondition) when there is one already.
void set_current_recording(std::shared_ptr<Recording> recording);

}  // namespace postern::internal::host
