// Reductions with fixed reducers: sum, prod, max, min, and, or; mean from these.
#include "ops/reduce.h"

#include <limits>

#include "core/text.h"
#include "ops/axes.h"
#include "ops/composed.h"
#include "ops/elements.h"
#include "ops/elementwise.h"
#include "ops/family.h"
#include "ops/shape.h"

namespace postern::internal {

Number zero_of(DType) { return integer_number(0); }
Number one_of(DType) { return integer_number(1); }
Number ones_of(DType dtype) {
  if (dtype == DType::pred) return one_of(dtype);
  if (!is_unsigned(dtype)) dtype = DType::u64;
  return highest_of(dtype);
}

constexpr double infinity = std::numeric_limits<double>::infinity();

Number lowest_of(DType dtype) {
  if (is_float(dtype)) return {.real = -infinity};
  if (!is_signed(dtype)) return zero_of(dtype);
  return integer_number(std::numeric_limits<std::int64_t>::min() >> (64 - bit_width(dtype)));
}

Number highest_of(DType dtype) {
  if (is_float(dtype)) return {.real = infinity};
  if (dtype == DType::pred) return one_of(dtype);
  const int unused = 64 - bit_width(dtype);
  if (is_signed(dtype)) return integer_number(std::numeric_limits<std::int64_t>::max() >> unused);
  return natural_number(std::numeric_limits<std::uint64_t>::max() >> unused);
}

std::string padding_text(const Dims& low, const Dims& high) {
  Separator comma;
  std::string pairs;
  for (std::size_t i = 0; i < low.size(); ++i)
    pairs += fmt::format("{}[{}, {}]", comma(), low[i], high[i]);
  return fmt::format("dense<[{}]> : tensor<{}x2xi64>", pairs, low.size());
}

void reduce_window_lower(Lowering& out, const Equation& e, const Reducer& reducer,
                         std::string_view attributes) {
  const Type& x = out.operand_type(e, 0);
  const Elements elements(out, {x.dtype, {}});
  const std::string text = Lowering::type(elements.type());
  const Ssa start = elements.number(reducer.neutral(x.dtype)), result = out.fresh();
  out.write("    %{} = \"stablehlo.reduce_window\"(%{}, %{}) (", result.id, out.operand(e, 0).id,
            start.id);
  out.region({text, text}, [&](std::span<const Ssa> a) -> std::vector<Lowering::Typed> {
    return {{elements.two(reducer.hlo, a[0], a[1]), text}};
  });
  out.write(") {{{}}} : ({}, {}) -> {}\n", attributes, Lowering::type(x), text,
            Lowering::type(out.result_type(e)));
  out.define(e, 0, result);
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

namespace {

DType bits_dtype(DType dtype) {
  switch (byte_width(dtype)) {
    case 2: return DType::s16;
    case 4: return DType::s32;
    default: return DType::s64;
  }
}

/// Returns the number that none of the dtype is beyond, upwards or downwards.
Number last_of(DType dtype, bool upwards) {
  if (upwards) return highest_of(dtype);
  return lowest_of(dtype);
}

/// Makes keys, integers of the same order, of the bits of floats, or bits of keys: all bits but the
/// sign's are turned over where that is set.
Ssa turned(Lowering& out, Ssa x, const Type& bits) {
  const Elements to(out, bits);
  const Ssa sign_bit = to.number(bit_width(bits.dtype) - 1),
            all_but_sign = to.number(highest_of(bits.dtype));
  const Ssa repeated_sign = to.two("shift_right_arithmetic", x, sign_bit);
  return to.two("xor", x, to.two("and", repeated_sign, all_but_sign));
}

/// Floats of less than 16 bits are compared in f32.
Type compared(const Type& floats) { return {working_dtype({}, floats.dtype), floats.dims}; }

}  // namespace

Type key_type(const Type& floats) { return {bits_dtype(compared(floats).dtype), floats.dims}; }

Ssa keys_of(Lowering& out, Ssa x, const Type& type, bool largest) {
  const Type wide = compared(type), keys = key_type(type);
  const Elements of_keys(out, keys);
  x = converted(out, x, type, wide);
  const Ssa nan = Elements(out, wide).is_nan(x);
  const Ssa last = of_keys.number(last_of(keys.dtype, largest));
  const Ssa of_numbers = turned(out, out.op("bitcast_convert", {x}, {&wide}, keys), keys);
  return of_keys.select(nan, last, of_numbers);
}

Ssa floats_of(Lowering& out, Ssa keys, const Type& type) {
  const Type bits = key_type(type), wide = compared(type);
  const Ssa x = out.op("bitcast_convert", {turned(out, keys, bits)}, {&bits}, wide);
  return converted(out, x, wide, type);
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
    check(a >= 0 && a < x.rank(),  // reduce_c4
          "reduce: axis {} is not one of {}", a, to_string(x));
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
  const Ssa start = out.constant(start_text, scalar), reduced = out.fresh();
  out.write(
      "    %{} = stablehlo.reduce(%{} init: %{}) applies stablehlo.{} across dimensions = [{}] : "
      "({}, {}) -> {}\n",
      reduced.id, x.id, start.id, reducer.hlo, fmt::join(axes, ", "), Lowering::type(type),
      Lowering::type(scalar), Lowering::type(result));
  return reduced;
}

template <const Reducer& reducer>
void reduce_lower(Lowering& out, const Equation& e) {
  const Type &x = out.operand_type(e, 0), &result = out.result_type(e);
  const DType work = working_dtype(reducer, x.dtype);
  const Type wide{work, x.dims}, wide_result{work, result.dims};
  Ssa from = converted(out, out.operand(e, 0), x, wide);
  // XLA multiplies instead of adding what is broadcast: nan where complex numbers are infinite.
  if (is_complex(work)) from = out.op("optimization_barrier", {from}, {&wide}, wide);
  const Ssa reduced = emit_reduce(out, reducer, from, wide, as<ReduceParams>(*e.params).axes,
                                  wide_result, literal_text(reducer.neutral(work), work));
  out.define(e, 0, converted(out, reduced, wide_result, result));
}

/// Returns the text of the key, as `turned` makes it, of the infinity that every number beats: -inf
/// where the largest is asked for.
std::string first_key(DType dtype, bool largest) {
  const Number infinite = last_of(dtype, !largest);
  std::int64_t bits = 0;
  write_number(infinite, dtype, &bits);  // into the low bytes
  const int unused = 64 - bit_width(dtype);
  bits = bits << unused >> unused;  // repeats the sign in the others
  if (largest) bits ^= std::numeric_limits<std::int64_t>::max() >> unused;
  return std::to_string(bits);
}

/// Reduces the keys of floats in place of the floats, of which XLA:CPU either loses NaN or takes
/// one by one; integers it reduces by vectors.
template <const Reducer& reducer, bool largest>
void choice_lower(Lowering& out, const Equation& e) {
  const Type &x = out.operand_type(e, 0), &result = out.result_type(e);
  if (!is_float(x.dtype) || !out.compiler().max_loses_nan) return reduce_lower<reducer>(out, e);
  const Type keys = key_type(x), result_keys = key_type(result);
  const Ssa key = emit_reduce(out, reducer, keys_of(out, out.operand(e, 0), x, largest), keys,
                              as<ReduceParams>(*e.params).axes, result_keys,
                              first_key(working_dtype(reducer, x.dtype), largest));
  out.define(e, 0, floats_of(out, key, result));
}

Tensor bind_reduce(const Primitive& p, const Tensor& x, const Dims& axes) {
  if (axes.empty()) return x;
  return bind1(p, make_params(ReduceParams{axes}), {x});
}

/// Stretches a reduction's result over the axes that it lost.
Tensor restored(const Tensor& y, const Dims& dims, const Dims& axes) {
  return broadcast_in_dim(y, dims, other_axes(std::ssize(dims), axes));
}

// --- derivatives ---

Tensors sum_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan types) {
  return {restored(ct[0], types[0].dims, op.as<ReduceParams>().axes)};
}

/// Brings a tangent of y to y's dtype.
Tensor narrowed(const Tensor& tangent, const Tensor& y) {
  return convert_to(tangent, y.dtype(), y.type().weak);
}

// The elements that equal the result share the derivative. None equals nan: then it is nan.
Jvp choice_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const Dims& axes = op.as<ReduceParams>().axes;
  const Tensor y = bind1(op.primitive, op.params, x);
  const auto wide = [&](const Tensor& t) { return restored(t, x[0].dims(), axes); };
  const Tensor chosen = equal(x[0], wide(y));
  const DType work = sum_dtype(y.dtype());  // f16 does not count far
  const Tensor count = sum(convert_to(chosen, work), {.axes = axes});
  const Tensor zero = zeros_like(count);
  const Tensor share_of_others =
      where(equal(count, zero), zero + std::numeric_limits<double>::quiet_NaN(), zero);
  const Tensor shares = where(chosen, wide(1 / count), wide(share_of_others));
  return {{y}, {narrowed(sum(convert_to(dx[0], work) * shares, {.axes = axes}), y)}};
}

