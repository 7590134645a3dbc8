// Reductions with fixed reducers: sum, prod, max, min, and, or; mean from these.
#include "ops/reduce.h"

#include <bit>
#include <limits>

#include "ops/axes.h"
#include "ops/composed.h"
#include "ops/elementwise.h"
#include "ops/family.h"
#include "ops/shape.h"

namespace postern::internal {

Number zero_of(DType) { return {Number::Kind::integer, 0, 0, 0}; }
Number one_of(DType) { return {Number::Kind::integer, 1, 1, 0}; }
Number ones_of(DType dtype) {
  if (dtype == DType::pred) return one_of(dtype);
  if (!is_unsigned(dtype)) dtype = DType::u64;
  return highest_of(dtype);
}

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

Number lowest_of(DType dtype) {
  if (is_float(dtype)) return {Number::Kind::real, 0, -infinity, 0};
  if (!is_signed(dtype)) return zero_of(dtype);
  const std::int64_t least = std::numeric_limits<std::int64_t>::min() >> (64 - bit_width(dtype));
  return {Number::Kind::integer, least, static_cast<double>(least), 0};
}

Number highest_of(DType dtype) {
  if (is_float(dtype)) return {Number::Kind::real, 0, infinity, 0};
  if (dtype == DType::pred) return one_of(dtype);
  if (is_signed(dtype)) {
    const std::int64_t most = std::numeric_limits<std::int64_t>::max() >> (64 - bit_width(dtype));
    return {Number::Kind::integer, most, static_cast<double>(most), 0};
  }
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() >> (64 - bit_width(dtype));
  return {Number::Kind::natural, std::bit_cast<std::int64_t>(most), static_cast<double>(most), 0};
}

std::string comparison_text(const char* direction, DType dtype) {
  const char* type = "UNSIGNED";
  if (is_signed(dtype)) type = "SIGNED";
  if (is_differentiable(dtype)) type = "FLOAT";
  return fmt::format(
      "comparison_direction = #stablehlo<comparison_direction {}>, compare_type = "
      "#stablehlo<comparison_type {}>",
      direction, type);
}

DType sum_dtype(DType dtype) {
  if (is_float(dtype) && byte_width(dtype) < 4) return DType::f32;
  return dtype;
}
DType working_dtype(const Reducer& reducer, DType dtype) {
  if (reducer.wide || !is_number(dtype)) return sum_dtype(dtype);
  return dtype;
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

namespace {

struct ReduceParams {
  Dims axes;  // sorted
};

template <DTypeTest test>
Types reduce_type(const Params* params, TypeSpan operands) {
  const Dims& axes = as<ReduceParams>(*params).axes;
  const Type& x = operands[0];
  require_dtype(test(x.dtype), x.dtype);
  for (std::int64_t a : axes)
    check(a >= 0 && a < x.rank(), "reduce: axis {} is not one of {}", a,
          to_string(x));  // reduce_c4
  return {Type{x.dtype, pick(x.dims, other_axes(x.rank(), axes)), x.weak}};
}

Batched reduce_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t,
                     const Tensor&) {
  const Dims moved = past(op.as<ReduceParams>().axes, axes[0]);
  return {{bind1(op.primitive, make_params(ReduceParams{moved}), x)}, {without(axes[0], moved)}};
}

/// Reduces `x`, of `type`, to `result` over `axes`.
Ssa emit_reduce(Lowering& out, const Reducer& reducer, Ssa x, const Type& type, const Dims& axes,
                const Type& result, std::string_view start_text) {
  const Type scalar{type.dtype, {}};
  const Ssa start = out.constant(start_text, scalar), r = out.fresh();
  out.write(
      "    %{} = stablehlo.reduce(%{} init: %{}) applies stablehlo.{} across dimensions = [{}] : "
      "({}, {}) -> {}\n",
      r.id, x.id, start.id, reducer.hlo, fmt::join(axes, ", "), Lowering::type(type),
      Lowering::type(scalar), Lowering::type(result));
  return r;
}

template <const Reducer& reducer>
void reduce_lower(Lowering& out, const Equation& e) {
  const Type &x = out.operand_type(e, 0), &result = out.result_type(e);
  const DType work = working_dtype(reducer, x.dtype);
  const Type wide{work, x.dims}, wide_result{work, result.dims};
  Ssa from = converted(out, out.operand(e, 0), x, wide);
  // XLA multiplies instead of adding what is broadcast: nan where complex numbers are infinite.
  if (is_complex(work)) from = out.op("optimization_barrier", {from}, {&wide}, wide);
  const Ssa r = emit_reduce(out, reducer, from, wide, as<ReduceParams>(*e.params).axes, wide_result,
                            literal_text(reducer.neutral(work), work));
  out.define(e, 0, converted(out, r, wide_result, result));
}

DType bits_dtype(DType dtype) {
  switch (byte_width(dtype)) {
    case 2: return DType::s16;
    case 4: return DType::s32;
    default: return DType::s64;
  }
}

/// The number that none of the dtype is beyond, upwards or downwards.
Number last_of(DType dtype, bool upwards) {
  if (upwards) return highest_of(dtype);
  return lowest_of(dtype);
}

/// The key of the infinity that every number beats.
std::string first_key(DType dtype, bool largest) {
  const Number infinite = last_of(dtype, !largest);
  std::int64_t bits = 0;  // little-endian: sign extension by hand
  write_number(infinite, dtype, &bits);
  const int unused = 64 - bit_width(dtype);
  bits = bits << unused >> unused;
  if (largest) bits ^= std::numeric_limits<std::int64_t>::max() >> unused;
  return std::to_string(bits);
}

/// Bits of floats as integers of the same order, or back: those of negative numbers but the sign
/// are turned over.
Ssa turned(Lowering& out, Ssa x, const Type& bits) {
  const Ssa width = out.constant(std::to_string(bit_width(bits.dtype) - 1), bits),
            low = out.constant(literal_text(highest_of(bits.dtype), bits.dtype), bits);
  const auto op = [&](const char* hlo, Ssa a, Ssa b) {
    return out.op(hlo, {a, b}, {&bits, &bits}, bits);
  };
  return op("xor", x, op("and", op("shift_right_arithmetic", x, width), low));
}

// XLA:CPU either lets NaN slip in the maxima of floats or computes them one by one. Integers it
// does by vectors: NaN becomes the last of them.
template <const Reducer& reducer, bool largest>
void choice_lower(Lowering& out, const Equation& e) {
  const Type &x = out.operand_type(e, 0), &result = out.result_type(e);
  if (!is_float(x.dtype) || !out.compiler().max_loses_nan) return reduce_lower<reducer>(out, e);
  const DType work = working_dtype(reducer, x.dtype), dtype = bits_dtype(work);
  const Type wide{work, x.dims}, bits{dtype, x.dims}, pred{DType::pred, x.dims},
      result_bits{dtype, result.dims}, wide_result{work, result.dims};
  const Ssa from = converted(out, out.operand(e, 0), x, wide);
  const Ssa nan =
      out.op("compare", {from, from}, {&wide, &wide}, pred, comparison_text("NE", work));
  const Ssa last = out.constant(literal_text(last_of(dtype, largest), dtype), bits);
  const Ssa keys = turned(out, out.op("bitcast_convert", {from}, {&wide}, bits), bits);
  const Ssa chosen = out.op("select", {nan, last, keys}, {&pred, &bits, &bits}, bits);
  const Ssa r = emit_reduce(out, reducer, chosen, bits, as<ReduceParams>(*e.params).axes,
                            result_bits, first_key(work, largest));
  const Ssa back =
      out.op("bitcast_convert", {turned(out, r, result_bits)}, {&result_bits}, wide_result);
  out.define(e, 0, converted(out, back, wide_result, result));
}

Tensor bind_reduce(const Primitive& p, const Tensor& x, const Dims& axes) {
  if (axes.empty()) return x;
  return bind1(p, make_params(ReduceParams{axes}), {x});
}

/// A reduction's result stretched over the axes that it lost.
Tensor restored(const Tensor& y, const Dims& dims, const Dims& axes) {
  return broadcast_in_dim(y, dims, other_axes(static_cast<std::int64_t>(dims.size()), axes));
}

// --- derivatives ---

Tensors sum_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan types) {
  return {restored(ct[0], types[0].dims, op.as<ReduceParams>().axes)};
}

/// A tangent of y in y's dtype.
Tensor narrowed(const Tensor& tangent, const Tensor& y) {
  return convert_to(tangent, y.dtype(), y.type().weak);
}

// Equal elements share the derivative. No element equals nan: then all of them are nan.
Jvp choice_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const Dims& axes = op.as<ReduceParams>().axes;
  const Tensor y = bind1(op.primitive, op.params, x);
  if (!dx[0].has_value()) return {{y}, {Tensor()}};
  const auto wide = [&](const Tensor& t) { return restored(t, x[0].dims(), axes); };
  const Tensor chosen = equal(x[0], wide(y));
  const DType work = sum_dtype(y.dtype());  // f16 does not count far
  const Tensor count = sum(convert_to(chosen, work), {.axes = axes});
  const Tensor zero = zeros_like(count);
  const Tensor other =
      where(equal(count, zero), zero + std::numeric_limits<double>::quiet_NaN(), zero);
  const Tensor shares = where(chosen, wide(1 / count), wide(other));
  return {{y}, {narrowed(sum(convert_to(dx[0], work) * shares, {.axes = axes}), y)}};
}

