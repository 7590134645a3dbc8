// Elementwise operations: arithmetic, functions, comparison, logic, selection, complex numbers.
#include "ops/elementwise.h"

#include <cmath>
#include <numbers>

#include "ops/elementwise_on_host.h"
#include "ops/family.h"
#include "ops/reduce.h"
#include "ops/shape.h"

namespace postern::internal {

namespace {

using T = const Tensor&;
using on_host::Bits, on_host::Choice, on_host::Shift, on_host::Wrapping;

// --- linear ---

Tensors add_transpose(const Op&, TensorSpan ct, TensorSpan, TypeSpan) { return {ct[0], ct[0]}; }
Tensors subtract_transpose(const Op&, TensorSpan ct, TensorSpan x, TypeSpan) {
  return {ct[0], cotangent_for(x[1], [&] { return negative(ct[0]); })};
}
Tensors negative_transpose(const Op&, TensorSpan ct, TensorSpan, TypeSpan) {
  return {negative(ct[0])};
}
Tensors multiply_transpose(const Op&, TensorSpan ct, TensorSpan x, TypeSpan) {
  return {cotangent_for(x[0], [&] { return ct[0] * x[1]; }),
          cotangent_for(x[1], [&] { return ct[0] * x[0]; })};
}

Tensors divide_transpose(const Op&, TensorSpan ct, TensorSpan x, TypeSpan) {
  check(x[1].has_value(), "divide: a tangent is divided by, which is not linear");
  return {ct[0] / x[1], Tensor()};
}

Types select_type(const Params*, TypeSpan operands) {
  check(operands[0].dtype == DType::pred && operands[0].dims == operands[1].dims,
        "select: the condition must be pred of shape {}, got {}", dims_to_string(operands[1].dims),
        to_string(operands[0]));
  check(alike(operands[1], operands[2]), "select: both choices must have one type, got {} and {}",
        to_string(operands[1]), to_string(operands[2]));
  Type type = operands[1];
  type.weak = type.weak && operands[2].weak;
  return {type};
}
Tensors select_transpose(const Op&, TensorSpan ct, TensorSpan x, TypeSpan) {
  const Tensor zero = zeros_of(ct[0].type());
  return {Tensor(), cotangent_for(x[1], [&] { return where(x[0], ct[0], zero); }),
          cotangent_for(x[2], [&] { return where(x[0], zero, ct[0]); })};
}

// --- slopes ---

Tensor exp_slope(T, T y) { return y; }
Tensor expm1_slope(T, T y) { return y + 1; }
Tensor sqrt_slope(T, T y) { return 0.5f / y; }
Tensor rsqrt_slope(T x, T y) { return -0.5f * y / x; }
// Not by y * y, whose own slope is 0 at 0: 0 times an infinite one.
Tensor cbrt_slope(T, T y) { return (1.0 / 3) / y / y; }
Tensor sin_slope(T x, T) { return cos(x); }
Tensor cos_slope(T x, T) { return -sin(x); }
Tensor tan_slope(T, T y) { return 1 + y * y; }
Tensor square_slope(T x, T) { return 2 * x; }
Tensor logistic_slope(T, T y) { return y * (1 - y); }
Tensor erf_slope(T x, T) { return 2 * std::numbers::inv_sqrtpi * exp(-(x * x)); }

Tensor one(T x, T, T) { return ones_like(x); }
// Minus the whole number of times that y goes into x. This comes from the remainder z, as x / y may
// be rounded up to the next whole number; where z is NaN, from x / y cut off, as in JAX.
Tensor remainder_by_y(T x, T y, T z) {
  const Tensor quotient = x / y;
  const Tensor cut_off = where(greater_equal(quotient, 0), floor(quotient), ceil(quotient));
  return -where(equal(z, z), round((x - z) / y), cut_off);
}
// t / (x^2 + y^2), with x and y scaled by the larger of them, as their squares may be too large or
// too small a number.
Tensor over_square(T t, T x, T y) {
  const Tensor larger = maximum(abs(x), abs(y));
  const Tensor scale = where(is_finite(larger) & greater(larger, 0), larger, ones_like(larger));
  const Tensor a = x / scale;
  const Tensor b = y / scale;
  return t / scale / (a * a + b * b) / scale;
}
Tensor atan2_by_x(T x, T y, T) { return over_square(y, x, y); }
Tensor atan2_by_y(T x, T y, T) { return -over_square(x, x, y); }
// x^0 is 1 for all x, so that its slope at 0^0 is 0, where y x^(y-1) would be 0 * 0^-1. That x is
// replaced before pow, so that slopes of this slope are no NaN either.
Tensor pow_by_x(T x, T y, T) {
  const Tensor flat = equal(x, 0) & equal(y, 0);
  return where(flat, zeros_like(x), y * pow(where(flat, ones_like(x), x), y - 1));
}
Tensor pow_by_y(T x, T, T z) { return log(where(equal(x, 0), ones_like(x), x)) * z; }
// Of maximum and minimum alike, by whether x is the result z; equal operands share the derivative.
Tensor choice_by_x(T x, T y, T z) {
  const Tensor alone = convert_to(equal(x, z), x.dtype());
  return where(equal(x, y), alone * 0.5f, alone);
}
Tensor choice_by_y(T x, T y, T z) { return choice_by_x(y, x, z); }

bool addable(DType d) { return numeric(d) || d == DType::pred; }
bool ordered_or_complex(DType d) { return d != DType::token; }

constexpr Primitive add_p =
    with_on_host(linear("add", "add", same_type_if<addable>, add_transpose, elementwise_batch),
                 on_host::binary<Wrapping<std::plus<>>>);
constexpr Primitive subtract_p = with_on_host(
    linear("subtract", "subtract", same_type_if<numeric>, subtract_transpose, elementwise_batch),
    on_host::binary<Wrapping<std::minus<>>>);
constexpr Primitive negative_p = with_on_host(
    linear("negative", "negate", same_type_if<numeric>, negative_transpose, elementwise_batch),
    on_host::unary<Wrapping<std::negate<>>>);
constexpr Primitive multiply_p =
    with_on_host(multilinear("multiply", "multiply", same_type_if<addable>, multiply_transpose,
                             elementwise_batch),
                 on_host::multiply);
constexpr Primitive select_p = with_on_host(
    linear("select", "select", select_type, select_transpose, elementwise_batch), on_host::select);
// The tangent is divided, not multiplied by 1 / y, which may be too small a number.
Jvp divide_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  Tensor z = bind1(op.primitive, op.params, x);
  Tensor dz;
  if (dx[0].has_value()) dz = dx[0] / x[1];
  if (dx[1].has_value()) dz = add_any(dz, dx[1] * (-z / x[1]));
  return {{z}, {dz}};
}
constexpr Primitive divide_p{.name = "divide",
                             .hlo = "divide",
                             .type = same_type_if<numeric>,
                             .jvp = divide_jvp,
                             .transpose = divide_transpose,
                             .linear = Linear::first,
                             .batch = elementwise_batch,
                             .on_host = on_host::divide};
constexpr Primitive remainder_p =
    binary<one, remainder_by_y, real_number>("remainder", "remainder");

/// Makes one that is more than one operation of StableHLO's.
template <Jvp (*jvp)(const Op&, TensorSpan, TensorSpan), DTypeTest test = is_differentiable>
constexpr Primitive lowered(const char* name, LowerRule lower) {
  Primitive p = with_jvp<jvp, test>(name, nullptr);
  p.lower = lower;
  return p;
}
constexpr Primitive pow_p = lowered<binary_jvp<pow_by_x, pow_by_y>, numeric>("pow", pow_lower);
constexpr Primitive atan2_p = binary<atan2_by_x, atan2_by_y, is_differentiable>("atan2", "atan2");

constexpr Primitive choice(const char* name, LowerRule lower,
                           decltype(Primitive::on_host) on_host) {
  return with_on_host(
      lowered<binary_jvp<choice_by_x, choice_by_y>, ordered_or_complex>(name, lower), on_host);
}
constexpr Primitive maximum_p =
    choice("maximum", maximum_lower, on_host::binary<Choice<std::greater<>>>);
constexpr Primitive minimum_p =
    choice("minimum", minimum_lower, on_host::binary<Choice<std::less<>>>);

constexpr Primitive exp_p = unary<exp_slope>("exp", "exponential");
constexpr Primitive expm1_p = unary<expm1_slope>("expm1", "exponential_minus_one");
// The tangent is divided: its product with 1 / 0 is nan where complex numbers meet.
template <int offset>
Jvp log_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const Tensor divisor = offset == 0 ? x[0] : x[0] + offset;
  const Tensor dy = dx[0] / divisor;
  return {{bind1(op.primitive, op.params, x)}, {dy}};
}
constexpr Primitive log_p = with_jvp<log_jvp<0>>("log", "log");
constexpr Primitive log1p_p = with_jvp<log_jvp<1>>("log1p", "log_plus_one");
constexpr Primitive sqrt_p = unary<sqrt_slope>("sqrt", "sqrt");
constexpr Primitive rsqrt_p = unary<rsqrt_slope>("rsqrt", "rsqrt");
constexpr Primitive cbrt_p = unary<cbrt_slope, is_float>("cbrt", "cbrt");

