// Journal: a recording that outlives its process. Calls are in its file when they return;
// who goes on from a checkpoint is given those that came after it, and then enters its functions.
#pragma once
#include <atomic>
#include <memory>
#include <optional>

#include "formats/shown.h"
#include "recording.h"

namespace postern::internal::recordings {

/// Where a run is in a recording for resume(): how often each of its sites has been called.
struct RecordingMark {
  struct Site {
    std::int64_t site;
    int device;
    std::int64_t element;
    std::uint64_t calls;
  };
  std::string recording;  // its name for itself
  std::uint64_t run = 0;
  std::vector<Site> sites = {};
};

/// Returns the mark of the run that the calling thread works for, if it is recorded so.
std::optional<RecordingMark> recording_mark();

/// Does as Journal::resume. Throws Error(failed_precondition) also for a recording that is none for
/// resume().
void resume_recording(const Taping& recording, bool from_checkpoint,
                      const std::optional<RecordingMark>& mark);

/// A call, and what had become of the registered states by its end: those that had changed.
struct JournalCall {
  RecordedFiring call;
  host::SavedStates states;
};

/// What a file holds.
struct JournalPast {
  std::vector<std::string> programs;  // of the runs: digests
  std::vector<JournalCall> calls;
};

/// Where a journal is kept. Functions throw Error(unavailable) when it cannot be written; then what
/// was to be added is not there. Calls are added by one write each, so that a kill cuts the last
/// one at most.
class JournalFile {
 public:
  /// Throws Error: failed_precondition when another process has the file, unavailable.
  explicit JournalFile(const std::filesystem::path& file);

  /// Returns the name that checkpoints know it by.
  const std::string& name() const { return name_; }
  /// Returns what earlier processes have left.
  JournalPast past();
  /// Empties it, and gives it another name.
  void start_anew();
  void begin_run(const std::string& program);
  void add(const JournalCall& call);

 private:
  void append(const std::string& piece);

  const std::filesystem::path path_;
  formats::AppendFile out_;
  std::optional<std::size_t> cut_to_;  // before more is written
  std::string name_;
};

class Journal final : public Recording {
 public:
  explicit Journal(const std::filesystem::path& file) : file_(file) {}

  /// Gives from here on what the file has after the mark, or, where there is no checkpoint, from
  /// the beginning. Throws Error: failed_precondition when runs have begun, or the mark (none: the
  /// checkpoint has none) is not of this file; data_loss when the file ends before the mark.
  void resume(bool from_checkpoint, const std::optional<RecordingMark>& mark);

  std::uint64_t begin_run(std::string_view program) override;
  std::string about_lost_calls() const override;
  /// Returns where a run is.
  std::optional<RecordingMark> mark(std::uint64_t run);

 protected:
  bool record_or_give(host::ObservedInvocation& i) override;

 private:
  void skip_to(const RecordingMark& mark);
  std::optional<bool> give_past(host::ObservedInvocation& i);
  void record(const host::ObservedInvocation& i, bool went_well);
  void load(std::unique_lock<Mutex>& lock, const host::SavedStates& states);
  host::SavedStates changed_states(host::SavedStates now, std::uint64_t number);

  JournalFile file_;
  bool begun_ = false, resumed_ = false;
  std::map<Key, std::uint64_t> calls_;  // that have given something, by the process or the file
  std::deque<JournalCall> past_;
  std::map<Key, std::deque<std::size_t>> next_;       // of past_
  std::map<std::string, std::size_t> newest_states_;  // past_ before it have no newer one
  bool loading_ = false;                              // states
  StopCondition loaded_;
  std::atomic<std::uint64_t> saves_{0};
  std::uint64_t newest_save_ = 0;
  std::map<std::string, std::string> states_;  // as the file has them
};

}  // namespace postern::internal::recordings
