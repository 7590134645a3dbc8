// Elements of less than a byte: XLA packs them, first element in the low bits, functions see one a
// byte.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/check.h"
#include "core/lists.h"
#include "core/value.h"
#include "host/enter.h"

namespace postern::internal::host {

namespace {

/// Shifts each element to the top of its byte and back, which brings its sign along if it has one.
void unpack(DType dtype, const void* packed, void* unpacked, std::size_t elements) {
  const int bits = bit_width(dtype), above = 8 - bits;
  const auto per_byte = size_of(8 / bits);
  const auto* from = static_cast<const std::uint8_t*>(packed);
  auto* to = static_cast<std::int8_t*>(unpacked);
  for (std::size_t i = 0; i < elements; ++i) {
    const int below = static_cast<int>(i % per_byte) * bits;
    const auto high = static_cast<std::uint8_t>(from[i / per_byte] << (above - below));
    const int value = is_signed(dtype) ? int{static_cast<std::int8_t>(high)} : int{high};
    to[i] = static_cast<std::int8_t>(value >> above);
  }
}

/// The least and the largest value of such a dtype.
std::pair<int, int> range_of(DType dtype) {
  const int bits = bit_width(dtype), low = is_signed(dtype) ? -(1 << (bits - 1)) : 0;
  return {low, low + (1 << bits) - 1};
}

int element_of(DType dtype, const void* unpacked, std::size_t i) {
  if (is_signed(dtype)) return int{static_cast<const std::int8_t*>(unpacked)[i]};
  return int{static_cast<const std::uint8_t*>(unpacked)[i]};
}

/// The index of the first element that does not fit, or `elements`.
std::size_t first_misfit(DType dtype, const void* unpacked, std::size_t elements) {
  const auto [low, high] = range_of(dtype);
  for (std::size_t i = 0; i < elements; ++i)
    if (const int value = element_of(dtype, unpacked, i); value < low || value > high) return i;
  return elements;
}

/// Packs elements that all fit the dtype.
void pack(DType dtype, const void* unpacked, void* packed, std::size_t elements) {
  const int bits = bit_width(dtype);
  const auto per_byte = size_of(8 / bits);
  auto* to = static_cast<std::uint8_t*>(packed);
  std::memset(to, 0, (elements + per_byte - 1) / per_byte);
  for (std::size_t i = 0; i < elements; ++i) {
    const int value = element_of(dtype, unpacked, i);
    const int below = static_cast<int>(i % per_byte) * bits, mask = (1 << bits) - 1;
    to[i / per_byte] = static_cast<std::uint8_t>(to[i / per_byte] | (value & mask) << below);
  }
}

/// Whether each element, held one a byte, is in its dtype's range; fails the run otherwise.
bool results_fit(const Invocation& i) {
  const HostSite& site = i.site;
  for (std::size_t result = 0; result < site.results; ++result) {
    const std::size_t leaf = site.operands + result;
    const DType dtype = site.leaves[leaf].dtype;
    if (!is_packed(dtype)) continue;
    const void* const values = i.data[site.inputs + result];
    const std::size_t elements = site.buffer_bytes[leaf],
                      bad = first_misfit(dtype, values, elements);
    if (bad == elements) continue;
    const auto [low, high] = range_of(dtype);
    i.run.fail(
        ErrorCode::bad_result, site, i.device, nullptr,
        fmt::format("element {} of result {} is {}, but the values of {} are from {} to {}", bad,
                    result, element_of(dtype, values, bad), to_string(dtype), low, high));
    return false;
  }
  return true;
}

/// Enters the function on copies of the packed leaves with one element a byte; packs its results.
bool enter_unpacked(const Stage& stage, const Invocation& i) {
  const HostSite& site = i.site;
  std::vector<void*> plain(i.data, i.data + site.buffers);
  std::vector<std::shared_ptr<void>> memory;
  for (std::size_t leaf = 0; leaf < site.leaves.size(); ++leaf) {
    if (!is_packed(site.leaves[leaf].dtype)) continue;
    void*& place = plain[leaf < site.operands ? leaf : leaf + site.spec->batch.masked];
    memory.push_back(detail::aligned_bytes(site.buffer_bytes[leaf]));
    if (leaf < site.operands)
      unpack(site.leaves[leaf].dtype, place, memory.back().get(), site.buffer_bytes[leaf]);
    place = memory.back().get();
  }
  Invocation inner = i;
  inner.data = plain.data();
  const bool ok = stage.next->enter(inner) && results_fit(inner);
  if (!ok && i.run.leaves_zeros) zero_results(site, plain.data());
  for (std::size_t result = 0; result < site.results && (ok || i.run.leaves_zeros); ++result) {
    const std::size_t leaf = site.operands + result, buffer = site.inputs + result;
    if (is_packed(site.leaves[leaf].dtype))
      pack(site.leaves[leaf].dtype, plain[buffer], i.data[buffer], site.buffer_bytes[leaf]);
  }
  return ok;
}

bool enter_packed(const Stage& stage, Invocation& i) noexcept {
  try {
    return i.unpacked ? stage.next->enter(i) && results_fit(i) : enter_unpacked(stage, i);
  } catch (...) {
    return keep_thrown(i.run, i.site, i.device);
  }
}

bool has_packed(const HostSite& site) {
  return std::ranges::any_of(site.leaves, is_packed, &detail::LeafLayout::dtype);
}

}  // namespace

const StageRow packed_stage = {.applies = has_packed, .enter = enter_packed, .sees_leaves = true};

}  // namespace postern::internal::host
