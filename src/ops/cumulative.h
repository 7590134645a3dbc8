// Primitives of the cumulative operations, which are what the block `Cumulative` does by default.
#pragma once
#include <string_view>

#include "core/primitive.h"

namespace postern::internal {

/// Of Cumulative::kind.
const Primitive& cumulative_primitive(std::string_view kind);
Tensor bind_cumulative(const Primitive& p, const Tensor& x, std::int64_t axis, bool reverse);
/// Of one that is not linear.
Tensor cumulative_tangent(const Primitive& p, const Tensor& x, const Tensor& dx, std::int64_t axis,
                          bool reverse);
/// Dtypes of which one can be larger than another.
bool ordered(DType dtype);

}  // namespace postern::internal
