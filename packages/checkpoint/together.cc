// Writing one checkpoint by several processes. Nothing wakes a process when another one has written
// to a folder that may lie on another machine, so who waits looks, less and less often.
#include "together.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

namespace postern::internal::checkpoints {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::string_view gathering_prefix = "gathering-";
constexpr std::chrono::milliseconds after_failure = 1s;

std::string of_this_job() {
  return fmt::format("{}{:016x}-", gathering_prefix, clusters::job_now());
}

class Gathering {
 public:
  Gathering(const fs::path& folder, const Together& together, std::size_t turn)
      : folder_(folder),
        here_(folder /
              (of_this_job() + digest(fmt::format("{} {}", turn, together.firing)).substr(0, 16))),
        closed_(here_.string() + "-closed"),
        together_(together) {}

  void give(const Snapshot& snapshot) {
    make_folder(here_);
    const Json piece = write_files(here_, snapshot, fmt::format("{}-", together_.rank));
    sync_folder(here_);  // while it is here: process 0 may take it away at the last piece
    write_manifest(file("piece", together_.rank), piece);
  }

  /// On process 0.
  void finish(const std::function<fs::path()>& place) {
    wait([&] {
      bool all = true;
      for (int rank = 1; rank < together_.size; ++rank) {
        refuse_failed(rank);
        all = all && host::is_there(file("piece", rank));
      }
      return all;
    });
    close();
    std::vector<Json> pieces;
    for (int rank = 0; rank < together_.size; ++rank) {
      refuse_failed(rank);
      if (!host::is_there(file("piece", rank)))
        refuse_at(ErrorCode::unavailable, folder_,
                  fmt::format("process {} has taken its part back", rank));
      pieces.push_back(read_manifest(file("piece", rank)));
    }
    write_manifest(here_ / "manifest", joined(pieces));
    sync_folder(here_);
    std::error_code ignored;  // what is left over is swept with the folder
    for (int rank = 0; rank < together_.size; ++rank) fs::remove(file("piece", rank), ignored);
    const fs::path to = place();
    std::error_code error;
    fs::remove_all(to, error);  // what a failure left
    fs::rename(here_, to, error);
    if (error) refuse_at(ErrorCode::unavailable, to, error.message());
    sync_folder(folder_);
  }

  /// On the others.
  void wait_for_first() {
    wait([&] {
      refuse_failed(0);
      return !host::is_there(here_) && !host::is_there(closed_);  // it goes from one to the other
    });
    if (checkpoint_numbers(folder_).empty())
      refuse_at(ErrorCode::unavailable, here_, "somebody has taken it away");
  }

  void give_up(const std::string& why) noexcept {
    try {
      fs::remove(file("piece", together_.rank));  // first: where it is, all that it names is
      const std::string of_mine = fmt::format("-{}-", together_.rank);
      for (const auto& entry : fs::directory_iterator(here_))
        if (entry.path().filename().string().find(of_mine) != std::string::npos)
          fs::remove(entry.path());
      const std::string failed = file("failed", together_.rank).string();
      const int handle = host::open_file("checkpoint", failed, O_WRONLY | O_CREAT | O_TRUNC);
      if (handle < 0) return;
      // Empty, where the disk is full.
      static_cast<void>(::write(handle, why.data(), why.size()));
      ::close(handle);
    } catch (const std::exception&) {
    }  // the others wait no longer than their patience
  }

 private:
  /// Keeps what is here from others, who may have waited for too long by now, and take theirs back.
  void close() {
    std::error_code error;
    fs::rename(here_, closed_, error);
    if (error) refuse_at(ErrorCode::unavailable, closed_, error.message());
    here_ = closed_;
  }

  fs::path file(const char* what, int rank) const {
    return here_ / fmt::format("{}-{}", what, rank);
  }

  void refuse_failed(int rank) const {
    fs::path failed = file("failed", rank);
    if (!host::is_there(failed)) failed = closed_ / failed.filename();
    if (!host::is_there(failed)) return;
    const std::string why = host::read_file("checkpoint", failed.string());
    refuse_at(ErrorCode::unavailable, folder_,
              fmt::format("process {} could not write its part: {}", rank,
                          why.empty() ? "there is no room" : why));
  }

  /// How much has come, in whatever unit.
  std::uintmax_t amount() const {
    std::uintmax_t out = 0;
    for (const fs::path& folder : {here_, closed_}) {
      std::error_code ignored;
      for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end;
           at.increment(ignored)) {
        const std::uintmax_t size = at->file_size(ignored);
        out += 1 + (ignored ? 0 : size);
        ignored.clear();
      }
    }
    return out;
  }

  std::string missing() const {
    if (together_.rank != 0) return "process 0 has not ended it";
    Separator comma(", ");
    std::string out = "nothing is here of process ";
    for (int rank = 1; rank < together_.size; ++rank)
      if (!host::is_there(file("piece", rank))) out += fmt::format("{}{}", comma(), rank);
    return out;
  }

  void wait(const std::function<bool()>& is_done) const {
    std::uintmax_t there = amount();
    auto since = Clock::now();
    for (std::chrono::milliseconds pause = 1ms; !is_done(); pause = std::min(2 * pause, 50ms)) {
      if (const std::uintmax_t now = amount(); now != there) {
        there = now;
        since = Clock::now();
      }
      // Where the run has failed another process may never have come to the firing.
      const bool failed = clusters::has_failed(together_.run);
      const auto patience =
          failed ? std::min(together_.patience, after_failure) : together_.patience;
      if (Clock::now() > host::after(patience, since))
        refuse_at(ErrorCode::deadline_exceeded, here_,
                  fmt::format("{}, and nothing has come for {} ms: {}", missing(), patience.count(),
                              failed ? "its run has failed"
                                     : "do all processes see this folder, and come to the tap as "
                                       "often?"));
      std::this_thread::sleep_for(pause);
    }
  }

  const fs::path folder_;
  fs::path here_;  // on process 0 `closed_`, once that is there
  const fs::path closed_;
  const Together& together_;
};

}  // namespace

void write_together(const fs::path& folder, const Snapshot& snapshot, std::size_t turn,
                    const std::function<fs::path()>& place) {
  Gathering gathering(folder, *snapshot.together, turn);
  try {
    gathering.give(snapshot);
    if (snapshot.together->rank == 0)
      gathering.finish(place);
    else
      gathering.wait_for_first();
  } catch (const std::exception& e) {
    gathering.give_up(e.what());
    throw;
  }
}

void sweep_gatherings(const fs::path& folder) {
  const std::string mine = of_this_job();
  std::vector<fs::path> left;
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(gathering_prefix) && !name.starts_with(mine)) left.push_back(at->path());
  }
  for (const fs::path& path : left) fs::remove_all(path, ignored);
}

}  // namespace postern::internal::checkpoints
