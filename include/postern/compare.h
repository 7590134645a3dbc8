// Comparing within a tolerance, and keeping within bounds.
#pragma once
#include <postern/detail/api.h>
#include <postern/ops.h>

namespace postern {

/// Numbers below `low` become `low`, those above `high` `high`.
POSTERN_API Tensor clip(const Operand& x, const Operand& low, const Operand& high);
/// |x - y| <= absolute + relative |y|, elementwise and for all.
POSTERN_API Tensor isclose(const Operand& x, const Operand& y, double relative = 1e-5,
                           double absolute = 1e-8, bool equal_nan = false);
POSTERN_API Tensor allclose(const Operand& x, const Operand& y, double relative = 1e-5,
                            double absolute = 1e-8, bool equal_nan = false);

}  // namespace postern
