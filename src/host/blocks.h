// Blocks: memory that is given out again, by size, so that a steady stream of copies allocates
// nothing.
#pragma once
#include <array>
#include <cstddef>

namespace postern::host {

/// Where blocks come from.
struct BlockSource {
  void* (*allocate)(void* user, std::size_t size);
  void (*free)(void* user, void* block, std::size_t size);
  void* user = nullptr;
};
/// Aligned for any dtype and for XLA (64 bytes).
extern const BlockSource heap_blocks;

/// Not thread-safe.
class Blocks {
 public:
  explicit Blocks(const BlockSource& source = heap_blocks) : source_(source) {}
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
  BlockSource source_;
  std::array<Free*, 256> free_{};
  std::size_t retained_ = 0;
};

}  // namespace postern::host
