// Appending, and undoing what was appended in part.
#include "append_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <postern/error.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <utility>

#include "spi.h"

namespace postern::internal::formats {

namespace fs = std::filesystem;
using host::open_file, host::open_stream;

namespace {

/// Writes to what may be a pipe. If its reader has gone: EPIPE, without the SIGPIPE that would end
/// the process. The signal is held up meanwhile, and taken away unless it was pending before.
ssize_t write_quietly(int handle, std::string_view bytes) {
  sigset_t broken_pipe, before, pending;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
  const ssize_t written = ::write(handle, bytes.data(), bytes.size());
  const int reason = errno;
  const timespec at_once{};
  if (written < 0 && reason == EPIPE && sigismember(&pending, SIGPIPE) == 0)
    while (sigtimedwait(&broken_pipe, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = reason;
  return written;
}

}  // namespace

AppendFile::AppendFile(const char* who, fs::path file, Open open, const char* cure)
    : who_(who), cure_(cure), file_(std::move(file)), fresh_(open == Open::fresh) {
  std::error_code error;
  if (file_.has_parent_path()) fs::create_directories(file_.parent_path(), error);
  struct stat about {};
  const bool there = ::stat(file_.c_str(), &about) == 0;
  if (open == Open::stream && there && !S_ISREG(about.st_mode))
    handle_ = open_stream(file_, O_WRONLY);  // who could also read a pipe would keep it open
  else
    handle_ = open_file(who_, file_, O_RDWR | O_CREAT | O_APPEND | (fresh_ ? O_EXCL : 0));
  if (handle_ < 0 && errno == EEXIST)
    throw Error(ErrorCode::already_exists,
                fmt::format("{}: '{}' is there already", who_, one_line(file_.string())));
  if (handle_ < 0) fail(errno);
  regular_ = ::fstat(handle_, &about) == 0 && S_ISREG(about.st_mode);
  if (!regular_) return;
  size_ = size_of(about.st_size);
  locked_.emplace(handle_);  // before there is a lock that a child could have
  // The lock that keeps others out. The kernel lets it go with the process, however that ends.
  if (::flock(handle_, LOCK_EX | LOCK_NB) == 0) return;
  const int reason = errno;
  if (fresh_ && is_empty()) ::unlink(file_.c_str());
  locked_->close();
  if (reason != EWOULDBLOCK) fail(reason);
  throw Error(ErrorCode::failed_precondition,
              fmt::format("{}: another process or listener writes to '{}'; give each a file of its "
                          "own",
                          who_, one_line(file_.string())));
}

AppendFile::~AppendFile() {
  if (handle_ < 0) return;
  if (fresh_ && is_empty()) ::unlink(file_.c_str());
  if (locked_)
    locked_->close();
  else
    ::close(handle_);
}

void AppendFile::fail(int reason) const {
  const bool full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
  throw Error(
      ErrorCode::unavailable,
      fmt::format("{}: cannot write '{}': {}; {}{}", who_, one_line(file_.string()),
                  std::strerror(reason),
                  full ? "make room there" : "choose a place that can be written to", cure_));
}

void AppendFile::append(std::string_view piece) {
  std::string_view rest = piece;
  while (!rest.empty()) {
    const ssize_t written =
        regular_ ? ::write(handle_, rest.data(), rest.size()) : write_quietly(handle_, rest);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int reason = errno;
      const bool in_part = rest.size() < piece.size();
      if (regular_ && in_part && ::ftruncate(handle_, static_cast<off_t>(size_)) != 0) fail(errno);
      fail(reason);
    }
    rest.remove_prefix(size_of(written));
  }
  size_ += piece.size();
}

std::size_t AppendFile::cut_half_line() {
  if (!regular_) return 0;
  char part[4096];
  std::size_t end = size_;  // goes back, part by part, to behind the last newline
  while (end > 0) {
    const std::size_t from = end > sizeof part ? end - sizeof part : 0;
    const ssize_t got = ::pread(handle_, part, end - from, static_cast<off_t>(from));
    if (got < 0) fail(errno);
    const std::size_t newline = std::string_view(part, size_of(got)).rfind('\n');
    const bool found = newline != std::string_view::npos;
    end = found ? from + newline + 1 : from;
    if (found || got == 0) break;
  }
  const std::size_t half = size_ - end;
  if (half > 0) cut_to(end);
  return half;
}

void AppendFile::cut_to(std::size_t size) {
  if (regular_ && ::ftruncate(handle_, static_cast<off_t>(size)) != 0) fail(errno);
  size_ = size;
}

bool AppendFile::is_gone() const {
  struct stat about {};
  return regular_ && ::fstat(handle_, &about) == 0 && about.st_nlink == 0;
}

std::string AppendFile::first_line() const {
  std::string line;
  char part[4096];
  for (off_t at = 0; regular_; at += static_cast<off_t>(sizeof part)) {
    const ssize_t got = ::pread(handle_, part, sizeof part, at);
    if (got < 0) fail(errno);
    const std::string_view text(part, size_of(got));
    const std::size_t newline = text.find('\n');
    line += text.substr(0, newline);
    if (newline != std::string_view::npos) return line;
    if (got == 0) break;
  }
  return "";
}

bool AppendFile::is_held(const fs::path& file) {
  if (std::error_code none; !fs::is_regular_file(file, none)) return false;
  const int handle = open_file("tensorboard", file, O_RDONLY);
  if (handle < 0) return false;
  const bool held = ::flock(handle, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(handle);
  return held;
}

}  // namespace postern::internal::formats
