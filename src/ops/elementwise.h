// Elementwise helpers that other families build on.
#pragma once
#include "core/primitive.h"

namespace postern {

/// Integers and pred as f32, floats and complex unchanged.
Tensor as_float(const Tensor& x);

}  // namespace postern