/// Multiplies, along one flat axis in front, the first half by the second, each with its tangent by
/// the product rule, until one element is left; an odd one waits at the end. So nothing is divided
/// by factors, which may be 0. f16 goes in f32, as in the product itself.
Jvp prod_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const Tensor y = bind1(op.primitive, op.params, x);
  if (x[0].size() == 0) return {{y}, {Tensor()}};
  const Dims& axes = op.as<ReduceParams>().axes;
  const Dims kept = other_axes(x[0].rank(), axes), order = joined(axes, kept);
  const Dims flat = joined({product(pick(x[0].dims(), axes))}, y.dims());
  const auto in_front = [&](const Tensor& z) {
    return reshape(transpose(convert_to(z, sum_dtype(y.dtype())), order), flat);
  };
  Tensor factors = in_front(x[0]), tangents = in_front(dx[0]);
  while (factors.dims()[0] > 1) {
    const std::int64_t n = factors.dims()[0], half = n / 2;
    const auto first = [&](const Tensor& z) { return slice_axis(z, 0, 0, half); };
    const auto second = [&](const Tensor& z) { return slice_axis(z, 0, half, 2 * half); };
    Tensor products = first(factors) * second(factors);
    Tensor moves = first(tangents) * second(factors) + first(factors) * second(tangents);
    if (n % 2) {
      products = concatenate({products, slice_axis(factors, 0, n - 1, n)}, 0);
      moves = concatenate({moves, slice_axis(tangents, 0, n - 1, n)}, 0);
    }
    factors = products;
    tangents = moves;
  }
  return {{y}, {narrowed(reshape(tangents, y.dims()), y)}};
}

