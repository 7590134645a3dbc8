// The error function, its complement and its inverse.
#include <cmath>
#include <numbers>

#include "ops/elementwise.h"
#include "ops/family.h"

namespace postern {
using namespace internal;

namespace {

Tensor erf_slope(const Tensor& x, const Tensor&) {
  return 2 * std::numbers::inv_sqrtpi * exp(-(x * x));
}

// They are CHLO's, not StableHLO's.
void chlo(Lowering& out, const Equation& e, const char* name) {
  const Ssa r = out.fresh();
  out.write("    %{} = chlo.{} %{} : {} -> {}\n", r.id, name, out.operand(e, 0).id,
            Lowering::type(out.operand_type(e, 0)), Lowering::type(out.result_type(e)));
  out.define(e, 0, r);
}
void erf_lower(Lowering& out, const Equation& e) { chlo(out, e, "erf"); }
constexpr Primitive erf_p{.name = "erf",
                          .type = same_type_if<is_float>,
                          .jvp = unary_jvp<erf_slope>,
                          .batch = elementwise_batch,
                          .lower = erf_lower};

Tensor erfc_slope(const Tensor& x, const Tensor& y) { return -erf_slope(x, y); }
void erfc_lower(Lowering& out, const Equation& e) { chlo(out, e, "erfc"); }
constexpr Primitive erfc_p{.name = "erfc",
                           .type = same_type_if<is_float>,
                           .jvp = unary_jvp<erfc_slope>,
                           .batch = elementwise_batch,
                           .lower = erfc_lower};

Tensor erf_inv_slope(const Tensor&, const Tensor& y) {
  return std::sqrt(std::numbers::pi) / 2 * exp(y * y);
}
void erf_inv_lower(Lowering& out, const Equation& e) { chlo(out, e, "erf_inv"); }
constexpr Primitive erf_inv_p{.name = "erf_inv",
                              .type = same_type_if<is_float>,
                              .jvp = unary_jvp<erf_inv_slope>,
                              .batch = elementwise_batch,
                              .lower = erf_inv_lower};

constexpr const Primitive* error_functions[] = {&erf_p, &erfc_p, &erf_inv_p};
static_assert(complete(error_functions));

Tensor of_float(const Primitive& p, const Operand& x) {
  PlaceScope at(x.place());
  return bind1(p, nullptr, {as_float(x.tensor())});
}

}  // namespace

Tensor erf(const Operand& x) { return of_float(erf_p, x); }
Tensor erfc(const Operand& x) { return of_float(erfc_p, x); }
Tensor erf_inv(const Operand& x) { return of_float(erf_inv_p, x); }

}  // namespace postern
