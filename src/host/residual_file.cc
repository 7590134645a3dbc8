// Files of loops' stores, mapped a piece at a time.
#include "host/residual_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace postern::internal::host {

namespace {

constexpr std::size_t most_at_once = std::size_t{64} << 20, line = 64;

std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }
std::size_t page_size() {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return page;
}

}  // namespace

ResidualFile::~ResidualFile() {
  for (const std::span<std::byte> m : mapped_) ::munmap(m.data(), m.size());
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::int64_t ResidualFile::size() const {
  const std::scoped_lock lock(guard_);
  return static_cast<std::int64_t>(size_);
}

int ResidualFile::open() {
  if (descriptor_ >= 0) return 0;
  std::string name = prefix_ + ".XXXXXX";
  descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor_ < 0) return errno;
  ::unlink(name.c_str());
  return 0;
}

/// Makes the file longer by so many bytes and maps them; 0, or what `errno` said. They are reserved
/// first: on a full disk a write to mapped memory would end the process.
int ResidualFile::grow(std::size_t bytes) {
  struct statvfs about {};  // what has no room is not to fill the disk first
  if (::fstatvfs(descriptor_, &about) == 0 && bytes / about.f_frsize > about.f_bavail)
    return ENOSPC;
  int error = 0;
  do error = ::posix_fallocate(descriptor_, static_cast<off_t>(size_), static_cast<off_t>(bytes));
  while (error == EINTR);
  if (error) return error;
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_,
                            static_cast<off_t>(size_));
  if (data == MAP_FAILED) return errno;
  size_ += bytes;
  rest_ = mapped_.emplace_back(static_cast<std::byte*>(data), bytes);
  return 0;
}

std::byte* ResidualFile::room(std::size_t bytes, int& error) {
  bytes = rounded_up(bytes, line);
  const std::scoped_lock lock(guard_);
  if (const auto found = free_.find(bytes); found != free_.end() && !found->second.empty()) {
    std::byte* const data = found->second.back();
    found->second.pop_back();
    return data;
  }
  if (rest_.size() < bytes) {
    if ((error = open())) return nullptr;
    // As much again as there is, so that mappings are few; where the disk has not that much, what
    // is asked for.
    const std::size_t least = rounded_up(bytes, page_size());
    if (grow(std::max(least, std::min(size_, most_at_once))) && (error = grow(least)))
      return nullptr;
  }
  std::byte* const data = rest_.data();
  rest_ = rest_.subspan(bytes);
  return data;
}

void ResidualFile::give_back(std::byte* data, std::size_t bytes) noexcept try {
  const std::scoped_lock lock(guard_);
  free_[rounded_up(bytes, line)].push_back(data);
} catch (...) {  // no memory to note it: nobody is given it again
}

}  // namespace postern::internal::host
