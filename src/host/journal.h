// Journal: a recording that outlives its process. Calls are in its file when they return;
// who goes on from a checkpoint is given those that came after it, and then enters its functions.
#pragma once
#include <atomic>
#include <functional>
#include <memory>

#include "host/host_state.h"
#include "host/recording.h"

namespace postern::internal::host {

/// A call, and what had become of the registered states by its end: those that had changed.
struct JournalCall {
  RecordedFiring call;
  SavedStates states;
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
  /// Returns the name that checkpoints know it by.
  virtual const std::string& name() const = 0;
  /// Returns what earlier processes have left.
  virtual JournalPast past() = 0;
  /// Empties it, and gives it another name.
  virtual void start_anew() = 0;
  virtual void begin_run(const std::string& program) = 0;
  virtual void add(const JournalCall& call) = 0;
};

class Journal final : public Recording {
 public:
  explicit Journal(std::unique_ptr<JournalFile> file) : file_(std::move(file)) {}

  /// Gives from here on what the file has after the mark, or, where there is no checkpoint, from
  /// the beginning. Throws Error: failed_precondition when runs have begun, or the mark (none: the
  /// checkpoint has none) is not of this file; data_loss when the file ends before the mark.
  void resume(bool from_checkpoint, const std::optional<RecordingMark>& mark);

  std::uint64_t begin_run(std::string_view program) override;
  void record(const Invocation& i, bool went_well) override;
  std::optional<bool> give(const Invocation& i) override;
  std::optional<RecordingMark> mark(const RunState& run) override;
  bool is_to_be_written() const override { return false; }  // it is there
  bool is_resumed() const override { return resumed_; }

 private:
  void skip_to(const RecordingMark& mark);
  void load(std::unique_lock<Mutex>& lock, const SavedStates& states);
  SavedStates changed_states(SavedStates now, std::uint64_t number);

  const std::unique_ptr<JournalFile> file_;
  bool begun_ = false, resumed_ = false;
  std::map<Key, std::uint64_t> calls_;  // that have given something, by the process or the file
  std::deque<JournalCall> past_;
  std::map<Key, std::deque<std::size_t>> next_;  // of past_
  std::size_t newest_states_ = 0;                // past_ before this one are not newer
  bool loading_ = false;                         // states
  StopCondition loaded_;
  std::atomic<std::uint64_t> saves_{0};
  std::uint64_t newest_save_ = 0;
  std::map<std::string, std::string> states_;  // as the file has them
};

}  // namespace postern::internal::host
