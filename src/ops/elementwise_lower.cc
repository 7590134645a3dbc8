// Elementwise operations that StableHLO's own do not do as NumPy does: powers of integers, the
// order of complex numbers, sines at infinities.
#include "ops/elementwise.h"

#include "ops/family.h"
#include "ops/reduce.h"

namespace postern::internal {

namespace {

/// Writes elementwise operations on values of one type.
class Elements {
 public:
  Elements(Lowering& out, const Type& type) : out_(out), type_(type) {}
  Ssa number(std::int64_t n) {
    return out_.constant(
        literal_text({Number::Kind::integer, n, static_cast<double>(n), 0}, type_.dtype), type_);
  }
  Ssa two(const char* hlo, Ssa a, Ssa b) { return out_.op(hlo, {a, b}, {&type_, &type_}, type_); }
  Ssa one(const char* hlo, Ssa a) { return out_.op(hlo, {a}, {&type_}, type_); }
  Ssa compare(const char* direction, Ssa a, Ssa b) {
    return out_.op("compare", {a, b}, {&type_, &type_}, pred_,
                   comparison_text(direction, type_.dtype));
  }
  Ssa both(Ssa a, Ssa b) { return out_.op("and", {a, b}, {&pred_, &pred_}, pred_); }
  Ssa select(Ssa condition, Ssa a, Ssa b) {
    return out_.op("select", {condition, a, b}, {&pred_, &type_, &type_}, type_);
  }