// Products of halves with their tangents, without a division that zeros would spoil; f16 in f32, as
// the product itself.
Jvp prod_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const Tensor y = bind1(op.primitive, op.params, x);
  if (!dx[0].has_value() || x[0].size() == 0) return {{y}, {Tensor()}};
  const Dims& axes = op.as<ReduceParams>().axes;
  const Dims kept = other_axes(x[0].rank(), axes), order = joined(axes, kept);
  const Dims flat = joined({product(pick(x[0].dims(), axes))}, y.dims());
  const auto in_front = [&](const Tensor& z) {
    return reshape(transpose(convert_to(z, sum_dtype(y.dtype())), order), flat);
  };
  Tensor p = in_front(x[0]), t = in_front(dx[0]);
  while (p.dims()[0] > 1) {
    const std::int64_t n = p.dims()[0], half = n / 2;
    const auto a = [&](const Tensor& z) { return slice_axis(z, 0, 0, half); };
    const auto b = [&](const Tensor& z) { return slice_axis(z, 0, half, 2 * half); };
    Tensor products = a(p) * b(p), tangents = a(t) * b(p) + a(p) * b(t);
    if (n % 2) {
      products = concatenate({products, slice_axis(p, 0, n - 1, n)}, 0);
      tangents = concatenate({tangents, slice_axis(t, 0, n - 1, n)}, 0);
    }
    p = products;
    t = tangents;
  }
  return {{y}, {narrowed(reshape(t, y.dims()), y)}};
}

