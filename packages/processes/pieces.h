// Arrays in pieces along an axis.
#pragma once
#include <postern/type.h>

#include <cstddef>

#include "spi.h"

namespace postern::internal::clusters {

/// An array as rows of `inner` bytes along one axis, `outer` times.
struct Along {
  std::size_t outer = 1, extent = 0, inner;
  Along(const Type& type, std::int64_t axis);
};

/// Cuts `whole` into n pieces along an axis, one after another.
void cut(const Type& whole, std::int64_t axis, std::size_t n, const std::byte* x,
         std::byte* pieces);
/// Joins the pieces again.
void join(const Type& whole, std::int64_t axis, std::size_t n, const std::byte* pieces,
          std::byte* y);

}  // namespace postern::internal::clusters
