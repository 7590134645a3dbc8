// Staging: pinned host memory of one GPU, through which leaves go from the device to host functions
// and back.
#pragma once
#include <atomic>
#include <deque>
#include <span>
#include <vector>

#include "core/mutex.h"
#include "host/memory_pool.h"
#include "platform/gpu/driver.h"

namespace postern::internal::gpu {

/// Thread-safe. Blocks are recycled; a block that the device may still read or write is given out
/// again when an event behind that has passed. So there is as much memory as invocations need at a
/// time, and `retained` bytes more at most, or what reserve() was asked for.
class Staging {
 public:
  static constexpr std::size_t retained = std::size_t{256} << 20;

  Staging(const Driver& driver, void* context);
  /// Has blocks of these sizes ready, all at a time. To pin memory a vendor's interface waits for
  /// the device, which within an invocation may wait for another one of a collective. Throws
  /// Error(resource_exhausted).
  void reserve(std::span<const std::size_t> sizes);
  const Driver& driver() const { return driver_; }
  void* context() const { return context_; }

  /// A block for a scope. Throws Error(resource_exhausted) when there is no pinned memory.
  class Block {
   public:
    Block() = default;
    Block(Staging& staging, std::size_t bytes);
    Block(Block&& other) noexcept;
    Block& operator=(Block&& other) noexcept;
    ~Block();
    std::byte* data() const { return data_; }
    /// Marks the memory as used by the device until all that is queued on `stream` by then is done:
    /// the block comes back after that.
    void used_by(void* stream) noexcept {
      stream_ = stream;
      in_use_ = true;
    }
    /// Notes that all that was queued is done.
    void done() noexcept { in_use_ = false; }

   private:
    Staging* staging_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    void* stream_ = nullptr;
    bool in_use_ = false;
  };

  /// Records an event on a stream. Throws Error.
  void* record(void* stream);
  void give_back(void* event) noexcept;

  std::size_t bytes() const { return bytes_; }  // pinned now

 private:
  struct InFlight {
    void* event;
    void* block;
    std::size_t size;
  };
  void* allocate(std::size_t size);
  void reclaim() noexcept;
  void* taken_event();
  void give_back(void* block, std::size_t size) noexcept;
  void give_back_after(void* stream, void* block, std::size_t size) noexcept;

  const Driver& driver_;
  void* const context_;
  mutable Mutex guard_;
  std::atomic<std::size_t> bytes_{0};
  std::size_t kept_ = retained;
  host::MemoryPool pool_;
  std::deque<InFlight> in_flight_;
  std::vector<void*> events_;  // to be used again; never has to grow for one that comes back
  std::size_t events_made_ = 0;
};

/// Returns that of a context, or of the GPU of a stream; it lives as long as the process.
Staging& staging_in(const Driver& driver, void* context);
Staging& staging_of(const Driver& driver, void* stream);

}  // namespace postern::internal::gpu