constexpr Primitive sin_p = lowered<unary_jvp<sin_slope>>("sin", sine_lower);
constexpr Primitive cos_p = lowered<unary_jvp<cos_slope>>("cos", cosine_lower);
constexpr Primitive tan_p = unary<tan_slope>("tan", "tan");
// As in JAX: 1 - y^2 in two factors, which complex numbers need at infinities.
Jvp tanh_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const Tensor y = bind1(op.primitive, op.params, x);
  return {{y}, {(dx[0] + dx[0] * y) * (1 - y)}};
}
constexpr Primitive tanh_p = with_jvp<tanh_jvp>("tanh", "tanh");
constexpr Primitive square_p = lowered<unary_jvp<square_slope>, is_complex>("square", square_lower);
constexpr Primitive logistic_p = unary<logistic_slope>("logistic", "logistic");

/// Writes a function of CHLO's, StableHLO having none, which is called as its primitive is.
void chlo_lower(Lowering& out, const Equation& e) {
  const Ssa result = out.fresh();
  out.write("    %{} = chlo.{} %{} : {} -> {}\n", result.id, e.primitive->name,
            out.operand(e, 0).id, Lowering::type(out.operand_type(e, 0)),
            Lowering::type(out.result_type(e)));
  out.define(e, 0, result);
}
Tensor erfc_slope(T x, T y) { return -erf_slope(x, y); }
Tensor erf_inv_slope(T, T y) { return std::sqrt(std::numbers::pi) / 2 * exp(y * y); }
constexpr Primitive erf_p = lowered<unary_jvp<erf_slope>, is_float>("erf", chlo_lower);
constexpr Primitive erfc_p = lowered<unary_jvp<erfc_slope>, is_float>("erfc", chlo_lower);
constexpr Primitive erf_inv_p = lowered<unary_jvp<erf_inv_slope>, is_float>("erf_inv", chlo_lower);

