// Rows of the table: shapes, reductions, cumulative operations, arranging.
#include "ops_table.h"

namespace ops {
namespace {

const Row shape_rows[] = {
    {"reshape", "x.reshape(3, 2)", "f32[2,3]:-2:2",
     [](V v) {
       return pn::reshape(v[0], {3, 2});
     }},
    {"reshape_minus_one", "x.reshape(-1, 4)", "f32[2,3,4]:-2:2",
     [](V v) {
       return pn::reshape(v[0], {-1, 4});
     }},
    {"transpose", "x.T", "f32[2,3]:-2:2", [](V v) { return pn::transpose(v[0]); }},
    {"transpose_order", "jnp.transpose(x, (2, 0, 1))", "f32[2,3,4]:-2:2",
     [](V v) {
       return pn::transpose(v[0], {2, 0, 1});
     }},
    {"broadcast_to", "jnp.broadcast_to(x, (2, 4, 3))", "f32[4,1]:-2:2",
     [](V v) {
       return pn::broadcast_to(v[0], {2, 4, 3});
     }},
    {"expand_dims", "jnp.expand_dims(x, 1)", "f32[2,3]:-2:2",
     [](V v) { return pn::expand_dims(v[0], 1); }},
    {"squeeze", "jnp.squeeze(x, (1,))", "f32[2,1,3]:-2:2",
     [](V v) { return pn::squeeze(v[0], {1}); }},
    {"concatenate", "jnp.concatenate([x, y], 1)", "f32[2,3]:-2:2 f32[2,2]:-2:2",
     [](V v) {
       return pn::concatenate({v[0], v[1]}, 1);
     }},
    {"slice", "x[1:3, 0:4:2]", "f32[4,5]:-2:2",
     [](V v) {
       return pn::slice(v[0], {1, 0}, {3, 4}, {1, 2});
     }},
    {"slice_axis", "x[:, -3:-1]", "f32[4,5]:-2:2",
     [](V v) { return pn::slice_axis(v[0], 1, -3, -1); }},
    {"pad", "jnp.pad(x, ((1, 2), (0, 3)), constant_values=1.5)", "f32[2,3]:-2:2",
     [](V v) {
       return pn::pad(v[0], 1.5f, {1, 0}, {2, 3});
     }},
    {"pad_interior", "lax.pad(x, y, ((-1, 2, 1), (1, -1, 2)))", "f32[3,4]:-2:2 f32[]:0:1",
     [](V v) {
       return pn::pad(v[0], v[1], {-1, 1}, {2, -1}, {1, 2});
     }},
    {"reverse", "x[:, ::-1]", "f32[2,3]:-2:2", [](V v) { return pn::reverse(v[0], {1}); }},
    {"iota_times", "x * jnp.arange(3, dtype=jnp.float32)", "f32[2,3]:-2:2",
     [](V v) { return v[0] * pn::iota<float>(3); }},
    {"eye_times", "x @ jnp.eye(3, dtype=jnp.float32)", "f32[2,3]:-2:2",
     [](V v) { return pn::matmul(v[0], pn::eye<float>(3)); }},
    {"sum", "x.sum()", "f32[2,3]:-2:2", [](V v) { return pn::sum(v[0]); }},
    {"sum_axes", "x.sum((0, 2))", "f32[2,3,4]:-2:2",
     [](V v) {
       return pn::sum(v[0], {.axes = pn::Dims{0, 2}});
     }},
    {"sum_keep", "x.sum(-1, keepdims=True)", "f32[2,3]:-2:2",
     [](V v) { return pn::sum(v[0], {.axes = pn::Dims{-1}, .keep_dims = true}); }},
    {"sum_complex", "x.sum(0)", "c64[3,2]:-2:2",
     [](V v) { return pn::sum(v[0], {.axes = pn::Dims{0}}); }},
    {"sum_s32", "x.sum(0, dtype=jnp.int32)", "s32[3,2]:-9:9",
     [](V v) { return pn::sum(v[0], {.axes = pn::Dims{0}}); }, no},
    {"sum_pred", "x.sum(dtype=jnp.int32)", "pred[9]", [](V v) { return pn::sum(v[0]); }, no},
    {"sum_empty", "jnp.sum(x[:0])", "f32[3]:-2:2",
     [](V v) { return pn::sum(pn::slice_axis(v[0], 0, 0, 0)); }},
    {"prod", "x.prod(1)", "f32[2,4]:-2:2",
     [](V v) { return pn::prod(v[0], {.axes = pn::Dims{1}}); }},
    {"prod_zero", "(x * jnp.array([0., 1., 1.], jnp.float32)).prod()", "f32[3]:1:2",
     [](V v) {
       return pn::prod(v[0] * pn::tensor<float>({0, 1, 1}));
     }},
    {"max", "x.max(1)", "f32[2,4]:-2:2", [](V v) { return pn::max(v[0], {.axes = pn::Dims{1}}); }},
    {"min", "x.min()", "f32[2,4]:-2:2", [](V v) { return pn::min(v[0]); }},
    {"max_s32", "x.max(0)", "s32[3,4]:-9:9",
     [](V v) { return pn::max(v[0], {.axes = pn::Dims{0}}); }, no},
    {"mean", "x.mean(0)", "f32[3,4]:-2:2",
     [](V v) { return pn::mean(v[0], {.axes = pn::Dims{0}}); }},
    {"mean_s32", "x.astype(jnp.float32).mean()", "s32[5]:-9:9", [](V v) { return pn::mean(v[0]); },
     no},
    {"all", "x.all(1)", "pred[4,3]", [](V v) { return pn::all(v[0], {.axes = pn::Dims{1}}); }, no},
    {"any", "x.any(1)", "pred[4,3]", [](V v) { return pn::any(v[0], {.axes = pn::Dims{1}}); }, no},
    {"argmax", "x.argmax(1).astype(jnp.int32)", "f32[3,5]:-2:2",
     [](V v) { return pn::argmax(v[0], 1); }, no},
    {"argmin", "x.argmin(0).astype(jnp.int32)", "f32[3,5]:-2:2",
     [](V v) { return pn::argmin(v[0], 0); }, no},
    {"cumsum", "jnp.cumsum(x, 1)", "f32[2,5]:-2:2", [](V v) { return pn::cumsum(v[0], 1); }},
    {"cumsum_reverse", "jnp.cumsum(x[::-1], 0)[::-1]", "f32[5]:-2:2",
     [](V v) { return pn::cumsum(v[0], 0, true); }},
    {"cumprod", "jnp.cumprod(x, 0)", "f32[5,2]:-2:2", [](V v) { return pn::cumprod(v[0], 0); }},
    {"cummax", "lax.cummax(x, 0)", "f32[6]:-2:2", [](V v) { return pn::cummax(v[0], 0); }},
    {"cummin", "lax.cummin(x, 0)", "f32[6]:-2:2", [](V v) { return pn::cummin(v[0], 0); }},
    {"cumlogsumexp", "lax.cumlogsumexp(x, 0)", "f32[6]:-2:2",
     [](V v) { return pn::cumlogsumexp(v[0], 0); }},
    {"logsumexp", "jsp.special.logsumexp(x, 1)", "f32[2,4]:-2:2",
     [](V v) { return pn::logsumexp(v[0], {.axes = pn::Dims{1}}); }},
    {"softmax", "jax.nn.softmax(x)", "f32[2,4]:-2:2", [](V v) { return pn::softmax(v[0]); }},
    {"log_softmax", "jax.nn.log_softmax(x, 0)", "f32[2,4]:-2:2",
     [](V v) { return pn::log_softmax(v[0], 0); }},
    {"variance", "jnp.var(x, 1, ddof=1)", "f32[2,4]:-2:2",
     [](V v) { return pn::variance(v[0], 1, 1); }},
    {"standard_deviation", "jnp.std(x)", "f32[2,4]:-2:2",
     [](V v) { return pn::standard_deviation(v[0]); }},
    {"layer_norm",
     "(x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * y + z",
     "f32[2,4]:-2:2 f32[4]:0.5:2 f32[4]:-1:1",
     [](V v) { return pn::layer_norm(v[0], v[1], v[2]); }},
    {"stack", "jnp.stack([x, y], 1)", "f32[2,3]:-2:2 f32[2,3]:-2:2",
     [](V v) {
       return pn::stack({v[0], v[1]}, 1);
     }},
    {"split", "jnp.split(x, 3, 1)[1]", "f32[2,6]:-2:2",
     [](V v) { return pn::split(v[0], 3, 1)[1]; }},
    {"split_at", "jnp.split(x, [2, 5], 1)[1]", "f32[2,6]:-2:2",
     [](V v) {
       return pn::split_at(v[0], {2, 5}, 1)[1];
     }},
    {"tile", "jnp.tile(x, (2, 3))", "f32[2,2]:-2:2",
     [](V v) {
       return pn::tile(v[0], {2, 3});
     }},
    {"repeat", "jnp.repeat(x, 3, 1)", "f32[2,2]:-2:2", [](V v) { return pn::repeat(v[0], 3, 1); }},
    {"roll", "jnp.roll(x, -2, 1)", "f32[2,5]:-2:2", [](V v) { return pn::roll(v[0], -2, 1); }},
    {"flip", "jnp.flip(x, 0)", "f32[3,2]:-2:2", [](V v) { return pn::flip(v[0], 0); }},
    {"move_axis", "jnp.moveaxis(x, 0, 2)", "f32[2,3,4]:-2:2",
     [](V v) { return pn::move_axis(v[0], 0, 2); }},
    {"tril", "jnp.tril(x, 1)", "f32[3,4]:-2:2", [](V v) { return pn::tril(v[0], 1); }},
    {"triu", "jnp.triu(x, -1)", "f32[4,3]:-2:2", [](V v) { return pn::triu(v[0], -1); }},
    {"diagonal", "jnp.diagonal(x, 1)", "f32[3,4]:-2:2", [](V v) { return pn::diagonal(v[0], 1); }},
    {"matrix_trace", "jnp.trace(x)", "f32[3,4]:-2:2", [](V v) { return pn::matrix_trace(v[0]); }},
    {"linspace", "jnp.linspace(x, y, 5)", "f32[]:-2:0 f32[]:1:2",
     [](V v) { return pn::linspace(v[0].dtype(), v[0], v[1], 5); }},
    {"arange", "x + jnp.arange(1, 7, 2, dtype=jnp.float32)", "f32[3]:-2:2",
     [](V v) { return v[0] + pn::arange<float>(1, 7, 2); }},
    {"reduce_window_max", "lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (2, 1), 'SAME')",
     "f32[5,4]:-2:2",
     [](V v) {
       return pn::reduce_window(pn::Monoid::max, v[0], {2, 3},
                                {.strides = {2, 1}, .padding = "SAME"});
     }},
    {"reduce_window_sum",
     "lax.reduce_window(x, np.float32(0), lax.add, (2, 2), (1, 2), ((1, 0), (0, 1)))",
     "f32[5,4]:-2:2",
     [](V v) {
       return pn::reduce_window(pn::Monoid::add, v[0], {2, 2},
                                {.strides = {1, 2}, .padding = {{1, 0}, {0, 1}}});
     }},
    {"max_pool", "lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), 'VALID')",
     "f32[2,1,4,4]:-2:2",
     [](V v) {
       return pn::max_pool(v[0], {2, 2});
     }},
    {"avg_pool",
     "lax.reduce_window(x, np.float32(0), lax.add, (1, 1, 2, 2), (1, 1, 2, 2), 'VALID') / 4",
     "f32[2,1,4,4]:-2:2",
     [](V v) {
       return pn::avg_pool(v[0], {2, 2});
     }},
};

POSTERN_OPS_SUITE(OpsShape, shape_rows);

}  // namespace
}  // namespace ops
