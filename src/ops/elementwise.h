// Elementwise helpers that other families build on.
#pragma once
#include "core/primitive.h"

namespace postern::internal {

/// Converts integers and pred to f32; floats and complex stay.
Tensor as_float(const Tensor& x);

/// Binds an elementwise operation: of two operands in their common type, or of one as it is.
Tensor two(const Primitive& p, const Operand& x, const Operand& y, ParamsPtr params = nullptr);
Tensor single(const Primitive& p, const Operand& x);

/// Lowers it; these are more than one operation of StableHLO's.
void pow_lower(Lowering& out, const Equation& e);
void maximum_lower(Lowering& out, const Equation& e);
void minimum_lower(Lowering& out, const Equation& e);
void sine_lower(Lowering& out, const Equation& e);
void cosine_lower(Lowering& out, const Equation& e);
void square_lower(Lowering& out, const Equation& e);

}  // namespace postern::internal
