// Tape: firings as they are recorded, or replayed in place of entering functions.
#pragma once
#include <postern/record.h>

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "host/host_state.h"
#include "host/run_state.h"

namespace postern::internal::host {

/// Where a run is on a tape for resume(): how often each of its sites has been called.
struct TapeMark {
  struct Site {
    std::int64_t site;
    int device;
    std::int64_t element;
    std::uint64_t calls;
  };
  std::string tape;  // its name for itself
  std::uint64_t run = 0;
  std::vector<Site> sites = {};
};

/// What tells firings apart that may come side by side: run, site, device, element.
using TapeKey = std::tuple<std::uint64_t, std::int64_t, int, std::int64_t>;
/// And the so many before it.
using TapeCall = std::pair<TapeKey, std::uint64_t>;

/// A started call as its tape knows it. Its function may return when the run is over.
struct StartedFiring {
  std::weak_ptr<Tape> tape;  // none: nothing is to be recorded
  RecordedFiring call;       // what it gives is added when it returns
  bool ordered = false;      // after all that were started before it
  /// What the tape has of it already: then the function is not entered.
  bool known = false;
  ErrorCode code = ErrorCode::threw;  // of the failure, if it was one
};

class Tape {
 public:
  Tape() = default;  // that records
  /// That replays. `programs`: digests of the runs' programs.
  Tape(std::vector<std::string> programs, std::vector<RecordedFiring> firings);
  virtual ~Tape() = default;
  Tape(const Tape&) = delete;

  bool replays() const { return replays_; }

  /// The next run, of the program with this text. Throws Error(failed_precondition) when another
  /// one was recorded.
  virtual std::uint64_t begin_run(std::string_view program);

  /// Records a firing whose function has been entered, or (of an asynchronous tap) will be.
  /// `went_well`: else the run has failed, or been ended.
  virtual void record(const RunState& run, const HostSite& site, void* const* data, int device,
                      std::int64_t element, bool went_well);
  /// Gives a call the results that it was recorded with. False when the run has failed or ended,
  /// because it did so or the call differs.
  bool replay(RunState& run, const HostSite& site, void* const* data, int device,
              std::int64_t element);
  /// The same of a tape that gives what it has and else records; none: the function is to be
  /// entered.
  virtual std::optional<bool> give(RunState&, const HostSite&, void* const*, int, std::int64_t) {
    return {};
  }
  /// A call is started: its number, and what is known of it. Throws Error(failed_precondition)
  /// when it differs from what was recorded, or must not be entered.
  virtual StartedFiring begin_started(const RunState& run, const HostSite& site, void* const* data,
                                      int device, std::int64_t element);
  /// Its function is entered now.
  virtual void enter_started(const StartedFiring&) {}
  /// Its function has returned, or is waited for no more. `counts`: it is recorded with what it
  /// gave, or how it failed; else it was not entered, or told to stop: it may not have done its
  /// work.
  virtual void end_started(const StartedFiring& started, bool counts);

  /// Whether it is one for resume().
  virtual bool is_for_resume() const { return false; }
  /// Where the run is on such a tape, and the states of that moment. Waits until no started call is
  /// under way, which would be neither behind the mark nor before it. None when the run stops
  /// meanwhile, or the tape was closed.
  virtual std::optional<TapeMark> mark(const RunState&, SavedStates&) { return {}; }

  const std::vector<std::string>& programs() const { return programs_; }
  const std::vector<RecordedFiring>& firings() const { return firings_; }
  /// Nothing is recorded from here on.
  void close();
  /// Whether its firings are to be written when it is closed.
  virtual bool is_to_be_written() const { return !replays_; }

 protected:
  using Key = TapeKey;
  static Key key_of(const RunState& run, const HostSite& site, int device, std::int64_t element);
  static Key key_of(const RecordedFiring& f) { return {f.run, f.site, f.device, f.element}; }
  static TapeCall call_of(const RecordedFiring& f) {  // of a started call
    return {key_of(f), static_cast<std::uint64_t>(f.start)};
  }
  static RecordedFiring firing_of(const RunState& run, const HostSite& site, void* const* data,
                                  int device, std::int64_t element, bool went_well);
  /// Without number and tape, or what it gives.
  static StartedFiring started_of(const RunState& run, const HostSite& site, void* const* data,
                                  int device, std::int64_t element);
  /// What `recorded` gave, if the operands are the same and it did not fail; `where` names the
  /// call.
  static bool give(const RecordedFiring& recorded, RunState& run, const HostSite& site,
                   void* const* data, int device, const std::string& where);
  /// The same for a started call: `started` gets what is recorded. Throws when they differ.
  static void give(RecordedFiring&& recorded, StartedFiring& started);

  std::mutex guard_;
  bool closed_ = false;
  std::uint64_t runs_ = 0;
  std::vector<std::string> programs_;

 private:
  const bool replays_ = false;
  std::vector<RecordedFiring> firings_;
  // Of firings_, when it replays: started calls end in any order, others follow each other.
  std::map<Key, std::deque<std::size_t>> next_;
  std::map<Key, std::uint64_t> calls_;  // so many there have been
  std::map<TapeCall, std::size_t> started_;
};

/// "call 3 of run 0, element 2", for errors.
std::string call_text(std::uint64_t run, std::uint64_t number, std::int64_t element);

/// Whether such a run enters its functions: not when a tape gives their results.
inline bool enters_functions(const std::shared_ptr<Tape>& tape) {
  return !tape || !tape->replays();
}

/// What this thread's runs are taped on, or null: also null inside host functions.
std::shared_ptr<Tape> current_tape();
/// Throws Error(failed_precondition) when there is one already.
void set_current_tape(std::shared_ptr<Tape> tape);

}  // namespace postern::internal::host
