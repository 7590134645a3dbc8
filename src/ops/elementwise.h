// Elementwise helpers that other families build on.
#pragma once
#include "core/primitive.h"

namespace postern::internal {

/// Converts integers and pred to f32; floats and complex stay.
Tensor as_float(const Tensor& x);

/// Lowers it; these are more than one operation of StableHLO's.
void pow_lower(Lowering& out, const Equation& e);
void maximum_lower(Lowering& out, const Equation& e);
void minimum_lower(Lowering& out, const Equation& e);
void sine_lower(Lowering& out, const Equation& e);
void cosine_lower(Lowering& out, const Equation& e);
void square_lower(Lowering& out, const Equation& e);

}  // namespace postern::internal