 private:
  Lowering& out_;
  const Type type_, pred_{DType::pred, type_.dims};
};

/// x to a power that is known, or with `n` null to y, whose sign does not count.
Ssa product_of(Elements& to, Ssa x, Ssa y, DType dtype, const std::uint64_t* n) {
  const Ssa one = to.number(1);
  Ssa power = one;
  const int bits = bit_width(dtype) - int{is_signed(dtype)};
  Ssa zero = one;
  if (!n) zero = to.number(0);
  for (int bit = 0; bit < bits; ++bit) {
    if (n) {
      if (*n >> bit & 1) power = power.id == one.id ? x : to.two("multiply", power, x);
      if (*n >> bit <= 1) break;
    } else {
      const Ssa set = to.compare(
          "NE", to.two("and", to.two("shift_right_logical", y, to.number(bit)), one), zero);
      power = to.select(set, to.two("multiply", power, x), power);
    }
    if (bit + 1 < bits) x = to.two("multiply", x, x);
  }
  return power;
}

// Complex numbers by their real parts, equal ones by the imaginary parts, as in JAX: XLA ends the
// process over a complex clamp.
Ssa complex_choice(Lowering& out, const Equation& e, const char* direction) {
  const Type& type = out.operand_type(e, 0);
  const Type part{real_dtype(type.dtype), type.dims}, pred{DType::pred, type.dims};
  const Ssa x = out.operand(e, 0), y = out.operand(e, 1);
  Elements parts(out, part);
  const auto of = [&](const char* hlo, Ssa z) { return out.op(hlo, {z}, {&type}, part); };
  const Ssa rx = of("real", x), ry = of("real", y);
  const Ssa wins =
      out.op("select",
             {parts.compare("EQ", rx, ry), parts.compare(direction, of("imag", x), of("imag", y)),
              parts.compare(direction, rx, ry)},
             {&pred, &pred, &pred}, pred);
  return Elements(out, type).select(wins, x, y);
}
void choice_lower(Lowering& out, const Equation& e, const char* hlo, const char* direction) {
  if (!is_complex(out.operand_type(e, 0).dtype)) return out.simple(e, hlo);
  out.define(e, 0, complex_choice(out, e, direction));
}
// As in JAX: the parts of a complex sine or cosine by real functions, the imaginary (real) part of
// an argument without a real part exactly 0, where XLA's own gives nan at infinities.
void sine_or_cosine(Lowering& out, const Equation& e, bool is_sine, const char* hlo) {
  const Type& type = out.operand_type(e, 0);
  if (!is_complex(type.dtype)) return out.simple(e, hlo);
  const Type part{real_dtype(type.dtype), type.dims};
  Elements to(out, part);
  const Ssa z = out.operand(e, 0);
  const Ssa a = out.op("real", {z}, {&type}, part), b = out.op("imag", {z}, {&type}, part);
  const Ssa zero = to.number(0), two = to.number(2);
  const Ssa sn = to.one("sine", a), cs = to.one("cosine", a);
  const Ssa up = to.one("exponential_minus_one", b),
            down = to.one("exponential_minus_one", to.one("negate", b));
  const Ssa sinh = to.two("divide", to.two("subtract", up, down), two),
            cosh = to.two("divide", to.two("add", to.two("add", up, down), two), two);
  const Ssa is_zero = to.compare("EQ", a, zero);
  Ssa re, im;
  if (is_sine) {
    re = to.two("multiply", sn, cosh);
    im = to.two("multiply", cs, sinh);
    re = to.select(is_zero, zero, re);
  } else {
    re = to.two("multiply", cs, cosh);
    im = to.two("multiply", to.one("negate", sn), sinh);
    im = to.select(is_zero, zero, im);
  }
  out.define(e, 0, out.op("complex", {re, im}, {&part, &part}, type));
}
}  // namespace

// XLA looks at six bits of an integer exponent, and folds integer powers as floats.
void pow_lower(Lowering& out, const Equation& e) {
  const Type& type = out.operand_type(e, 0);
  if (!is_integer(type.dtype)) return out.simple(e, "power");
  Elements to(out, type);
  const Ssa x = out.operand(e, 0), y = out.operand(e, 1);
  const Number* known = out.every_element(e, 1);
  if (known && known->kind != Number::Kind::real && known->kind != Number::Kind::complex &&
      (known->kind == Number::Kind::natural || known->integer >= 0)) {
    const auto n = static_cast<std::uint64_t>(known->integer);
    return out.define(e, 0, product_of(to, x, y, type.dtype, &n));
  }
  Ssa power = product_of(to, x, y, type.dtype, nullptr);
  if (is_signed(type.dtype)) {  // 1 / x^-y, truncated; 0 of 0
    const Ssa zero = to.number(0), one = to.number(1), less = to.number(-1);
    const Ssa odd = to.compare("NE", to.two("and", y, one), zero);
    const Ssa inverse =
        to.select(to.compare("EQ", x, one), one,
                  to.select(to.compare("EQ", x, less), to.select(odd, less, one), zero));
    power = to.select(to.compare("LT", y, zero), inverse, power);
  }
  out.define(e, 0, power);
}

// Of a complex number, as in JAX: (a - b)(a + b) is neither inf - inf nor does it lose digits where
// a and b are alike.
void square_lower(Lowering& out, const Equation& e) {
  const Type& type = out.operand_type(e, 0);
  const Type part{real_dtype(type.dtype), type.dims}, pred{DType::pred, type.dims};
  Elements to(out, part);
  const Ssa z = out.operand(e, 0);
  const Ssa a = out.op("real", {z}, {&type}, part), b = out.op("imag", {z}, {&type}, part);
  const Ssa alike = to.both(to.compare("EQ", to.one("abs", a), to.one("abs", b)),
                            out.op("is_finite", {a}, {&part}, pred));
  const Ssa re = to.select(alike, to.number(0),
                           to.two("multiply", to.two("subtract", a, b), to.two("add", a, b)));
  const Ssa product = to.two("multiply", a, b);
  out.define(e, 0, out.op("complex", {re, to.two("add", product, product)}, {&part, &part}, type));
}

void maximum_lower(Lowering& out, const Equation& e) { choice_lower(out, e, "maximum", "GT"); }
void minimum_lower(Lowering& out, const Equation& e) { choice_lower(out, e, "minimum", "LT"); }
void sine_lower(Lowering& out, const Equation& e) { sine_or_cosine(out, e, true, "sine"); }
void cosine_lower(Lowering& out, const Equation& e) { sine_or_cosine(out, e, false, "cosine"); }

}  // namespace postern::internal
