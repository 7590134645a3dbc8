// Elements of less than a byte: packed in XLA's memory (first element in the low bits), one a byte for host functions.
#pragma once
#include <postern/dtype.h>

#include <cstddef>

namespace postern::host {

void unpack(DType dtype, const void* packed, void* unpacked, std::size_t elements);
/// False when an element does not fit the dtype; its index is in `bad`.
bool pack(DType dtype, const void* unpacked, void* packed, std::size_t elements, std::size_t& bad);

}  // namespace postern::host
