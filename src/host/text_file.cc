// Reading and writing whole files.
#include "host/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <postern/error.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/lists.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "core/text.h"

namespace postern::internal::host {

int open_stream(const std::string& file, int how) {
  int handle = -1;
  do handle = ::open(file.c_str(), how | O_CLOEXEC | O_NOCTTY, 0666);
  while (handle < 0 && errno == EINTR);
  return handle;
}

namespace {

struct Closed {
  Mutex guard;
  std::vector<int*> handles;
};
Closed& closed_in_children() { return never_destroyed<Closed>(); }

void watch_forks_of_handles() {
  [[maybe_unused]] static const int registered = pthread_atfork(
      [] { closed_in_children().guard.lock(); }, [] { closed_in_children().guard.unlock(); },
      [] {
        for (int* const handle : closed_in_children().handles) ::close(std::exchange(*handle, -1));
        closed_in_children().guard.unlock();
      });
}

}  // namespace

ClosedInChild::ClosedInChild(int& handle) : handle_(handle) {
  watch_forks_of_handles();
  const std::scoped_lock lock(closed_in_children().guard);
  closed_in_children().handles.push_back(&handle);
}

ClosedInChild::~ClosedInChild() {
  const std::scoped_lock lock(closed_in_children().guard);
  std::erase(closed_in_children().handles, &handle_);
}

void ClosedInChild::close() {
  const std::scoped_lock lock(closed_in_children().guard);  // which a fork takes
  if (handle_ < 0) return;
  ::flock(handle_, LOCK_UN);  // who was forked off before this was made may have the handle still
  ::close(std::exchange(handle_, -1));
}

int open_file(const char* who, const std::string& file, int how) {
  const int handle = open_stream(file, how | O_NONBLOCK), reason = errno;
  const bool is_idle_pipe = handle < 0 && reason == ENXIO;  // which nobody reads
  if (handle < 0 && !is_idle_pipe) {
    errno = reason;
    return -1;
  }
  struct stat about {};
  if (handle >= 0 && ::fstat(handle, &about) == 0 && S_ISREG(about.st_mode)) return handle;
  if (handle >= 0) ::close(handle);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: {} is no regular file", who, one_line(file)));
}

std::string read_file(const char* who, const std::string& file) {
  const auto refuse = [&](ErrorCode code, const char* why) {
    throw Error(code, fmt::format("{}: {}: {}", who, one_line(file), why));
  };
  const int handle = open_file(who, file, O_RDONLY);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(
      handle < 0 ? nullptr : ::fdopen(handle, "rb"), std::fclose);
  if (!in && handle >= 0) ::close(handle);
  std::string text;
  struct stat about {};
  try {
    if (in && ::fstat(::fileno(in.get()), &about) == 0) text.reserve(size_of(about.st_size));
    char part[1 << 16];
    for (std::size_t n = 0; in && (n = std::fread(part, 1, sizeof part, in.get())) > 0;)
      text.append(part, n);
  } catch (const std::exception&) {
    refuse(ErrorCode::resource_exhausted, "there is no memory for what it holds");
  }
  if (!in || std::ferror(in.get()))
    refuse(errno == ENOENT ? ErrorCode::not_found : ErrorCode::unavailable, std::strerror(errno));
  return text;
}

std::string read_if_there(const std::string& file) noexcept try {
  return read_file("", file);
} catch (const Error&) {
  return {};
}

bool is_there(const std::filesystem::path& path) noexcept {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::filesystem::path settled(const std::filesystem::path& folder) {
  std::error_code failed;
  auto out = std::filesystem::absolute(folder, failed);
  if (!failed) out = std::filesystem::weakly_canonical(out, failed);
  if (failed)
    throw Error(ErrorCode::unavailable,
                fmt::format("{}: {}", one_line(folder.string()), failed.message()));
  if (!out.has_filename()) return out.parent_path();  // a slash at the end
  return out;
}

NewFile::NewFile(const char* who, std::string file)
    : who_(who), asked_(std::move(file)), file_(asked_) {
  struct stat about {};
  const bool there = ::stat(file_.c_str(), &about) == 0;
  if (there && !S_ISREG(about.st_mode)) {
    handle_ = open_stream(file_, O_WRONLY);  // a pipe, a terminal: written as it comes
    if (handle_ < 0) fail(errno);
    return;
  }
  if (there && ::access(file_.c_str(), W_OK) != 0) fail(errno);
  // A link stays one: the file that it leads to is replaced.
  std::error_code none;
  if (const auto real = std::filesystem::canonical(file_, none); !none) file_ = real.string();
  const std::size_t slash = file_.rfind('/') + 1;  // 0 without one
  static std::atomic<unsigned> counter{0};
  while (handle_ < 0) {  // under a name that is free
    beside_ = fmt::format("{}.postern-{}-{}", file_.substr(0, slash), ::getpid(), counter++);
    handle_ = open_file(who_, beside_, O_WRONLY | O_CREAT | O_EXCL);
    if (handle_ < 0 && errno != EEXIST) fail(errno);
  }
  if (there) static_cast<void>(::fchmod(handle_, about.st_mode & 07777));
}

NewFile::~NewFile() {
  if (handle_ < 0) return;
  ::close(handle_);
  if (!beside_.empty()) ::unlink(beside_.c_str());
}

void NewFile::fail(int reason) const {
  throw Error(ErrorCode::unavailable, fmt::format("{}: cannot write '{}': {}", who_,
                                                  one_line(asked_), std::strerror(reason)));
}

void NewFile::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(handle_, text.data(), text.size());
    if (n < 0 && errno != EINTR) fail(errno);
    if (n > 0) text.remove_prefix(size_of(n));
  }
}

void NewFile::write_at(std::size_t offset, std::string_view text) {
  if (::lseek(handle_, static_cast<off_t>(offset), SEEK_SET) < 0) fail(errno);
  write(text);
}

void NewFile::write_past_cache(std::string_view bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
  const int flags = ::fcntl(handle_, F_GETFL);
  const bool is_aligned =
      at % block == 0 && ::lseek(handle_, 0, SEEK_CUR) % static_cast<off_t>(block) == 0;
  std::size_t left = bytes.size() / block * block;  // whole blocks
  if (!is_aligned || ::fcntl(handle_, F_SETFL, flags | O_DIRECT) != 0) left = 0;
  while (left > 0) {
    const ssize_t n = ::write(handle_, bytes.data(), left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL) break;  // other blocks than ours, or none
    if (n < 0) fail(errno);
    bytes.remove_prefix(size_of(n));
    left -= size_of(n);
    if (size_of(n) % block != 0) break;  // the disk is full, as write() will tell
  }
  static_cast<void>(::fcntl(handle_, F_SETFL, flags));
  write(bytes);
}

void NewFile::begin_sync() {
  // A hint: what it comes to nothing by, fsync will tell.
  static_cast<void>(::sync_file_range(handle_, 0, 0, SYNC_FILE_RANGE_WRITE));
}

void NewFile::settle() {
  if (beside_.empty()) return;
  if (::fsync(handle_) != 0 || ::rename(beside_.c_str(), file_.c_str()) != 0) fail(errno);
  beside_.clear();
}

void NewFile::finish() {
  settle();
  if (::close(std::exchange(handle_, -1)) != 0) fail(errno);
}

void write_text_file(const char* who, const std::string& file, std::string_view text) {
  NewFile out(who, file);
  out.write(text);
  out.finish();
}

}  // namespace postern::internal::host
