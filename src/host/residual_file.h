// The file for what is over the limits of loops' stores.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/mutex.h"

namespace postern::internal::host {

/// Memory that is a file's. All stores of a run whose options name the same file share one, so that
/// neither the files nor the mappings are as many as the loops. It has no name any more once it is
/// open, so it goes with the process at last, and before with the last store that has room in it.
class ResidualFile {
 public:
  explicit ResidualFile(std::string prefix) : prefix_(std::move(prefix)) {}
  ~ResidualFile();
  ResidualFile(const ResidualFile&) = delete;

  /// Returns null, and what `errno` said, when there is no room.
  std::byte* room(std::size_t bytes, int& error);
  /// Gives it back, to be given to who wants as much.
  void give_back(std::byte* data, std::size_t bytes) noexcept;

  const std::string& prefix() const { return prefix_; }
  std::int64_t size() const;

 private:
  int open();
  int grow(std::size_t bytes);

  const std::string prefix_;
  mutable Mutex guard_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
  std::vector<std::span<std::byte>> mapped_;
  std::span<std::byte> rest_;  // of the last one
  std::map<std::size_t, std::vector<std::byte*>> free_;
};

}  // namespace postern::internal::host
