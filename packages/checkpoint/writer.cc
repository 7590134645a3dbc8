// Writing checkpoints beside the program.
//
// A folder has one job under way and one that waits; a firing that brings a third waits for the
// first to end. The thread goes when there is nothing left, and the next job asks for one again.
#include "writer.h"

#include <fmt/format.h>
#include <postern/cluster.h>

#include <algorithm>

#include "together.h"

namespace postern::internal::checkpoints {

namespace fs = std::filesystem;

std::shared_ptr<CheckpointWriter> CheckpointWriter::of(const fs::path& folder) {
  static auto* const writers = new WeakCache<fs::path, CheckpointWriter>;
  const fs::path key = host::settled(folder);
  return writers->of(key, [&] {
    auto made = std::make_shared<CheckpointWriter>(key);
    host::wait_also_for(made);
    return made;
  });
}

CheckpointWriter::~CheckpointWriter() {
  if (failure_) host::keep_unobserved(failure_);
}

void CheckpointWriter::open() {
  const int rank = cluster().rank;  // which may load a package
  std::scoped_lock lock(opening_);
  // Of several processes it may be for all of them, and then process 0 has the lock.
  if (rank == 0) return open_folder();
  make_folder(folder_);
}

void CheckpointWriter::open_folder() {
  if (lock_ && !lock_->stands(folder_)) lock_.reset();  // somebody took the folder away
  if (lock_) return;
  lock_.emplace(folder_);
  sweep(folder_);
  if (const auto numbers = checkpoint_numbers(folder_); !numbers.empty())
    next_ = std::max(next_, numbers.front() + (numbers.front() < none_follows));
}

fs::path CheckpointWriter::next_path() {
  if (next_ == none_follows)
    refuse_at(ErrorCode::failed_precondition, checkpoint_path(folder_, next_),
              "no number can follow this one; write to another folder");
  return checkpoint_path(folder_, next_++);
}

AlignedMemory CheckpointWriter::room(std::size_t size) {
  {
    std::scoped_lock lock(guard_);
    const auto found = std::ranges::find(spare_, size, &CheckpointPart::size);
    if (found != spare_.end()) {
      auto bytes = std::move(found->bytes);
      spare_.erase(found);
      return bytes;
    }
  }
  return aligned_memory(size);
}

void CheckpointWriter::submit(Job job, bool async, const detail::StopState* run) {
  const bool stops = job.on_error == listen::OnError::stop;  // else others are told of failures
  Lock lock(guard_);
  if (stops) throw_failure(lock);
  // What came out of a tap queue holds up no run, and is written.
  if (host::in_delivery()) run = nullptr;
  host::wait_at(changed_, lock, run, [&] { return !waiting_; });
  if (waiting_) return;
  waiting_.emplace(std::move(job));
  if (!busy_) {
    try {
      host::run_on_host_thread([self = shared_from_this()] { self->work(); });
    } catch (...) {
      waiting_.reset();
      throw;
    }
    busy_ = true;
  }
  if (async) return;
  changed_.wait(lock, [&] { return !busy_; });
  if (stops) throw_failure(lock);
}

void CheckpointWriter::throw_failure(Lock& lock) {
  if (!failure_) return;
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  lock.unlock();
  std::rethrow_exception(failure);
}

void CheckpointWriter::wait() {
  Lock lock(guard_);
  changed_.wait(lock, [&] { return !busy_; });
  throw_failure(lock);
}

bool CheckpointWriter::settle(std::optional<std::chrono::steady_clock::time_point> until) {
  Lock lock(guard_);
  const auto idle = [&] { return !busy_; };
  if (!changed_.wait_until(lock, until.value_or(host::never), idle)) return false;
  if (failure_) host::keep_unobserved(std::exchange(failure_, nullptr));
  return true;
}

void CheckpointWriter::work() noexcept {
  Lock lock(guard_);
  while (waiting_) {
    Job job = std::move(*waiting_);
    waiting_.reset();
    changed_.notify_all();
    lock.unlock();
    std::exception_ptr failure;
    try {
      write(job);
    } catch (...) {
      failure = std::current_exception();
      if (job.on_error == listen::OnError::go_on)
        log(LogLevel::warning, "{}; the program goes on", host::describe(failure));
    }
    lock.lock();
    if (failure && job.on_error == listen::OnError::stop && !failure_) failure_ = failure;
    recycle(job.snapshot);
  }
  busy_ = false;
  changed_.notify_all();
}

void CheckpointWriter::recycle(Snapshot& snapshot) {
  for (CheckpointPart& part : snapshot.parts) {
    if (spare_.size() == most_spare) spare_.erase(spare_.begin());
    spare_.push_back({{}, {}, std::move(part.bytes), part.size});
  }
}

void CheckpointWriter::write_alone(const Snapshot& snapshot) {
  const fs::path path = next_path();
  try {
    write_checkpoint(path, snapshot);
  } catch (...) {
    std::error_code ignored;
    if (checkpoint_numbers(folder_).empty() || !host::is_there(path / "manifest"))
      fs::remove_all(path, ignored);
    throw;
  }
}

void CheckpointWriter::write(const Job& job) {
  std::scoped_lock lock(opening_);
  const auto& together = job.snapshot.together;
  const bool leads = !together || together->rank == 0;
  std::size_t turn = 0;
  if (together) {
    constexpr std::size_t most = 4096;
    const bool same_run = std::exchange(turns_of_, together->run) == together->run;
    if (!same_run || turns_.size() == most) turns_.clear();
    turn = turns_[together->firing]++;
  }
  if (leads)
    open_folder();
  else
    make_folder(folder_);
  if (together)
    write_together(folder_, job.snapshot, turn, [&] { return next_path(); });
  else
    write_alone(job.snapshot);
  ++*job.written;
  if (!leads || job.keep == 0) return;
  const std::vector<std::uint64_t> numbers = checkpoint_numbers(folder_);
  for (std::size_t i = static_cast<std::size_t>(job.keep); i < numbers.size(); ++i)
    remove_checkpoint(checkpoint_path(folder_, numbers[i]));
}

}  // namespace postern::internal::checkpoints
