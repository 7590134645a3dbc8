// Blocks: memory that is given out again, by size, so that a steady stream of copies allocates nothing.
#pragma once
#include <array>
#include <cstddef>

namespace postern::host {

/// Not thread-safe. Blocks are aligned for any dtype and for XLA (64 bytes).
class Blocks {
 public:
  ~Blocks() { trim(0); }

  /// The size of the block that `bytes` bytes come in: four sizes for each power of two.
  static std::size_t size_for(std::size_t bytes);

  /// `size` is what size_for said.
  void* take(std::size_t size);
  bool has(std::size_t size) const { return free_[index_of(size)] != nullptr; }
  void give_back(void* block, std::size_t size) noexcept;

  std::size_t retained() const { return retained_; }
  /// Frees blocks, the largest first, until at most so many bytes are retained.
  void trim(std::size_t keep) noexcept;

 private:
  struct Free {
    Free* next;
  };
  static std::size_t index_of(std::size_t size);
  std::array<Free*, 256> free_{};
  std::size_t retained_ = 0;
};

}  // namespace postern::host