// --- the family ---

constexpr Reducer adding{"add", zero_of, true}, multiplying{"multiply", one_of, true},
    largest{"maximum", lowest_of}, smallest{"minimum", highest_of}, conjunction{"and", ones_of},
    disjunction{"or", zero_of};

constexpr Primitive reduce_sum_p =
    keeping_axes(linear("reduce_sum", nullptr, reduce_type<numeric>, sum_transpose, reduce_batch,
                        reduce_lower<adding>));
constexpr Primitive reduce_prod_p{.name = "reduce_prod",
                                  .type = reduce_type<numeric>,
                                  .jvp = prod_jvp,
                                  .keeps_axes = true,
                                  .batch = reduce_batch,
                                  .lower = reduce_lower<multiplying>};

/// Picks one of the elements.
template <const Reducer& reducer, bool is_largest>
constexpr Primitive choice(const char* name) {
  return {.name = name,
          .type = reduce_type<ordered>,
          .jvp = choice_jvp,
          .keeps_axes = true,
          .batch = reduce_batch,
          .lower = choice_lower<reducer, is_largest>};
}
template <const Reducer& reducer>
constexpr Primitive bitwise(const char* name) {
  return {.name = name,
          .type = reduce_type<integral>,
          .no_derivative = true,
          .keeps_axes = true,
          .batch = reduce_batch,
          .lower = reduce_lower<reducer>};
}
constexpr Primitive reduce_max_p = choice<largest, true>("reduce_max");
constexpr Primitive reduce_min_p = choice<smallest, false>("reduce_min");
constexpr Primitive reduce_and_p = bitwise<conjunction>("reduce_and");
constexpr Primitive reduce_or_p = bitwise<disjunction>("reduce_or");