// The same bits under another dtype of the same width.
struct BitcastParams {
  DType dtype;
};
Types bitcast_type(const Params* params, TypeSpan operands) {
  const DType to = as<BitcastParams>(*params).dtype;
  check(bit_width(to) == bit_width(operands[0].dtype) &&
            (to == DType::pred) == (operands[0].dtype == DType::pred) &&
            is_complex(to) == is_complex(operands[0].dtype),  // bitcast_convert_c1
        "bitcast: {} and {} must have the same width", to_string(operands[0].dtype), to_string(to));
  return {Type{to, operands[0].dims}};
}
constexpr Primitive bitcast_p{.name = "bitcast",
                              .hlo = "bitcast_convert",
                              .type = bitcast_type,
                              .no_derivative = true,
                              .batch = elementwise_batch,
                              .on_host = on_host::copied};

constexpr Primitive floor_p = flat<is_float>("floor", "floor");
constexpr Primitive ceil_p = flat<is_float>("ceil", "ceil");
constexpr Primitive round_p = flat<is_float>("round", "round_nearest_even");
constexpr Primitive sign_p = flat<numeric>("sign", "sign");
constexpr Primitive and_p =
    with_on_host(flat<integral>("and", "and"), on_host::binary<Wrapping<std::bit_and<>>>);
constexpr Primitive or_p =
    with_on_host(flat<integral>("or", "or"), on_host::binary<Wrapping<std::bit_or<>>>);
constexpr Primitive xor_p =
    with_on_host(flat<integral>("xor", "xor"), on_host::binary<Wrapping<std::bit_xor<>>>);
constexpr Primitive not_p =
    with_on_host(flat<integral>("not", "not"), on_host::unary<on_host::Not>);
