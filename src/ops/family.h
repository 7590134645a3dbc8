// Families of primitives: an ordinary operation is one line, its rules come from here.
#pragma once
#include <postern/ops.h>

#include "core/check.h"
#include "core/primitive.h"
#include "lower/lowering.h"
#include "trace/literal.h"
#include "trace/trace.h"

#include <concepts>
#include <optional>

namespace postern::internal {

using Jvp = std::pair<Tensors, Tensors>;
using Batched = std::pair<Tensors, std::vector<int>>;

// --- dtypes and shapes ---

/// Promotes by JAX's table (jax.numpy "type promotion semantics"); weak types give way. Throws
/// TypeError when there is no common type.
Type promote(const char* op, const Type& a, const Type& b);
/// Broadcasts two shapes as NumPy does.
Dims broadcast_dims(const char* op, const Dims& a, const Dims& b);
/// Brings `x` to that dtype and shape, by conversion and broadcast where needed; a number becomes a
/// literal of that type at once. Throws TypeError for a weak number that the dtype does not have.
Tensor fit(const Tensor& x, const Type& type);
/// Does the same where that dtype is also what promotion gives: `what` of `op` is refused where it
/// is wider, which would lose some of it.
Tensor fit_within(const char* op, const char* what, const Tensor& x, const Type& type);
/// Promotes operands and broadcasts them against each other.
std::pair<Tensor, Tensor> matched(const char* op, const Tensor& a, const Tensor& b);
/// Counts an axis from the end when negative; it is checked against `rank`.
std::int64_t normal_axis(const char* op, std::int64_t axis, std::int64_t rank);
Dims normal_axes(const char* op, const Dims& axes, std::int64_t rank);  // sorted, no repeats;
/// Returns those, or all where none are named.
Dims axes_or_all(const char* op, const std::optional<Dims>& axes, std::int64_t rank);
/// Returns the complex dtype with parts of that float dtype.
DType complex_dtype(DType part);

// --- tangents and cotangents; an empty Tensor is zero ---

/// Adds or multiplies two, either of which may be empty.
Tensor add_any(const Tensor& a, const Tensor& b);
Tensor product_any(const Tensor& a, const Tensor& b);
/// Computes, in a transpose rule, the operand's cotangent, which a known operand has none of.
template <std::invocable F>
Tensor cotangent_for(const Tensor& operand, F&& cotangent) {
  if (operand.has_value()) return {};
  return cotangent();
}

// --- batching ---

/// Moves the batch axis of `x` to the front; an unmapped one (-1) gets a batch axis of `size` when
/// `force`.
Tensor batch_front(const Tensor& x, int axis, std::int64_t size, bool force = true);
/// Returns whether all operands are mapped over the same of their axes.
bool agree_on_batch_axis(std::span<const int> axes);
/// Returns whether any operand is mapped.
bool any_mapped(std::span<const int> axes);
/// Batches operations for which a batch axis in front, of all operands, is one axis more.
Batched front_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                    const Tensor& mask);
/// Batches operations whose operands have the results' shape: over the axis on which all agree,
/// else over axis 0, to which it moves all batch axes.
Batched elementwise_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                          const Tensor& mask);

// --- type rules ---

Types same_type(const Params*,
                TypeSpan operands);  // all operands of one type, which is the result's
using DTypeTest = bool (*)(DType);
bool numeric(DType dtype);      // integer, float or complex
bool integral(DType dtype);     // pred or integer
bool real_number(DType dtype);  // integer or float
bool ordered(DType dtype);      // pred, integer or float

void require_dtype(bool ok, DType dtype);
/// Does as same_type, and refuses dtypes that fail `test`.
template <DTypeTest test>
Types same_type_if(const Params* params, TypeSpan operands) {
  require_dtype(test(operands[0].dtype), operands[0].dtype);
  return same_type(params, operands);
}

// --- families ---

using Slope = Tensor (*)(const Tensor& x, const Tensor& y);  // dy/dx from x and y = f(x)

template <Slope slope>
Jvp unary_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  Tensor y = bind1(op.primitive, op.params, x);
  return {{y}, {dx[0] * slope(x[0], y)}};
}

/// Makes one, elementwise, with a rule for its derivative, or makes y = f(x) with its slope.
template <Jvp (*jvp)(const Op&, TensorSpan, TensorSpan), DTypeTest test = is_differentiable>
constexpr Primitive with_jvp(const char* name, const char* hlo) {
  return {
      .name = name, .hlo = hlo, .type = same_type_if<test>, .jvp = jvp, .batch = elementwise_batch};
}
template <Slope slope, DTypeTest test = is_differentiable>
constexpr Primitive unary(const char* name, const char* hlo) {
  return with_jvp<unary_jvp<slope>, test>(name, hlo);
}

/// Makes one, elementwise, with a derivative that is zero wherever it exists, or with integer
/// results.
template <DTypeTest test, auto type = same_type_if<test>>
constexpr Primitive flat(const char* name, const char* hlo) {
  return {
      .name = name, .hlo = hlo, .type = type, .no_derivative = true, .batch = elementwise_batch};
}

using Partial = Tensor (*)(const Tensor& x, const Tensor& y, const Tensor& z);  // dz/dx or dz/dy

template <Partial by_x, Partial by_y>
Jvp binary_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  Tensor z = bind1(op.primitive, op.params, x);
  Tensor dz;
  if (dx[0].has_value()) dz = dx[0] * by_x(x[0], x[1], z);
  if (dx[1].has_value()) dz = add_any(dz, dx[1] * by_y(x[0], x[1], z));
  return {{z}, {dz}};
}

/// Makes z = f(x, y), elementwise, with both partial derivatives.
template <Partial by_x, Partial by_y, DTypeTest test = numeric>
constexpr Primitive binary(const char* name, const char* hlo) {
  return with_jvp<binary_jvp<by_x, by_y>, test>(name, hlo);
}

using Transpose = Tensors (*)(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types);
using TypeRule = Types (*)(const Params*, TypeSpan);
using BatchRule = Batched (*)(const Op&, TensorSpan, std::span<const int>, std::int64_t,
                              const Tensor&);
using LowerRule = void (*)(Lowering&, const Equation&);

/// Makes one that is linear in all differentiable operands together.
constexpr Primitive linear(const char* name, const char* hlo, TypeRule type, Transpose transpose,
                           BatchRule batch, LowerRule lower = nullptr) {
  return {.name = name,
          .hlo = hlo,
          .type = type,
          .transpose = transpose,
          .linear = Linear::jointly,
          .batch = batch,
          .lower = lower};
}
/// Makes one that is linear in each differentiable operand alone.
constexpr Primitive multilinear(const char* name, const char* hlo, TypeRule type,
                                Transpose transpose, BatchRule batch, LowerRule lower = nullptr) {
  Primitive p = linear(name, hlo, type, transpose, batch, lower);
  p.linear = Linear::separately;
  return p;
}

/// Returns "array<i64: 0, 1>".
std::string array_text(const Dims& values);

}  // namespace postern::internal
