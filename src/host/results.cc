// What host functions return by value: checked against the declaration, then written.
#include <postern/detail/callee.h>

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/lists.h"
#include "host/bad_result.h"

namespace postern::detail {
using namespace internal;

void check_result_count(const Firing& firing, std::size_t got, const std::string& structure) {
  if (got == firing.results) return;
  throw host::BadResult(fmt::format("expected {} results {}, got {} results {}", firing.results,
                                    *firing.declared->result_structure, got, structure));
}

namespace {

std::string declared(const Firing& firing, std::size_t leaf) {
  const LeafLayout& want = firing.leaves[firing.operands + leaf];
  const std::vector<std::string>& paths = *firing.declared->result_paths;
  const std::string path = leaf < paths.size() ? paths[leaf] : "";
  return fmt::format("result {}{}{} was declared {}{}", leaf, path.empty() ? "" : " ", path,
                     to_string(want.dtype), dims_to_string({want.dims, want.rank}));
}

}  // namespace

void check_result(const Firing& firing, std::size_t leaf, DType dtype,
                  std::span<const std::int64_t> dims) {
  const LeafLayout& want = firing.leaves[firing.operands + leaf];
  if (want.dtype == dtype && std::ranges::equal(dims, std::span(want.dims, want.rank))) [[likely]]
    return;
  throw host::BadResult(fmt::format("{}, the function returned {}{}", declared(firing, leaf),
                                    to_string(dtype), dims_to_string(dims)));
}

void check_result(const Firing& firing, std::size_t leaf, const Tensor& value) {
  if (!value.has_value())
    throw host::BadResult(
        fmt::format("{}, the function returned an empty Tensor", declared(firing, leaf)));
  check_result(firing, leaf, value.dtype(), value.dims());
}

void write_result(const Firing& firing, std::size_t leaf, const void* data) {
  const LeafLayout& want = firing.leaves[firing.operands + leaf];
  if (want.size == 0) return;
  std::memcpy(firing.data[firing.operands + leaf], data,
              size_of(want.size) * byte_width(want.dtype));
}

void write_result(const Firing& firing, std::size_t leaf, const Tensor& value) {
  value.read(firing.data[firing.operands + leaf]);
}

}  // namespace postern::detail