constexpr Primitive popcnt_p = flat<is_integer>("popcnt", "popcnt");
constexpr Primitive clz_p = flat<is_integer>("count_leading_zeros", "count_leading_zeros");
constexpr Primitive shift_left_p =
    with_on_host(flat<is_integer>("shift_left", "shift_left"), on_host::binary<Shift<Bits::left>>);
constexpr Primitive shift_right_p =
    with_on_host(flat<is_integer>("shift_right_arithmetic", "shift_right_arithmetic"),
                 on_host::binary<Shift<Bits::right_signed>>);
constexpr Primitive shift_right_logical_p =
    with_on_host(flat<is_integer>("shift_right_logical", "shift_right_logical"),
                 on_host::binary<Shift<Bits::right>>);

Types finite_type(const Params*, TypeSpan operands) {
  require_dtype(is_float(operands[0].dtype), operands[0].dtype);
  return {Type{DType::pred, operands[0].dims}};
}
constexpr Primitive is_finite_p = flat<is_float, finite_type>("is_finite", "is_finite");

// abs: |x| of real numbers; the magnitude of complex ones, with derivative real(conj(x) dx) / |x|.
Types abs_type(const Params*, TypeSpan operands) {
  require_dtype(numeric(operands[0].dtype) && !is_unsigned(operands[0].dtype), operands[0].dtype);
  return {Type{real_dtype(operands[0].dtype), operands[0].dims, operands[0].weak}};
}
Jvp abs_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const Tensor y = bind1(op.primitive, op.params, x);
  if (!is_complex(x[0].dtype()))  // 1 at zeros of both signs, as in JAX
    return {{y}, {where(greater_equal(x[0], 0), dx[0], negative(dx[0]))}};
  const Tensor divisor = where(equal(y, 0), ones_like(y), y);  // at 0 the derivative is 0
  return {{y}, {real(dx[0] * (conj(x[0]) / divisor))}};
}
constexpr Primitive abs_p{
    .name = "abs", .hlo = "abs", .type = abs_type, .jvp = abs_jvp, .batch = elementwise_batch};

// --- comparison ---

struct CompareParams {
  const char* direction;  // StableHLO's: EQ, NE, LT, LE, GT, GE
};
Types compare_type(const Params* params, TypeSpan operands) {
  const Type type = same_type(nullptr, operands)[0];
  const std::string_view direction = as<CompareParams>(*params).direction;
  check(direction == "EQ" || direction == "NE" || !is_complex(type.dtype),
        "compare: complex numbers have no order, got {}", to_string(type));
  return {Type{DType::pred, type.dims}};
}
void compare_lower(Lowering& out, const Equation& e) {
  out.simple(e, "compare",
             comparison_text(as<CompareParams>(*e.params).direction, out.operand_type(e, 0).dtype));
}
bool compare_on_host(const Params* params, const HostArrays& a) {
  const std::string_view direction = as<CompareParams>(*params).direction;
  const bool of_equal = direction == "EQ" || direction == "LE" || direction == "GE";
  const bool of_less = direction == "NE" || direction == "LT" || direction == "LE";
  const bool of_greater = direction == "NE" || direction == "GT" || direction == "GE";
  return on_host::order(a, of_equal, of_less, of_greater);
}
constexpr Primitive compare_p{.name = "compare",
                              .hlo = "compare",
                              .type = compare_type,
                              .no_derivative = true,
                              .batch = elementwise_batch,
                              .lower = compare_lower,
                              .on_host = compare_on_host};

constexpr const Primitive* elementwise_family[] = {
    &add_p,       &subtract_p,  &negative_p,   &multiply_p,    &select_p,
    &divide_p,    &remainder_p, &pow_p,        &atan2_p,       &maximum_p,
    &minimum_p,   &exp_p,       &expm1_p,      &log_p,         &log1p_p,
    &sqrt_p,      &rsqrt_p,     &cbrt_p,       &sin_p,         &cos_p,
    &tan_p,       &tanh_p,      &square_p,     &logistic_p,    &erf_p,
    &erf_inv_p,   &bitcast_p,   &floor_p,      &ceil_p,        &round_p,
    &sign_p,      &and_p,       &or_p,         &xor_p,         &not_p,
    &popcnt_p,    &clz_p,       &shift_left_p, &shift_right_p, &shift_right_logical_p,
    &is_finite_p, &abs_p,       &compare_p,    &erfc_p};
