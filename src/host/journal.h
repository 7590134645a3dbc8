// Journal: a tape that outlives its process. Calls are in its file when they return; the process
// that goes on from a checkpoint is given those that came after it, and then enters its functions.
#pragma once
#include <condition_variable>
#include <memory>
#include <set>

#include "host/host_state.h"
#include "host/tape.h"

namespace postern::internal::host {

/// A call, and what had become of the registered states by its end: those that had changed.
struct JournalCall {
  RecordedFiring call;
  SavedStates states = {};
  bool ordered = false;               // a started one
  bool held = false;                  // its states come with a later call
  std::vector<TapeCall> beside = {};  // started ones at work, which may have changed states too
};

/// What a file holds.
struct JournalPast {
  std::vector<std::string> programs;  // of the runs: digests
  std::vector<JournalCall> calls;
};

/// Where a journal is kept. Functions throw Error(unavailable) when it cannot be written; then what
/// was to be added is not there.
class JournalFile {
 public:
  virtual ~JournalFile() = default;
  /// That checkpoints know it by.
  virtual const std::string& name() const = 0;
  /// What earlier processes have left.
  virtual JournalPast past() = 0;
  /// Empties it, and gives it another name.
  virtual void start_anew() = 0;
  virtual void begin_run(const std::string& program) = 0;
  virtual void add(const JournalCall& call) = 0;
};

class Journal final : public Tape {
 public:
  explicit Journal(std::unique_ptr<JournalFile> file) : file_(std::move(file)) {}

  /// From here on gives what the file has after the mark, or, where there is no checkpoint, from
  /// the beginning. Throws Error: failed_precondition when runs have begun, or the mark (none: the
  /// checkpoint has none) is not of this file; data_loss when the file ends before the mark.
  void go_on(bool from_checkpoint, const std::optional<TapeMark>& mark);

  std::uint64_t begin_run(std::string_view program) override;
  void record(const RunState& run, const HostSite& site, void* const* data, int device,
              std::int64_t element, bool went_well) override;
  std::optional<bool> give(RunState& run, const HostSite& site, void* const* data, int device,
                           std::int64_t element) override;
  StartedFiring begin_started(const RunState& run, const HostSite& site, void* const* data,
                              int device, std::int64_t element) override;
  void enter_started(const StartedFiring& started) override;
  void end_started(const StartedFiring& started, bool counts) override;
  bool is_for_resume() const override { return true; }
  std::optional<TapeMark> mark(const RunState& run, SavedStates& states) override;
  bool is_to_be_written() const override { return false; }  // it is there

 private:
  /// A call that was entered and is not in the file.
  struct Open {
    bool started = false;
    bool listed = false;  // a call beside it has changed states
  };

  void drop_held();
  void skip_to(const TapeMark& mark);
  void find_unclear();
  void load(std::size_t at);
  void catch_up(std::uint64_t run);
  void refuse_unclear(const TapeCall& call) const;
  void refuse_behind(const StartedFiring& started, const HostSite& site) const;
  void add(JournalCall now, const TapeCall& call, bool started);
  SavedStates changed_states() const;

  const std::unique_ptr<JournalFile> file_;
  bool begun_ = false, goes_on_ = false;
  // That have given something, by the process or the file; started ones, when they begin.
  std::map<Key, std::uint64_t> calls_;
  std::deque<JournalCall> past_;  // without the states of calls that nobody will be given
  std::map<Key, std::deque<std::size_t>> next_;  // of past_
  std::map<TapeCall, std::size_t> started_;      // the same of started calls
  std::map<TapeCall, std::string> unclear_;      // what states they may have changed in part
  std::uint64_t caught_up_ = 0;                  // runs before this one have all their states
  std::map<std::string, std::size_t> newest_;    // past_ before this one are not newer
  std::map<std::string, std::string> states_;    // as the file has them
  std::map<std::string, std::string> seen_;      // as they were last known to be, whole
  std::map<TapeCall, Open> open_;                // also those that failed
  std::set<TapeCall> under_way_;                 // started calls that have not ended
  std::condition_variable ended_;
};

}  // namespace postern::internal::host
