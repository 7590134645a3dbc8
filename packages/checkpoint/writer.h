// Who writes the checkpoints of a folder: on a thread of its own, one at a time.
#pragma once
#include <postern/checkpoint.h>

#include <atomic>
#include <exception>
#include <map>
#include <optional>
#include <string>

#include "folder.h"

namespace postern::internal::checkpoints {

/// One for each folder that the process writes to; its listeners share it.
class CheckpointWriter : public host::Background,
                         public std::enable_shared_from_this<CheckpointWriter> {
 public:
  struct Job {
    Snapshot snapshot;
    std::int64_t keep;
    listen::OnError on_error;
    std::shared_ptr<std::atomic<std::uint64_t>> written;  // counted there
  };

  static std::shared_ptr<CheckpointWriter> of(const std::filesystem::path& folder);
  explicit CheckpointWriter(std::filesystem::path folder) : folder_(std::move(folder)) {}
  ~CheckpointWriter() override;  // a failure that nobody has seen is barrier()'s

  /// Makes sure that the folder is ours. Throws Error.
  void open();
  /// Returns memory for a part, perhaps of one that has been written.
  AlignedMemory room(std::size_t size);
  /// Has it written; `async`: later, but when another one waits already, not before that has begun.
  /// A run that is to stop waits no longer, and its job is dropped. Throws the failure of an
  /// earlier job, or of this one.
  void submit(Job job, bool async, const detail::StopState* run);
  /// Waits for all; throws the failure that no firing has thrown.
  void wait();
  bool settle(std::optional<std::chrono::steady_clock::time_point> until) override;

 private:
  using Lock = std::unique_lock<Mutex>;
  void open_folder();
  std::filesystem::path next_path();
  void work() noexcept;
  void write(const Job& job);
  void write_alone(const Snapshot& snapshot);
  void recycle(Snapshot& snapshot);
  void throw_failure(Lock& lock);

  const std::filesystem::path folder_;
  Mutex opening_;  // of what follows
  std::optional<FolderLock> lock_;
  static constexpr std::uint64_t none_follows = UINT64_MAX;
  std::uint64_t next_ = 1;
  std::map<std::string, std::size_t> turns_;  // of firings of one name, line and number
  std::uint64_t turns_of_ = 0;                // a run

  Mutex guard_;  // of what follows
  StopCondition changed_;
  bool busy_ = false;  // a thread writes
  std::optional<Job> waiting_;
  std::exception_ptr failure_;
  static constexpr std::size_t most_spare = 2;  // as many as can be on their way
  std::vector<CheckpointPart> spare_;
};

}  // namespace postern::internal::checkpoints
