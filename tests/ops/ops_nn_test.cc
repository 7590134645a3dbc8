// Rows of the table: functions of neural networks.
#include "ops_table.h"

namespace ops {
namespace {

const Row nn_rows[] = {
    {"relu", "jax.nn.relu(x)", "f32[2,3]:-2:2", [](V v) { return pn::relu(v[0]); }, yes, any},
    {"relu_s32", "jax.nn.relu(x)", "s32[5]:-3:3", [](V v) { return pn::relu(v[0]); }, no},
    {"gelu", "jax.nn.gelu(x)", "f32[2,3]:-2:2", [](V v) { return pn::gelu(v[0]); }, yes, any},
    {"gelu_exact", "jax.nn.gelu(x, approximate=False)", "f32[2,3]:-2:2",
     [](V v) { return pn::gelu(v[0], false); }, yes, any},
    {"silu", "jax.nn.silu(x)", "f32[2,3]:-2:2", [](V v) { return pn::silu(v[0]); }, yes, any},
    // As flax.
    {"dropout",
     "lax.select(jax.random.bernoulli(x, np.float32(0.75), (2, 4)), y / 0.75, jnp.zeros_like(y))",
     "u32[2]:0:4000000000 f32[2,4]:-2:2", [](V v) { return pn::dropout(v[0], v[1], 0.25); }},
    // optax.losses.softmax_cross_entropy_with_integer_labels and softmax_cross_entropy.
    {"cross_entropy",
     "jsp.special.logsumexp(x, -1) - jnp.take_along_axis(x, y[..., None], -1)[..., 0]",
     "f32[2,4,5]:-3:3 s32[2,4]:0:5", [](V v) { return pn::cross_entropy(v[0], v[1]); }},
    {"cross_entropy_of_axis", "-jax.nn.log_softmax(x, 0)[y, jnp.arange(3)]",
     "f32[4,3]:-3:3 s32[3]:0:4", [](V v) { return pn::cross_entropy(v[0], v[1], 0); }},
    {"cross_entropy_of_probabilities", "-jnp.sum(y * jax.nn.log_softmax(x), -1)",
     "f32[4,5]:-3:3 f32[4,5]:0:1", [](V v) { return pn::cross_entropy(v[0], v[1]); }},
};

POSTERN_OPS_SUITE(OpsNn, nn_rows);

}  // namespace
}  // namespace ops