static_assert(complete(elementwise_family));

// --- binding ---

/// Functions of real analysis take integers as f32.
Tensor analytic(const Primitive& p, const Operand& x) {
  PlaceScope at(x.place());
  return bind1(p, nullptr, {as_float(x.tensor())});
}

/// Integers are whole as they are.
Tensor whole(const Primitive& p, const Operand& x) {
  if (integral(x.tensor().dtype(x.place()))) return x.tensor();
  return single(p, x);
}

Tensor compare(const char* direction, const Operand& x, const Operand& y) {
  return two(compare_p, x, y, make_params(CompareParams{direction}));
}

/// Returns the whole number of C++, of up to a million, that an exponent is.
std::optional<double> whole_number(const Tensor& exponent) {
  const detail::HostValue* host = host_scalar(exponent);
  if (!host || is_complex(host->type.dtype)) return {};
  const double number = read_number(host->type.dtype, host->data.get()).real;
  if (std::abs(number) > 1e6 || number != std::trunc(number)) return {};
  return number;
}

}  // namespace

Tensor two(const Primitive& p, const Operand& x, const Operand& y, ParamsPtr params) {
  PlaceScope at(x.place());
  auto [a, b] = matched(p.name, x.tensor(), y.tensor());
  return bind1(p, std::move(params), {a, b});
}

Tensor single(const Primitive& p, const Operand& x) {
  PlaceScope at(x.place());
  return bind1(p, nullptr, {x.tensor()});
}

