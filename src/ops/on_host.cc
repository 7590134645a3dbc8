// Moving elements in host memory.
#include "ops/on_host.h"

#include <algorithm>
#include <complex>

namespace postern::internal::on_host {

namespace {

/// Walks `axis` and those behind it; the last one in a loop of its own.
template <class Word>
void walk_axis(const Walk& walk, std::size_t axis, const Word* from, Word* to) {
  const std::size_t rank = walk.dims.size();
  if (rank == 0) return static_cast<void>(*to = *from);
  const std::int64_t count = walk.dims[axis], step = walk.from[axis], to_step = walk.to[axis];
  if (axis + 1 == rank) {
    if (step == 1 && to_step == 1) return static_cast<void>(std::copy_n(from, count, to));
    for (std::int64_t i = 0; i < count; ++i) to[i * to_step] = from[i * step];
    return;
  }
  for (std::int64_t i = 0; i < count; ++i)
    walk_axis(walk, axis + 1, from + i * step, to + i * to_step);
}

}  // namespace

void walk(const Walk& walk, std::size_t width, const void* from, void* to) {
  const auto as = [&]<class Word>(Word) {
    walk_axis(walk, 0, static_cast<const Word*>(from) + walk.first,
              static_cast<Word*>(to) + walk.to_first);
  };
  switch (width) {
    case 1: return as(std::uint8_t());
    case 2: return as(std::uint16_t());
    case 4: return as(std::uint32_t());
    case 8: return as(std::uint64_t());
    default: return as(std::complex<double>());
  }
}

Dims row_major(const Dims& dims) {
  Dims steps(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) steps[i - 1] = steps[i] * dims[i];
  return steps;
}

bool moved(const HostArrays& arrays, const Dims& from, std::int64_t first) {
  const Type& to = arrays.results[0];
  const Walk in_order{.dims = to.dims, .from = from, .to = row_major(to.dims), .first = first};
  walk(in_order, byte_width(to.dtype), arrays.operands[0], arrays.to[0]);
  return true;
}

bool copied(const Params*, const HostArrays& arrays) {
  return moved(arrays, row_major(arrays.results[0].dims));
}

}  // namespace postern::internal::on_host
