// Buffers: their shape, memory, copies and release.
#include "pjrt/buffer.h"

#include "pjrt/call.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/lists.h"

namespace postern::internal::pjrt {
namespace {

// The dimensions of a buffer from the fastest on the device to the slowest.
std::vector<std::int64_t> minor_to_major(const PJRT_Api* api, PJRT_Buffer* buffer) {
  const auto layout =
      ask<&PJRT_Api::PJRT_Buffer_GetMemoryLayout>(api, buffer, "to read a buffer's layout").layout;
  if (number_of(layout.type) != PJRT_Buffer_MemoryLayout_Type_Tiled)
    throw Error(
        ErrorCode::unimplemented,
        "XLA described a buffer's layout by strides; Postern can read only an order of dimensions");
  return {layout.tiled.minor_to_major,
          layout.tiled.minor_to_major + layout.tiled.minor_to_major_size};
}

bool is_row_major(const std::vector<std::int64_t>& order) {
  return std::is_sorted(order.rbegin(), order.rend());
}

// Writes the elements of `from`, dense in the order `minor_to_major`, to `to` in row-major order.
// The index goes on like an odometer, the last dimension first, and takes `offset` with it.
void make_row_major(const char* from, char* to, std::size_t bytes,
                    std::span<const std::int64_t> dims,
                    const std::vector<std::int64_t>& minor_to_major) {
  std::vector<std::size_t> stride(dims.size());
  std::size_t count = 1;
  for (const auto dim : minor_to_major) {
    stride[size_of(dim)] = count;
    count *= size_of(dims[size_of(dim)]);
  }
  if (count == 0) return;
  const std::size_t width = bytes / count;
  std::vector<std::int64_t> index(dims.size(), 0);
  for (std::size_t i = 0, offset = 0; i < count; ++i) {
    std::memcpy(to + i * width, from + offset * width, width);
    for (std::size_t dim = dims.size(); dim-- > 0;) {
      offset += stride[dim];
      if (++index[dim] < dims[dim]) break;
      offset -= stride[dim] * size_of(dims[dim]);
      index[dim] = 0;
    }
  }
}

// The copy that PJRT makes: in the order of the device. A host layout can be asked for, but XLA:CPU
// ignores it.
PJRT_Buffer_ToHostBuffer_Args copy_out(const PJRT_Api* api, PJRT_Buffer* buffer, void* dst,
                                       std::size_t bytes, const char* what) {
  auto args = make_args<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = buffer;
  args.dst = dst;
  args.dst_size = bytes;
  call<&PJRT_Api::PJRT_Buffer_ToHostBuffer>(api, args, what);
  return args;
}

}  // namespace

std::span<const std::int64_t> Buffer::dims() const {
  const auto args =
      ask<&PJRT_Api::PJRT_Buffer_Dimensions>(api(), handle(), "to read a buffer's shape");
  return {args.dims, args.num_dims};
}

Device Buffer::device() const {
  const auto args =
      ask<&PJRT_Api::PJRT_Buffer_Device>(api(), handle(), "to find a buffer's device");
  return {api(), args.device};
}

bool Buffer::is_on_cpu() const {
  constexpr std::string_view what = "to look where a buffer is";
  return ask<&PJRT_Api::PJRT_Buffer_IsOnCpu>(api(), handle(), what).is_on_cpu;
}

std::size_t Buffer::host_bytes() const {
  return copy_out(api(), handle(), nullptr, 0, "to read a buffer's size on the host").dst_size;
}

Event Buffer::ready() const {
  return {api(),
          ask<&PJRT_Api::PJRT_Buffer_ReadyEvent>(api(), handle(), "to follow a buffer").event};
}

void* Buffer::data() const {
  const auto args =
      ask<&PJRT_Api::PJRT_Buffer_UnsafePointer>(api(), handle(), "to find a buffer's memory");
  return reinterpret_cast<void*>(args.buffer_pointer);
}

Event Buffer::to_host(void* dst, std::size_t bytes) const {
  constexpr const char* what = "to copy a buffer to the host";
  if (!dst && bytes)
    throw Error(ErrorCode::invalid_argument,
                "to copy a buffer to the host needs a place to copy to; came null");
  // An empty array may well have a null place, but by that PJRT is asked for the size alone.
  static char nowhere;
  const auto order = minor_to_major(api(), handle());
  if (is_row_major(order))
    return {api(), copy_out(api(), handle(), dst ? dst : &nowhere, bytes, what).event};
  std::vector<char> as_on_device(std::max<std::size_t>(bytes, 1));
  Event copied(api(), copy_out(api(), handle(), as_on_device.data(), bytes, what).event);
  copied.await();
  make_row_major(as_on_device.data(), static_cast<char*>(dst), host_bytes(), dims(), order);
  return copied;
}

Buffer Buffer::copy_to(const Device& device) const {
  auto args = make_args<PJRT_Buffer_CopyToDevice_Args>();
  args.buffer = handle();
  args.dst_device = device.handle();
  call<&PJRT_Api::PJRT_Buffer_CopyToDevice>(api(), args, "to copy a buffer to another device");
  return {api(), args.dst_buffer};
}

}  // namespace postern::internal::pjrt
