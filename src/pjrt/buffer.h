// A PJRT buffer: an array on a device. A buffer must go before its client.
#pragma once
#include "pjrt/device.h"
#include "pjrt/event.h"
#include "pjrt/owned.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace postern::internal::pjrt {

class Buffer {
 public:
  Buffer() = default;
  /// Takes ownership of `handle`.
  Buffer(const PJRT_Api* api, PJRT_Buffer* handle) : handle_(handle, Free{api}) {}

  explicit operator bool() const { return handle_ != nullptr; }
  PJRT_Buffer* handle() const { return handle_.get(); }
  PJRT_Buffer* release() { return handle_.release(); }  // gives up ownership

  /// Returns the extents, valid as long as the buffer.
  std::span<const std::int64_t> dims() const;
  Device device() const;
  bool is_on_cpu() const;
  /// Returns the bytes that to_host needs: dense, row-major, sub-byte types one byte an element, of
  /// which the device packs several into a byte.
  std::size_t host_bytes() const;

  /// Returns an event that is ready when the contents are computed, or when that failed.
  Event ready() const;
  /// Returns the address on the device (on CPU the host address), contents in the device's layout.
  /// Await ready() before reading; safe to keep only while nobody donates or deletes the buffer
  /// (PJRT's own count of such users cannot be kept from two threads). It waits for the allocation,
  /// not for the contents.
  void* data() const;

  /// Copies to `dst` as a dense row-major array; `dst` must stay until the event is ready. Types
  /// below 8 bits come one byte an element with the upper bits zero, signed ones too. On CPU,
  /// reading data() is many times faster. Waits itself where a program chose another layout than
  /// row-major.
  Event to_host(void* dst, std::size_t bytes) const;
  Buffer copy_to(const Device& device) const;

 private:
  const PJRT_Api* api() const { return handle_.get_deleter().api; }

  Owned<PJRT_Buffer> handle_;
};

}  // namespace postern::internal::pjrt
