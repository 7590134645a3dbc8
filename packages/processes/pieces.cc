// Cutting arrays and joining them, both ways by one walk.
#include "pieces.h"

#include <cstring>

namespace postern::internal::clusters {

Along::Along(const Type& type, std::int64_t axis) : inner(byte_width(type.dtype)) {
  for (std::int64_t a = 0; a < type.rank(); ++a) {
    const std::size_t n = size_of(type.dims[size_of(a)]);
    if (a < axis) outer *= n;
    if (a == axis) extent = n;
    if (a > axis) inner *= n;
  }
}

namespace {

/// Each run of bytes that lies together in both: `act` is told where in the whole, where in the
/// pieces, and how long.
template <class Act>
void each_run(const Type& whole, std::int64_t axis, std::size_t n, const Act& act) {
  const Along w(whole, axis);
  const std::size_t run = w.extent / n * w.inner;
  std::size_t at = 0;
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t o = 0; o < w.outer; ++o, at += run)
      if (run > 0) act((o * n + k) * run, at, run);
}

}  // namespace

void cut(const Type& whole, std::int64_t axis, std::size_t n, const std::byte* x,
         std::byte* pieces) {
  each_run(whole, axis, n, [&](std::size_t in_whole, std::size_t in_pieces, std::size_t run) {
    std::memcpy(pieces + in_pieces, x + in_whole, run);
  });
}

void join(const Type& whole, std::int64_t axis, std::size_t n, const std::byte* pieces,
          std::byte* y) {
  each_run(whole, axis, n, [&](std::size_t in_whole, std::size_t in_pieces, std::size_t run) {
    std::memcpy(y + in_whole, pieces + in_pieces, run);
  });
}

}  // namespace postern::internal::clusters