// --- the family ---

constexpr Reducer conjunction{"and", ones_of}, disjunction{"or", zero_of};

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
constexpr Primitive reduce_max_p = choice<largest_wins, true>("reduce_max");
constexpr Primitive reduce_min_p = choice<smallest_wins, false>("reduce_min");
constexpr Primitive reduce_and_p = bitwise<conjunction>("reduce_and");
constexpr Primitive reduce_or_p = bitwise<disjunction>("reduce_or");

constexpr const Primitive* reduce_family[] = {&reduce_sum_p, &reduce_prod_p, &reduce_max_p,
                                              &reduce_min_p, &reduce_and_p,  &reduce_or_p};
static_assert(complete(reduce_family));

Tensor reduced(const char* op, const Primitive& p, const Tensor& x, const ReduceOptions& options) {
  const Dims axes = axes_or_all(op, options.axes, x.rank());
  // In bytes: XLA:CPU gets maxima of 2 bits wrong where it fuses them.
  const Tensor y = convert_to(bind_reduce(p, unpacked(x), axes), x.dtype());
  if (!options.keep_dims) return y;
  return reshape(y, kept_dims(x.dims(), axes));
}

/// Reduces what `takes` is true of, which is called `what`. Others are refused in the name of the
/// user's function, not of the primitive.
Tensor reduced_if(DTypeTest takes, const char* what, const char* op, const Primitive& p,
                  const Operand& x, const ReduceOptions& options) {
  PlaceScope at(x.place());
  check(takes(x.tensor().dtype()), "{}: {} are needed, got {}", op, what,
        to_string(x.tensor().type()));
  return reduced(op, p, x.tensor(), options);
}

}  // namespace

Tensor internal::counted(const Tensor& x) {
  if (x.dtype() == DType::pred) return convert_to(x, DType::s32);
  return x;
}

Tensor sum(const Operand& x, const ReduceOptions& options) {
  PlaceScope at(x.place());
  return reduced("sum", reduce_sum_p, counted(x.tensor()), options);
}

Tensor prod(const Operand& x, const ReduceOptions& options) {
  PlaceScope at(x.place());
  return reduced("prod", reduce_prod_p, counted(x.tensor()), options);
}

Tensor max(const Operand& x, const ReduceOptions& options) {
  return reduced_if(ordered, "numbers that have an order", "max", reduce_max_p, x, options);
}

Tensor min(const Operand& x, const ReduceOptions& options) {
  return reduced_if(ordered, "numbers that have an order", "min", reduce_min_p, x, options);
}

Tensor mean(const Operand& operand, const ReduceOptions& options) {
  PlaceScope scope(operand.place());
  const Tensor x = as_float(operand.tensor());
  const DType work = sum_dtype(x.dtype());
  const std::int64_t count = product(pick(x.dims(), axes_or_all("mean", options.axes, x.rank())));
  // Divided before it is narrowed: a short float cannot hold the sum of many.
  const Tensor total = reduced("mean", reduce_sum_p, convert_to(x, work), options);
  return convert_to(total / static_cast<double>(count), x.dtype());
}

Tensor all(const Operand& x, const ReduceOptions& options) {
  return reduced_if(integral, "pred or integers", "all", reduce_and_p, x, options);
}

Tensor any(const Operand& x, const ReduceOptions& options) {
  return reduced_if(integral, "pred or integers", "any", reduce_or_p, x, options);
}

}  // namespace postern
