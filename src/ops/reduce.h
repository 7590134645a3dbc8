// What reductions share with the cumulative operations and with user-written reducers.
#pragma once
#include "lower/lowering.h"
#include "trace/literal.h"

namespace postern::internal {

/// Returns the value that leaves others unchanged; of every dtype that the operation takes.
Number zero_of(DType dtype);
Number one_of(DType dtype);
Number lowest_of(DType dtype);  // -infinity for floats
Number highest_of(DType dtype);
Number ones_of(DType dtype);  // all bits set

/// A binary StableHLO operation with its neutral element. `wide`: f16, bf16 and smaller floats are
/// accumulated in f32, as in jax.numpy.
struct Reducer {
  const char* hlo;
  Number (*neutral)(DType);
  bool wide = false;
};
inline constexpr Reducer adding{"add", zero_of, true}, multiplying{"multiply", one_of, true},
    largest_wins{"maximum", lowest_of}, smallest_wins{"minimum", highest_of};
/// Converts pred to integers: it counts as 0 and 1.
Tensor counted(const Tensor& x);
/// Sums of floats of less than 4 bytes are kept in f32; all other dtypes are as they are.
DType sum_dtype(DType dtype);
/// Returns the dtype that `reducer` works in for elements of `dtype`.
DType working_dtype(const Reducer& reducer, DType dtype);

/// Returns the attributes of a StableHLO compare. Without the type, XLA folds comparisons of
/// constants as if they were unsigned.
std::string comparison_text(const char* direction, DType dtype);

// Keys are integers of the same order as floats, reduced in their place where a compiler's maxima
// lose NaN (CompilerTraits): NaN is the last of them, so that it wins.
Type key_type(const Type& floats);
/// Computes the keys of `x`, which is of `type`. `largest`: NaN is the last one upwards.
Ssa keys_of(Lowering& out, Ssa x, const Type& type, bool largest);
/// Computes the floats, of `type`, that keys are of.
Ssa floats_of(Lowering& out, Ssa keys, const Type& type);

/// Writes a reduction over windows of the equation's operand, with these attributes.
void reduce_window_lower(Lowering& out, const Equation& e, const Reducer& reducer,
                         std::string_view attributes);
/// Returns the padding of windows, in front and behind on each axis, as an attribute.
std::string padding_text(const Dims& low, const Dims& high);

/// Throws a TypeError that names the site when `program`, the function of `op`, calls back: XLA has
/// no order for it there.
void refuse_effects(const char* op, const Program& program);

}  // namespace postern::internal
