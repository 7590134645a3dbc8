// Complex numbers and their parts: linear over the real numbers.
#include <postern/ops.h>

#include "ops/elementwise.h"
#include "ops/family.h"

namespace postern {
using namespace internal;

namespace {

Types part_type(const Params*, TypeSpan operands) {
  require_dtype(is_complex(operands[0].dtype), operands[0].dtype);
  return {Type{real_dtype(operands[0].dtype), operands[0].dims}};
}
Types complex_type(const Params*, TypeSpan operands) {
  const Type type = same_type(nullptr, operands)[0];
  check(type.dtype == DType::f32 || type.dtype == DType::f64,
        "complex: the parts must be f32 or f64, got {}", to_string(type));
  return {Type{complex_dtype(type.dtype), type.dims}};
}

// JAX's convention: the cotangent at z is ct for real(z) and -i ct for imag(z), so that grad of a
// real f(x + iy) is df/dx - i df/dy.
Tensors real_transpose(const Op&, TensorSpan ct, TensorSpan, TypeSpan) {
  return {complex(ct[0], zeros_like(ct[0]))};
}
Tensors imag_transpose(const Op&, TensorSpan ct, TensorSpan, TypeSpan) {
  return {complex(zeros_like(ct[0]), negative(ct[0]))};
}
Tensors complex_transpose(const Op&, TensorSpan ct, TensorSpan x, TypeSpan) {
  return {cotangent_for(x[0], [&] { return real(ct[0]); }),
          cotangent_for(x[1], [&] { return negative(imag(ct[0])); })};
}

constexpr Primitive real_p = linear("real", "real", part_type, real_transpose, elementwise_batch);
constexpr Primitive imag_p = linear("imag", "imag", part_type, imag_transpose, elementwise_batch);
constexpr Primitive complex_p =
    linear("complex", "complex", complex_type, complex_transpose, elementwise_batch);
constexpr const Primitive* complex_family[] = {&real_p, &imag_p, &complex_p};
static_assert(complete(complex_family));

}  // namespace

Tensor real(const Operand& x) {
  if (is_complex(x.tensor().dtype(x.place()))) return single(real_p, x);
  return x.tensor();
}
Tensor imag(const Operand& x) {
  if (is_complex(x.tensor().dtype(x.place()))) return single(imag_p, x);
  return zeros_like(x);
}
Tensor conj(const Operand& x) {
  if (is_complex(x.tensor().dtype(x.place()))) return complex(real(x), negative(imag(x)));
  return x.tensor();
}
Tensor complex(const Operand& re, const Operand& im) { return two(complex_p, re, im); }

}  // namespace postern
