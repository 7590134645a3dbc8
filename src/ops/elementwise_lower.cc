// Elementwise operations that StableHLO's own do not do as NumPy does: powers of integers, the
// order of complex numbers, sines at infinities.
#include "ops/elementwise.h"

#include "ops/elements.h"
#include "ops/family.h"

namespace postern::internal {

namespace {

/// Writes x^n by squaring: power is multiplied by x^1, x^2, x^4 ... for the bits of n that are set.
Ssa known_power(const Elements& to, Ssa x, DType dtype, std::uint64_t n) {
  const Ssa one = to.number(1);
  Ssa power = one;
  const int bits = bit_width(dtype) - int{is_signed(dtype)};
  for (int bit = 0; bit < bits; ++bit) {
    const std::uint64_t left = n >> bit;
    if (left & 1) power = power.id == one.id ? x : to.two("multiply", power, x);
    if (left <= 1) break;
    if (bit + 1 < bits) x = to.two("multiply", x, x);
  }
  return power;
}

/// Writes the same for an exponent y that the program computes. Its sign bit is not looked at.
Ssa power_of(const Elements& to, Ssa x, Ssa y, DType dtype) {
  const Ssa one = to.number(1);
  const Ssa zero = to.number(0);
  Ssa power = one;
  const int bits = bit_width(dtype) - int{is_signed(dtype)};
  for (int bit = 0; bit < bits; ++bit) {
    const Ssa left = to.two("shift_right_logical", y, to.number(bit));
    const Ssa is_set = to.compare("NE", to.two("and", left, one), zero);
    power = to.select(is_set, to.two("multiply", power, x), power);
    if (bit + 1 < bits) x = to.two("multiply", x, x);
  }
  return power;
}

Ssa part_of(Lowering& out, const Equation& e, std::size_t operand, const char* hlo) {
  const Type& type = out.operand_type(e, operand);
  return out.op(hlo, {out.operand(e, operand)}, {&type}, {real_dtype(type.dtype), type.dims});
}
Ssa complex_of(Lowering& out, Ssa real, Ssa imaginary, const Type& part, const Type& type) {
  return out.op("complex", {real, imaginary}, {&part, &part}, type);
}

/// Writes a choice of complex numbers by their real parts, of equal ones by the imaginary parts, as
/// in JAX: XLA ends the process over a complex clamp.
Ssa complex_choice(Lowering& out, const Equation& e, const char* direction) {
  const Type& type = out.operand_type(e, 0);
  const Elements parts(out, {real_dtype(type.dtype), type.dims}),
      preds(out, {DType::pred, type.dims});
  const Ssa real_x = part_of(out, e, 0, "real"), real_y = part_of(out, e, 1, "real");
  const Ssa equal = parts.compare("EQ", real_x, real_y);
  const Ssa by_imaginary =
      parts.compare(direction, part_of(out, e, 0, "imag"), part_of(out, e, 1, "imag"));
  const Ssa by_real = parts.compare(direction, real_x, real_y);
  const Ssa x_wins = preds.select(equal, by_imaginary, by_real);
  return Elements(out, type).select(x_wins, out.operand(e, 0), out.operand(e, 1));
}
void choice_lower(Lowering& out, const Equation& e, const char* hlo, const char* direction) {
  if (!is_complex(out.operand_type(e, 0).dtype)) return out.simple(e, hlo);
  out.define(e, 0, complex_choice(out, e, direction));
}
/// Writes a complex sine or cosine by real functions, as in JAX:
///   sin(a + bi) = sin a cosh b + i cos a sinh b, cos(a + bi) = cos a cosh b - i sin a sinh b.
/// Where a is 0, so is what has sin a for a factor: exactly, where XLA's own gives nan at
/// infinities.
void sine_or_cosine(Lowering& out, const Equation& e, bool is_sine, const char* hlo) {
  const Type& type = out.operand_type(e, 0);
  if (!is_complex(type.dtype)) return out.simple(e, hlo);
  const Type part{real_dtype(type.dtype), type.dims};
  const Elements to(out, part);
  const Ssa a = part_of(out, e, 0, "real"), b = part_of(out, e, 0, "imag");
  const Ssa zero = to.number(0), two = to.number(2);
  const Ssa sine = to.one("sine", a), cosine = to.one("cosine", a);
  const Ssa up = to.one("exponential_minus_one", b),
            down = to.one("exponential_minus_one", to.one("negate", b));
  const Ssa sinh = to.two("divide", to.two("subtract", up, down), two),
            cosh = to.two("divide", to.two("add", to.two("add", up, down), two), two);
  const Ssa is_zero = to.compare("EQ", a, zero);
  Ssa real, imaginary;
  if (is_sine) {
    real = to.two("multiply", sine, cosh);
    imaginary = to.two("multiply", cosine, sinh);
    real = to.select(is_zero, zero, real);
  } else {
    real = to.two("multiply", cosine, cosh);
    imaginary = to.two("multiply", to.one("negate", sine), sinh);
    imaginary = to.select(is_zero, zero, imaginary);
  }
  out.define(e, 0, complex_of(out, real, imaginary, part, type));
}

bool is_natural(const Number& number) {
  if (number.kind == Number::Kind::real || number.kind == Number::Kind::complex) return false;
  return number.kind == Number::Kind::natural || number.integer >= 0;
}

}  // namespace

// XLA looks at six bits of an integer exponent, and folds integer powers as floats.
void pow_lower(Lowering& out, const Equation& e) {
  const Type& type = out.operand_type(e, 0);
  if (!is_integer(type.dtype)) return out.simple(e, "power");
  const Elements to(out, type);
  const Ssa x = out.operand(e, 0), y = out.operand(e, 1);
  if (const Number* known = out.every_element(e, 1); known && is_natural(*known)) {
    const auto exponent = static_cast<std::uint64_t>(known->integer);
    return out.define(e, 0, known_power(to, x, type.dtype, exponent));
  }
  Ssa power = power_of(to, x, y, type.dtype);
  if (is_signed(type.dtype)) {  // of y < 0: 1 / x^-y without its fraction, 0 for |x| > 1 and for 0
    const Ssa zero = to.number(0), one = to.number(1), minus_one = to.number(-1);
    const Ssa is_odd = to.compare("NE", to.two("and", y, one), zero);
    const Ssa of_minus_one = to.select(is_odd, minus_one, one);
    const Ssa otherwise = to.select(to.compare("EQ", x, minus_one), of_minus_one, zero);
    const Ssa inverse = to.select(to.compare("EQ", x, one), one, otherwise);
    power = to.select(to.compare("LT", y, zero), inverse, power);
  }
  out.define(e, 0, power);
}

// Of a complex number a + bi, as in JAX. The real part is (a - b)(a + b), which is not inf - inf
// and loses no digits where |a| and |b| are near each other; equal ones give 0, unless infinite.
void square_lower(Lowering& out, const Equation& e) {
  const Type& type = out.operand_type(e, 0);
  const Type part{real_dtype(type.dtype), type.dims}, pred{DType::pred, type.dims};
  const Elements to(out, part);
  const Ssa a = part_of(out, e, 0, "real"), b = part_of(out, e, 0, "imag");
  const Ssa is_zero = to.both(to.compare("EQ", to.one("abs", a), to.one("abs", b)),
                              out.op("is_finite", {a}, {&part}, pred));
  const Ssa real = to.select(is_zero, to.number(0),
                             to.two("multiply", to.two("subtract", a, b), to.two("add", a, b)));
  const Ssa product = to.two("multiply", a, b);
  out.define(e, 0, complex_of(out, real, to.two("add", product, product), part, type));
}

void maximum_lower(Lowering& out, const Equation& e) { choice_lower(out, e, "maximum", "GT"); }
void minimum_lower(Lowering& out, const Equation& e) { choice_lower(out, e, "minimum", "LT"); }
void sine_lower(Lowering& out, const Equation& e) { sine_or_cosine(out, e, true, "sine"); }
void cosine_lower(Lowering& out, const Equation& e) { sine_or_cosine(out, e, false, "cosine"); }

}  // namespace postern::internal
