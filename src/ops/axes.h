// Small arithmetic on lists of axes and extents.
#pragma once
#include <postern/type.h>

#include <algorithm>
#include <numeric>

namespace postern::internal {

inline std::int64_t at(const Dims& dims, std::int64_t axis) {
  return dims[static_cast<std::size_t>(axis)];
}
inline std::int64_t& at(Dims& dims, std::int64_t axis) {
  return dims[static_cast<std::size_t>(axis)];
}

/// Counts an index or axis from the end when negative.
inline std::int64_t from_front(std::int64_t i, std::int64_t extent) {
  if (i < 0) return i + extent;
  return i;
}

/// Returns `given`, or where it is empty `count` times `each`.
inline Dims or_each(const Dims& given, std::size_t count, std::int64_t each) {
  if (given.empty()) return Dims(count, each);
  return given;
}

inline bool contains(const Dims& axes, std::int64_t axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

/// Returns begin, begin + 1, ... end - 1.
inline Dims range(std::int64_t begin, std::int64_t end) {
  Dims out(static_cast<std::size_t>(std::max<std::int64_t>(end - begin, 0)));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

/// Returns the axes of a tensor of that rank that are not in `axes`.
inline Dims other_axes(std::int64_t rank, const Dims& axes) {
  Dims out;
  for (std::int64_t i = 0; i < rank; ++i)
    if (!contains(axes, i)) out.push_back(i);
  return out;
}

/// Returns dims[axes[0]], dims[axes[1]], ...
inline Dims pick(const Dims& dims, const Dims& axes) {
  Dims out;
  for (std::int64_t a : axes) out.push_back(at(dims, a));
  return out;
}

inline Dims joined(Dims a, const Dims& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline std::int64_t product(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

/// Returns the order that undoes `order`.
inline Dims inverse_order(const Dims& order) {
  Dims out(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) at(out, order[i]) = static_cast<std::int64_t>(i);
  return out;
}

/// Returns where an axis is after a batch axis came in at `batch`.
inline std::int64_t past(std::int64_t axis, std::int64_t batch) {
  if (axis >= batch) return axis + 1;
  return axis;
}
inline Dims past(Dims axes, std::int64_t batch) {
  for (std::int64_t& a : axes) a = past(a, batch);
  return axes;
}
/// Returns where an axis is after `dropped`, of which it is none, went out.
inline int without(int axis, const Dims& dropped) {
  return axis - static_cast<int>(
                    std::ranges::count_if(dropped, [&](std::int64_t gone) { return gone < axis; }));
}
/// Returns the extents with 1 on some axes: of a reduction that keeps them, of one row along them.
inline Dims kept_dims(Dims dims, const Dims& reduced) {
  for (std::int64_t a : reduced) at(dims, a) = 1;
  return dims;
}
inline Dims shifted(Dims axes, std::int64_t by) {
  for (std::int64_t& a : axes) a += by;
  return axes;
}

}  // namespace postern::internal
