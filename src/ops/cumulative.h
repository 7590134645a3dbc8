// Primitives of the cumulative operations, which are what the block `Cumulative` does by default.
#pragma once
#include <string_view>

#include "core/primitive.h"

namespace postern::internal {

/// Returns the primitive of Cumulative::kind.
const Primitive& cumulative_primitive(std::string_view kind);
Tensor bind_cumulative(const Primitive& p, const Tensor& x, std::int64_t axis, bool reverse);
/// Returns the tangent of one that is not linear.
Tensor cumulative_tangent(const Primitive& p, const Tensor& x, const Tensor& dx, std::int64_t axis,
                          bool reverse);

}  // namespace postern::internal
