// Rows of the table: making arrays, reductions by functions of one's own.
#include "ops_table.h"

namespace ops {
namespace {

const pn::Type row = pn::type<float>({3});
pn::Tensor filled(V v) { return pn::full(pn::make_type(v[0].dtype(), {2, 3}), v[0]); }

using Tensors = std::vector<pn::Tensor>;
pn::Tensor reduced(V v) {
  return pn::reduce([](pn::Tensor a, pn::Tensor b) { return a + b + a * b; }, v[0], 0.0f,
                    {.axes = pn::Dims{1}});
}
pn::Tensor partner_of_largest(V v) {
  const auto larger = [](const Tensors& a, const Tensors& b) {
    return Tensors{pn::maximum(a[0], b[0]), pn::where(a[0] >= b[0], a[1], b[1])};
  };
  return pn::reduce(larger, {v[0], v[1]}, {-9.0f, 0}, {.axes = pn::Dims{0}})[1];
}
pn::Tensor products(V v) {
  return pn::associative_scan(
      [](const Tensors& a, const Tensors& b) { return Tensors{a[0] * b[0]}; }, {v[0]}, 1)[0];
}

const Row making_rows[] = {
    {"full", "jnp.full((2, 3), x)", "f32[]:-2:2", filled},
    {"zeros", "x + jnp.zeros(3, jnp.float32)", "f32[2,3]:-2:2",
     [](V v) { return v[0] + pn::zeros(row); }},
    {"ones", "x * jnp.ones(3, jnp.float32)", "f32[2,3]:-2:2",
     [](V v) { return v[0] * pn::ones(row); }},
    {"zeros_like", "x + jnp.zeros_like(x)", "f32[2,3]:-2:2",
     [](V v) { return v[0] + pn::zeros_like(v[0]); }},
    {"ones_like", "x * jnp.ones_like(x)", "f32[2,3]:-2:2",
     [](V v) { return v[0] * pn::ones_like(v[0]); }},
    {"reduce", "lax.reduce(x, np.float32(0), lambda a, b: a + b + a * b, (1,))",
     "f32[3,4]:-0.5:0.5", reduced, no},
    {"reduce_pairs",
     "lax.reduce((x, y), (np.float32(-9), np.int32(0)), lambda a, b: (jnp.maximum(a[0], b[0]), "
     "jnp.where(a[0] >= b[0], a[1], b[1])), "
     "(0,))[1]",
     "f32[5,2]:-2:2 s32[5,2]:0:99", partner_of_largest, no},
    {"associative_scan", "lax.associative_scan(lambda a, b: a * b, x, axis=1)", "f32[2,7]:0.5:2",
     products},
};

POSTERN_OPS_SUITE(OpsMaking, making_rows);

}  // namespace
}  // namespace ops
