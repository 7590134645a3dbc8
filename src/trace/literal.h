// Numbers in programs: a scalar of the host becomes a constant equation, of any shape, in the dtype
// that the other operands ask for.
#pragma once
#include "core/primitive.h"
#include "core/value.h"

namespace postern::internal {

/// A C++ number of any kind, exact.
struct Number {
  enum class Kind : std::uint8_t { integer, natural, real, complex } kind = Kind::real;
  std::int64_t integer = 0;  // natural: the same bits
  double real = 0, imag = 0;
};
inline Number integer_number(std::int64_t i) {
  return {Number::Kind::integer, i, static_cast<double>(i), 0};
}
inline Number natural_number(std::uint64_t i) {
  return {Number::Kind::natural, static_cast<std::int64_t>(i), static_cast<double>(i), 0};
}
inline bool is_zero(const Number& n) { return n.integer == 0 && n.real == 0 && n.imag == 0; }

struct LiteralParams {
  Number number;
  Type type;
  FieldChain<2> fields(Fields sink) const;
};
extern const Primitive literal_p;  // lowered by Lowering itself, which writes all constants

/// Returns whether elements of this dtype can be read as a Number (all but the 8-bit floats and
/// smaller).
bool is_number(DType dtype);
Number read_number(DType dtype, const void* from);
void write_number(const Number& number, DType dtype, void* to);

/// Returns whether the dtype has the number, or one that it is rounded to. Integer dtypes: integers
/// in range, and all reals, which saturate. f8e8m0fnu has no zero, no sign; f4e2m1fn no inf or nan.
bool holds(DType dtype, const Number& number);

/// Returns the number as StableHLO writes an element of that dtype.
std::string literal_text(const Number& number, DType dtype);

/// Makes a tensor of `type` with every element `number`: an equation inside a trace, host memory
/// outside.
Tensor full_of(const Number& number, const Type& type);
inline Tensor zeros_of(const Type& type) { return full_of(integer_number(0), type); }
/// Returns zeros for an empty Tensor, which stands for them.
inline Tensor or_zeros_of(const Tensor& t, const Type& type) {
  if (t.has_value()) return t;
  return zeros_of(type);
}

/// Returns the scalar that `tensor` holds in host memory, if a program may have it as a number.
const detail::HostValue* host_scalar(const Tensor& tensor);

}  // namespace postern::internal
