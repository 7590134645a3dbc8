// Comparing within a tolerance, and keeping within bounds. Every function throws TypeError for
// operands that do not fit: of dtypes that it does not take, or of shapes that do not broadcast.
#pragma once
#include <postern/detail/api.h>
#include <postern/ops.h>

namespace postern {

/// Clips: numbers below `low` become `low`, those above `high` `high`: of the promoted dtype and
/// the broadcast shape of all three, of any dtype as `maximum` is. NaN wins.
[[nodiscard]] POSTERN_API Tensor clip(const Operand& x, const Operand& low, const Operand& high);
/// Returns pred: |x - y| <= absolute + relative |y|, elementwise (of the broadcast shape) and for
/// all (a scalar). Of any dtype. Infinities are close to themselves only, NaN to NaN where
/// `equal_nan`.
[[nodiscard]] POSTERN_API Tensor isclose(const Operand& x, const Operand& y, double relative = 1e-5,
                                         double absolute = 1e-8, bool equal_nan = false);
[[nodiscard]] POSTERN_API Tensor allclose(const Operand& x, const Operand& y,
                                          double relative = 1e-5, double absolute = 1e-8,
                                          bool equal_nan = false);

}  // namespace postern
