// Elements of less than a byte: packed in XLA's memory (first element in the low bits), one a byte
// for host functions.
#pragma once
#include <postern/dtype.h>

#include <cstddef>
#include <utility>

namespace postern::internal::host {

void unpack(DType dtype, const void* packed, void* unpacked, std::size_t elements);
/// Packs elements that all fit the dtype.
void pack(DType dtype, const void* unpacked, void* packed, std::size_t elements);

/// Returns the least and the largest value of such a dtype.
std::pair<int, int> range_of(DType dtype);
int element_of(DType dtype, const void* unpacked, std::size_t i);
/// Returns the index of the first element that does not fit, or `elements`.
std::size_t first_misfit(DType dtype, const void* unpacked, std::size_t elements);

}  // namespace postern::internal::host