constexpr const Primitive* reduce_family[] = {&reduce_sum_p, &reduce_prod_p, &reduce_max_p,
                                              &reduce_min_p, &reduce_and_p,  &reduce_or_p};
static_assert(complete(reduce_family));

Dims reduced_axes(const char* op, const Tensor& x, const ReduceOptions& options) {
  return axes_or_all(op, options.axes, x.rank());
}

Tensor reduced(const char* op, const Primitive& p, const Tensor& x, const ReduceOptions& options) {
  const Dims axes = reduced_axes(op, x, options);
  // In bytes: XLA:CPU gets maxima of 2 bits wrong where it fuses them.
  const Tensor y = convert_to(bind_reduce(p, in_bytes(x), axes), x.dtype());
  if (!options.keep_dims) return y;
  return reshape(y, kept_dims(x.dims(), axes));
}

/// pred counts as 0 and 1.
Tensor counted(const Tensor& x) {
  if (x.dtype() == DType::pred) return convert_to(x, DType::s32);
  return x;
}

/// In the name of the user's function, not of the primitive.
void require(const char* op, const char* what, bool ok, const Operand& x) {
  check(ok, "{}: {} are needed, got {}", op, what, to_string(x.tensor().type()));
}

}  // namespace

Tensor sum(const Operand& x, const ReduceOptions& options) {
  PlaceScope at(x.place());
  return reduced("sum", reduce_sum_p, counted(x.tensor()), options);
}

Tensor prod(const Operand& x, const ReduceOptions& options) {
  PlaceScope at(x.place());
  return reduced("prod", reduce_prod_p, counted(x.tensor()), options);
}

Tensor max(const Operand& x, const ReduceOptions& options) {
  PlaceScope at(x.place());
  require("max", "numbers that have an order", ordered(x.tensor().dtype()), x);
  return reduced("max", reduce_max_p, x.tensor(), options);
}

Tensor min(const Operand& x, const ReduceOptions& options) {
  PlaceScope at(x.place());
  require("min", "numbers that have an order", ordered(x.tensor().dtype()), x);
  return reduced("min", reduce_min_p, x.tensor(), options);
}

Tensor mean(const Operand& operand, const ReduceOptions& options) {
  PlaceScope scope(operand.place());
  const Tensor x = as_float(operand.tensor());
  const DType work = sum_dtype(x.dtype());
  const std::int64_t count = product(pick(x.dims(), reduced_axes("mean", x, options)));
  return convert_to(
      reduced("mean", reduce_sum_p, convert_to(x, work), options) / static_cast<double>(count),
      x.dtype());
}

Tensor all(const Operand& x, const ReduceOptions& options) {
  PlaceScope at(x.place());
  require("all", "pred or integers", integral(x.tensor().dtype()), x);
  return reduced("all", reduce_and_p, x.tensor(), options);
}

Tensor any(const Operand& x, const ReduceOptions& options) {
  PlaceScope at(x.place());
  require("any", "pred or integers", integral(x.tensor().dtype()), x);
  return reduced("any", reduce_or_p, x.tensor(), options);
}

}  // namespace postern
