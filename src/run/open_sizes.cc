// Arguments with extents that are open, for programs that are saved so.
#include <postern/detail/jit_core.h>

#include <algorithm>
#include <numeric>

#include "core/value.h"

namespace postern::detail {
using namespace internal;

std::vector<std::int64_t> open_extents(const Key& key) {
  std::vector<std::int64_t> out;
  for (const Tensor* t : key.leaves())
    if (const Value* v = Access::value(*t))
      for (const std::int64_t d : v->type.dims)
        if (d < 0 && is_open(d) && std::ranges::find(out, d) == out.end()) out.push_back(d);
  return out;
}

Tensor leaf_at(const Tensor& leaf, const std::vector<std::int64_t>& extents,
               const std::vector<std::int64_t>& sizes) {
  if (!leaf.has_value()) return leaf;
  Type type = leaf.type();
  bool open = false;
  for (std::int64_t& d : type.dims)
    if (const auto found = std::ranges::find(extents, d); found != extents.end()) {
      d = sizes.at(static_cast<std::size_t>(found - extents.begin()));
      open = true;
    }
  if (open) return abstract(type);
  return leaf;
}

Lowered lowered_open(OpenProgram open) {
  constexpr std::int64_t first_size = 67;  // not so small that the program would be another
  std::vector<std::int64_t> sizes(open.extents.size());
  std::iota(sizes.begin(), sizes.end(), first_size);
  const Lowered example = open.at(sizes);
  return example.with_open(std::make_shared<const OpenProgram>(std::move(open)));
}

}  // namespace postern::detail