Tensor as_float(const Tensor& x) {
  if (is_differentiable(x.dtype())) return x;
  return fit(x, {DType::f32, x.dims(), x.type().weak});
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

Tensor add(const Operand& x, const Operand& y) { return two(add_p, x, y); }
Tensor subtract(const Operand& x, const Operand& y) { return two(subtract_p, x, y); }
Tensor multiply(const Operand& x, const Operand& y) {
  const bool same = detail::Access::value(x.tensor()) == detail::Access::value(y.tensor());
  // A complex x * x gains in range and digits by it: see square_lower.
  if (same && x.tensor().has_value() && is_complex(x.tensor().dtype())) return single(square_p, x);
  return two(multiply_p, x, y);
}
Tensor divide(const Operand& x, const Operand& y) { return two(divide_p, x, y); }
Tensor remainder(const Operand& x, const Operand& y) { return two(remainder_p, x, y); }
// XLA multiplies where it knows a complex number's exponent, and only there: so we do where the
// exponent is a whole number of C++.
Tensor pow(const Operand& x, const Operand& y) {
  PlaceScope at(x.place());
  const auto [base, exponent] = matched("pow", x.tensor(), y.tensor());
  std::optional<double> known;
  if (is_complex(base.dtype())) known = whole_number(y.tensor());
  if (!known) return bind1(pow_p, nullptr, {base, exponent});
  Tensor power, square = base;  // base^1, base^2, base^4 ... for the exponent's bits
  for (auto left = static_cast<std::int64_t>(std::abs(*known)); left > 0; left /= 2) {
    if (left % 2) power = product_any(power, square);
    if (left > 1) square = square * square;
  }
  if (!power.has_value()) return ones_like(base);
  if (*known < 0) return 1 / power;
  return power;
}
Tensor atan2(const Operand& y, const Operand& x) {
  PlaceScope at(y.place());
  const auto [a, b] = matched("atan2", y.tensor(), x.tensor());
  return bind1(atan2_p, nullptr, {as_float(a), as_float(b)});
}
Tensor maximum(const Operand& x, const Operand& y) { return two(maximum_p, x, y); }
Tensor minimum(const Operand& x, const Operand& y) { return two(minimum_p, x, y); }
Tensor negative(const Operand& x) { return single(negative_p, x); }
Tensor abs(const Operand& x) {
  if (is_unsigned(x.tensor().dtype(x.place()))) return x.tensor();
  return single(abs_p, x);
}
Tensor sign(const Operand& x) {  // StableHLO has none of unsigned numbers
  if (is_unsigned(x.tensor().dtype(x.place())))
    return convert_to(not_equal(x, 0), x.tensor().dtype());
  return single(sign_p, x);
}

Tensor exp(const Operand& x) { return analytic(exp_p, x); }
Tensor expm1(const Operand& x) { return analytic(expm1_p, x); }
Tensor log(const Operand& x) { return analytic(log_p, x); }
Tensor log1p(const Operand& x) { return analytic(log1p_p, x); }
Tensor sqrt(const Operand& x) { return analytic(sqrt_p, x); }
Tensor rsqrt(const Operand& x) { return analytic(rsqrt_p, x); }
Tensor cbrt(const Operand& x) { return analytic(cbrt_p, x); }
Tensor sin(const Operand& x) { return analytic(sin_p, x); }
Tensor cos(const Operand& x) { return analytic(cos_p, x); }
Tensor tan(const Operand& x) { return analytic(tan_p, x); }
Tensor tanh(const Operand& x) { return analytic(tanh_p, x); }
Tensor logistic(const Operand& x) { return analytic(logistic_p, x); }
Tensor erf(const Operand& x) { return analytic(erf_p, x); }
Tensor erfc(const Operand& x) { return analytic(erfc_p, x); }
Tensor erf_inv(const Operand& x) { return analytic(erf_inv_p, x); }
Tensor bitcast(const Operand& x, DType dtype) {
  PlaceScope at(x.place());
  if (x.tensor().dtype() == dtype) return x.tensor();
  return bind1(bitcast_p, make_params(BitcastParams{dtype}), {x.tensor()});
}
Tensor floor(const Operand& x) { return whole(floor_p, x); }
Tensor ceil(const Operand& x) { return whole(ceil_p, x); }
Tensor round(const Operand& x) { return whole(round_p, x); }
Tensor is_finite(const Operand& x) { return analytic(is_finite_p, x); }

Tensor equal(const Operand& x, const Operand& y) { return compare("EQ", x, y); }
Tensor not_equal(const Operand& x, const Operand& y) { return compare("NE", x, y); }
Tensor less(const Operand& x, const Operand& y) { return compare("LT", x, y); }
Tensor less_equal(const Operand& x, const Operand& y) { return compare("LE", x, y); }
Tensor greater(const Operand& x, const Operand& y) { return compare("GT", x, y); }
Tensor greater_equal(const Operand& x, const Operand& y) { return compare("GE", x, y); }
Tensor logical_and(const Operand& x, const Operand& y) { return two(and_p, x, y); }
Tensor logical_or(const Operand& x, const Operand& y) { return two(or_p, x, y); }
Tensor logical_xor(const Operand& x, const Operand& y) { return two(xor_p, x, y); }
Tensor logical_not(const Operand& x) { return single(not_p, x); }
Tensor population_count(const Operand& operand) {
  PlaceScope at(operand.place());
  const Tensor& x = operand.tensor();
  if (!is_integer(x.dtype()) || bit_width(x.dtype()) >= 8) return single(popcnt_p, operand);
  // A byte repeats the sign of a negative number of 2 or 4 bits in the bits that it adds.
  const Tensor bits = unpacked(x) & ((1 << bit_width(x.dtype())) - 1);
  return convert_to(bind1(popcnt_p, nullptr, {bits}), x.dtype());
}
Tensor count_leading_zeros(const Operand& x) { return single(clz_p, x); }
Tensor shift_left(const Operand& x, const Operand& y) { return two(shift_left_p, x, y); }
Tensor shift_right(const Operand& x, const Operand& y) {
  if (is_unsigned(x.tensor().dtype(x.place()))) return two(shift_right_logical_p, x, y);
  return two(shift_right_p, x, y);
}
Tensor shift_right_logical(const Operand& x, const Operand& y) {
  return two(shift_right_logical_p, x, y);
}

Tensor where(const Operand& condition, const Operand& x, const Operand& y) {
  PlaceScope at(condition.place());
  const Tensor& c = condition.tensor();
  check(c.dtype() == DType::pred, "where: the condition must be pred, got {}", to_string(c.type()));
  Type type = promote("where", x.tensor().type(), y.tensor().type());
  type.dims = broadcast_dims("where", c.dims(),
                             broadcast_dims("where", x.tensor().dims(), y.tensor().dims()));
  return bind1(select_p, nullptr,
               {fit(c, {DType::pred, type.dims}), fit(x.tensor(), type), fit(y.tensor(), type)});
}

}  // namespace postern
