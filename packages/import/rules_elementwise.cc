// What elementwise operations are here. Operands have one type, so nothing is promoted.
#include "constants.h"
#include "interpreter.h"

namespace postern::internal::imported {

namespace {

template <Tensor (*f)(const Operand&)>
Values unary(const Step& s) {
  return {f(s[0])};
}
template <Tensor (*f)(const Operand&, const Operand&)>
Values binary(const Step& s) {
  return {f(s[0], s[1])};
}

/// Of truth values StableHLO's sum is `or`, its product `and`.
Values add_rule(const Step& s) {
  if (s[0].dtype() == DType::pred) return {logical_or(s[0], s[1])};
  return {add(s[0], s[1])};
}
Values multiply_rule(const Step& s) {
  if (s[0].dtype() == DType::pred) return {logical_and(s[0], s[1])};
  return {multiply(s[0], s[1])};
}

Values compare_rule(const Step& s) {
  const std::string_view direction = s.node.direction();
  // In the short form it stands alone behind the operands, where no word is kept.
  if (s.module().text_of(s.node).find("TOTALORDER") != std::string_view::npos) return {};
  if (direction == "EQ") return {equal(s[0], s[1])};
  if (direction == "NE") return {not_equal(s[0], s[1])};
  if (direction == "LT") return {less(s[0], s[1])};
  if (direction == "LE") return {less_equal(s[0], s[1])};
  if (direction == "GT") return {greater(s[0], s[1])};
  if (direction == "GE") return {greater_equal(s[0], s[1])};
  return {};
}

Values select_rule(const Step& s) { return {where(s[0], s[1], s[2])}; }
Values clamp_rule(const Step& s) { return {clip(s[1], s[0], s[2])}; }
/// Of complex numbers the real parts, also to booleans.
Values convert_rule(const Step& s) {
  const bool loses = is_complex(s[0].dtype()) && !is_complex(s.dtype());
  return {convert(loses ? real(s[0]) : s[0], s.dtype())};
}
Values bitcast_rule(const Step& s) {
  const DType to = s.dtype();
  if (bit_width(to) != bit_width(s[0].dtype())) return {};
  return {bitcast(s[0], to)};
}
Values barrier_rule(const Step& s) { return s.x; }
/// Flat wherever it has a slope.
Values flat_rule(const Step& s) { return as_written(s, {.constant = true}); }

Values constant_rule(const Step& s) {
  const std::string_view text = s.module().text_of(s.node);
  const std::size_t open = text.find("dense<");
  if (open == text.npos) return {};
  std::string_view value = s.node.attribute("value");
  if (value.empty()) value = text.substr(open);
  const Type type = s.result();
  const auto made = [&] {
    const AtOnce now;
    Tensor x = constant_of(value, type);
    constexpr std::int64_t few = 64;  // sizes may be computed of them
    if (x.dims() != type.dims && type.size() <= few) x = broadcast_to(x, type.dims);
    return x;
  }();
  if (made.dims() == type.dims) return {made};
  return {broadcast_to(made, type.dims)};
}

/// An operation of one operand that there is none of here. `text`: with %x and its type T.
Tensor by_text(const std::string& name, std::string text, const Tensor& x) {
  const std::string type = mlir_text(x.type());
  for (std::size_t at = text.find('T'); at != text.npos; at = text.find('T', at + type.size()))
    text.replace(at, 1, type);
  return written({name,
                  fmt::format("  func.func private @{}(%x: {}) -> {} {{\n    {}\n    return %y : "
                              "{}\n  }}\n",
                              placeholder, type, type, text, type),
                  {Type{x.dtype(), x.dims()}},
                  {}},
                 std::array{x})
      .at(0);
}
Tensor chlo(std::string_view name, const Tensor& x) {
  return by_text(fmt::format("chlo.{}", name), fmt::format("%y = chlo.{} %x : T -> T", name), x);
}
using SlopeOf = Tensor (*)(const Tensor& x);
Values with_slope(const Step& s, SlopeOf slope) {
  const std::string name(s.node.name);
  const auto value = [name](const Tensor& x) { return chlo(name, x); };
  return {custom_jvp(value, [value, slope](const auto& x, const auto& dx) {
    const Tensor& at = std::get<0>(x);
    return std::pair{value(at), std::get<0>(dx) * slope(at)};
  })(s[0])};
}
template <SlopeOf slope>
Values sloping(const Step& s) {
  return with_slope(s, slope);
}
Tensor acos_slope(const Tensor& x) { return -rsqrt(1.0f - x * x); }
Tensor acosh_slope(const Tensor& x) { return rsqrt(x - 1.0f) * rsqrt(x + 1.0f); }
Tensor asin_slope(const Tensor& x) { return rsqrt(1.0f - x * x); }
Tensor asinh_slope(const Tensor& x) { return rsqrt(x * x + 1.0f); }
Tensor atan_slope(const Tensor& x) { return 1.0f / (1.0f + x * x); }
Tensor atanh_slope(const Tensor& x) { return 1.0f / (1.0f - x * x); }
Tensor cosh_slope(const Tensor& x) { return chlo("sinh", x); }
Tensor sinh_slope(const Tensor& x) { return chlo("cosh", x); }
Tensor digamma_slope(const Tensor& x) {
  return by_text(
      "chlo.polygamma",
      "%n = stablehlo.constant dense<1.0> : T\n    %y = chlo.polygamma %n, %x : T, T -> T", x);
}
Tensor lgamma_slope(const Tensor& x) { return chlo("digamma", x); }

/// Rounded values; tangents are left as they are.
Values precision_rule(const Step& s) {
  std::string format(s.node.attribute("format"));
  if (format.empty())
    format = fmt::format("e{}m{}", s.integer({"exponent_bits"}), s.integer({"mantissa_bits"}));
  const auto rounded = [format](const Tensor& x) {
    return by_text("stablehlo.reduce_precision",
                   fmt::format("%y = stablehlo.reduce_precision %x, format = {} : T", format), x);
  };
  return {custom_jvp(rounded, [rounded](const auto& x, const auto& dx) {
    return std::pair{rounded(std::get<0>(x)), std::get<0>(dx)};
  })(s[0])};
}

Tensor square_of(const Operand& x) { return square(x); }

constexpr std::pair<std::string_view, Rule> elementwise_table[] = {
    {"abs", unary<abs>},
    {"cbrt", unary<cbrt>},
    {"ceil", unary<ceil>},
    {"cosine", unary<cos>},
    {"sine", unary<sin>},
    {"tan", unary<tan>},
    {"tanh", unary<tanh>},
    {"exponential", unary<exp>},
    {"exponential_minus_one", unary<expm1>},
    {"log", unary<postern::log>},
    {"log_plus_one", unary<log1p>},
    {"logistic", unary<logistic>},
    {"negate", unary<negative>},
    {"floor", unary<floor>},
    {"round_nearest_even", unary<round>},
    {"rsqrt", unary<rsqrt>},
    {"sqrt", unary<sqrt>},
    {"sign", unary<sign>},
    {"is_finite", unary<is_finite>},
    {"not", unary<logical_not>},
    {"popcnt", unary<population_count>},
    {"count_leading_zeros", unary<count_leading_zeros>},
    {"real", unary<real>},
    {"imag", unary<imag>},
    {"erf", unary<erf>},
    {"erfc", unary<erfc>},
    {"erf_inv", unary<erf_inv>},
    {"square", unary<square_of>},
    {"conj", unary<conj>},
    {"acos", sloping<acos_slope>},
    {"acosh", sloping<acosh_slope>},
    {"asin", sloping<asin_slope>},
    {"asinh", sloping<asinh_slope>},
    {"atan", sloping<atan_slope>},
    {"atanh", sloping<atanh_slope>},
    {"cosh", sloping<cosh_slope>},
    {"sinh", sloping<sinh_slope>},
    {"digamma", sloping<digamma_slope>},
    {"lgamma", sloping<lgamma_slope>},
    {"reduce_precision", precision_rule},
    {"add", add_rule},
    {"multiply", multiply_rule},
    {"subtract", binary<subtract>},
    {"divide", binary<divide>},
    {"remainder", binary<remainder>},
    {"power", binary<pow>},
    {"maximum", binary<maximum>},
    {"minimum", binary<minimum>},
    {"atan2", binary<atan2>},
    {"and", binary<logical_and>},
    {"or", binary<logical_or>},
    {"xor", binary<logical_xor>},
    {"shift_left", binary<shift_left>},
    {"shift_right_arithmetic", binary<shift_right>},
    {"shift_right_logical", binary<shift_right_logical>},
    {"complex", binary<complex>},
    {"compare", compare_rule},
    {"select", select_rule},
    {"clamp", clamp_rule},
    {"convert", convert_rule},
    {"bitcast_convert", bitcast_rule},
    {"optimization_barrier", barrier_rule},
    {"sharding_constraint", barrier_rule},
    {"round_nearest_afz", flat_rule},
    {"constant", constant_rule},
};

}  // namespace

const Rules& elementwise_rules() {
  static const auto* const rules =
      new Rules(std::begin(elementwise_table), std::end(elementwise_table));
  return *rules;
}

}  // namespace postern::internal::imported
