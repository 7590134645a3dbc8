// Elements of what a tap shows: walked as far as they are alive, looked through, named.
#pragma once
#include <postern/detail/api.h>
#include <postern/host.h>
#include <postern/view.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/lists.h"
#include "core/text.h"

namespace postern::internal::host {

/// Calls f(part, first) for each stretch of the leaf's elements that is alive, with the flat index
/// of its first. The mask (TapInfo::mask) has one entry for each row, an index of so many of the
/// leading axes; where it is empty, or not of this leaf, the whole leaf is alive.
template <class F>
void each_live(const AnyView& view, std::span<const bool> mask, const F& f) {
  std::size_t axes = 0;
  std::int64_t rows = 1;
  while (rows < std::ssize(mask) && axes < view.dims().size()) rows *= view.dims()[axes++];
  if (mask.empty() || rows != std::ssize(mask)) return f(view, std::int64_t{0});
  const std::int64_t row_size = view.size() / rows;
  for (auto begin = mask.begin(); begin != mask.end();) {
    const auto end = std::find(begin, mask.end(), !*begin);
    const std::int64_t first = (begin - mask.begin()) * row_size, size = (end - begin) * row_size;
    const auto offset = size_of(first) * byte_width(view.dtype());
    if (*begin) f(AnyView(view.dtype(), view.data() + offset, &size, 1, size), first);
    begin = end;
  }
}

/// Returns the mask of a leaf: empty for one that lacks an axis of the batch ("batch(0,none)"), all
/// of which is alive whoever else is.
inline std::span<const bool> mask_of(const TapInfo& info, std::size_t leaf) {
  for (const std::string_view batch : info.transforms) {
    if (!batch.starts_with("batch(")) continue;
    std::string_view axis = batch.substr(batch.find('(') + 1);
    for (std::size_t i = 0; i < leaf && axis.find(',') != axis.npos; ++i)
      axis.remove_prefix(axis.find(',') + 1);
    if (axis.starts_with("none")) return {};
  }
  return info.mask;
}

/// Returns whether an invocation comes from the same place as another.
inline bool same_place(const Place& a, const Place& b) {
  return a.line == b.line && a.file == b.file;
}

/// Returns the path of a leaf in what is shown; empty where it has none.
inline std::string_view path_of(const TapInfo& info, std::size_t leaf) {
  if (leaf >= info.paths.size()) return {};
  return info.paths[leaf];
}

/// Returns "name" or "name.path".
inline std::string leaf_name(std::string_view name, std::string_view path) {
  return std::string(name) + std::string(path);
}

/// Returns the same to be read: on one line, in quotes where its beginning could not be seen.
inline std::string leaf_label(std::string_view name, std::string_view path) {
  const std::string label = leaf_name(name, path);
  return label.empty() || label[0] == ' ' ? internal::quoted(label) : one_line(label);
}

/// Indices of the first nan and the first infinite element that is alive, or -1.
struct NonFinite {
  std::int64_t nan = -1, inf = -1;
  std::int64_t first() const {
    if (nan < 0 || inf < 0) return std::max(nan, inf);
    return std::min(nan, inf);
  }
};
POSTERN_API NonFinite non_finite_in(const AnyView& view, std::span<const bool> mask);

/// Returns "[3,1]" for a flat index; empty for rank 0.
POSTERN_API std::string index_text(std::int64_t flat, std::span<const std::int64_t> dims);

}  // namespace postern::internal::host
