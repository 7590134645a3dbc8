// Rows of the table: products, convolutions, indices, order, Fourier transforms.
#include "ops_table.h"

namespace ops {
namespace {

/// Rows of a matrix by indices of shape [n, 1].
const pn::IndexAxes rows_of_matrix{
    .window = {1}, .dropped = {0}, .indexed = {0}, .batch_x = {}, .batch_indices = {}};

const Row index_rows[] = {
    {"matmul", "x @ y", "f32[2,3]:-2:2 f32[3,4]:-2:2", [](V v) { return pn::matmul(v[0], v[1]); }},
    {"matmul_vector", "x @ y", "f32[2,3]:-2:2 f32[3]:-2:2",
     [](V v) { return pn::matmul(v[0], v[1]); }},
    {"matmul_batch", "x @ y", "f32[2,1,2,3]:-2:2 f32[4,3,2]:-2:2",
     [](V v) { return pn::matmul(v[0], v[1]); }},
    {"matmul_complex", "x @ y", "c64[2,3]:-2:2 c64[3,2]:-2:2",
     [](V v) { return pn::matmul(v[0], v[1]); }},
    {"matmul_s32", "x @ y", "s32[2,3]:-9:9 s32[3,2]:-9:9",
     [](V v) { return pn::matmul(v[0], v[1]); }, no},
    {"dot_general", "lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,))))",
     "f32[2,3,4]:-2:2 f32[2,4,5]:-2:2",
     [](V v) {
       return pn::dot_general(v[0], v[1], {{2}, {1}, {0}, {0}});
     }},
    {"dot", "jnp.dot(x, y)", "f32[3]:-2:2 f32[3]:-2:2", [](V v) { return pn::dot(v[0], v[1]); }},
    {"outer", "jnp.outer(x, y)", "f32[3]:-2:2 f32[2]:-2:2",
     [](V v) { return pn::outer(v[0], v[1]); }},
    {"tensordot", "jnp.tensordot(x, y, 2)", "f32[2,3,4]:-2:2 f32[3,4,2]:-2:2",
     [](V v) { return pn::tensordot(v[0], v[1], 2); }},
    {"einsum", "jnp.einsum('bij,bjk->bik', x, y)", "f32[2,3,4]:-2:2 f32[2,4,2]:-2:2",
     [](V v) {
       return pn::einsum("bij,bjk->bik", {v[0], v[1]});
     }},
    {"einsum_diagonal", "jnp.einsum('ii->i', x)", "f32[3,3]:-2:2",
     [](V v) { return pn::einsum("ii->i", {v[0]}); }},
    {"einsum_three", "jnp.einsum('ij,jk,k->i', x, y, z)", "f32[2,3]:-2:2 f32[3,4]:-2:2 f32[4]:-2:2",
     [](V v) {
       return pn::einsum("ij,jk,k->i", {v[0], v[1], v[2]});
     }},
    {"conv1",
     "lax.conv_general_dilated(x, y, (1,), 'VALID', dimension_numbers=('NCH', 'OIH', 'NCH'))",
     "f32[2,3,7]:-2:2 f32[4,3,3]:-2:2", [](V v) { return pn::conv(v[0], v[1]); }},
    {"conv2", "lax.conv_general_dilated(x, y, (2, 1), 'SAME')",
     "f32[2,2,5,6]:-2:2 f32[3,2,3,2]:-2:2",
     [](V v) {
       return pn::conv(v[0], v[1], {.strides = {2, 1}, .padding = "SAME"});
     }},
    {"conv_dilated",
     "lax.conv_general_dilated(x, y, (1, 1), ((1, 2), (0, 1)), lhs_dilation=(2, 1), "
     "rhs_dilation=(1, 2))",
     "f32[1,2,4,5]:-2:2 f32[2,2,2,2]:-2:2",
     [](V v) {
       return pn::conv(
           v[0], v[1],
           {.padding = {{1, 2}, {0, 1}}, .input_dilation = {2, 1}, .kernel_dilation = {1, 2}});
     }},
    {"conv_groups", "lax.conv_general_dilated(x, y, (1, 1), 'VALID', feature_group_count=2)",
     "f32[2,4,4,4]:-2:2 f32[6,2,2,2]:-2:2",
     [](V v) { return pn::conv(v[0], v[1], {.groups = 2}); }},
    {"conv3",
     "lax.conv_general_dilated(x, y, (1, 1, 1), 'VALID', dimension_numbers=('NCDHW', 'OIDHW', "
     "'NCDHW'))",
     "f32[1,2,3,3,3]:-2:2 f32[2,2,2,2,2]:-2:2", [](V v) { return pn::conv(v[0], v[1]); }},
    {"conv_general",
     "lax.conv_general_dilated(x, y, (1, 2), 'VALID', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))",
     "f32[2,4,5,2]:-2:2 f32[2,2,2,3]:-2:2",
     [](V v) {
       return pn::conv_general(v[0], v[1], {}, {.strides = {1, 2}});
     }},
    {"take", "jnp.take(x, y, 0)", "f32[5,3]:-2:2 s32[4]:-5:5",
     [](V v) { return pn::take(v[0], v[1], 0); }},
    {"take_axis", "jnp.take(x, y, 1)", "f32[2,6]:-2:2 s32[2,3]:0:6",
     [](V v) { return pn::take(v[0], v[1], 1); }},
    {"take_outside", "jnp.take(x, y, 0)", "f32[3]:-2:2 s32[6]:-6:6",
     [](V v) { return pn::take(v[0], v[1], 0); }, no},
    {"take_s32", "jnp.take(x, y, 0)", "s32[5]:-9:9 s32[3]:0:5",
     [](V v) { return pn::take(v[0], v[1], 0); }, no},
    {"take_along_axis", "jnp.take_along_axis(x, y, 1)", "f32[2,5]:-2:2 s32[2,3]:0:5",
     [](V v) { return pn::take_along_axis(v[0], v[1], 1); }},
    {"one_hot", "jax.nn.one_hot(x, 4, dtype=jnp.float32)", "s32[5]:-1:5",
     [](V v) { return pn::one_hot(v[0], 4); }, no},
    {"index_add", "x.at[y].add(z)", "f32[5,2]:-2:2 s32[4]:0:5 f32[4,2]:-2:2",
     [](V v) { return pn::index_add(v[0], v[1], v[2]); }},
    {"index_set", "x.at[jnp.array([3, 0])].set(y)", "f32[5,2]:-2:2 f32[2,2]:-2:2",
     [](V v) {
       return pn::index_set(v[0], pn::tensor<std::int32_t>({3, 0}), v[1]);
     }},
    {"index_min", "x.at[y].min(z)", "f32[5]:-2:2 s32[4]:0:5 f32[4]:-2:2",
     [](V v) { return pn::index_min(v[0], v[1], v[2]); }, ours},
    {"index_max", "x.at[y].max(z)", "f32[5]:-2:2 s32[4]:0:5 f32[4]:-2:2",
     [](V v) { return pn::index_max(v[0], v[1], v[2]); }, ours},
    {"index_multiply", "x.at[jnp.array([1, 4])].multiply(y)", "f32[5]:-2:2 f32[2]:-2:2",
     [](V v) {
       return pn::index_multiply(v[0], pn::tensor<std::int32_t>({1, 4}), v[1]);
     },
     no},
    {"gather",
     "lax.gather(x, y, lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), "
     "start_index_map=(0,)), (1, 3))",
     "f32[5,3]:-2:2 s32[4,1]:0:5",
     [](V v) {
       return pn::gather(v[0], v[1], rows_of_matrix, {1, 3});
     }},
    {"gather_outside",
     "lax.gather(x, y, lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), "
     "start_index_map=(0,)), (1, 3), "
     "mode='fill')",
     "f32[5,3]:-2:2 s32[6,1]:-3:9",
     [](V v) {
       return pn::gather(v[0], v[1], rows_of_matrix, {1, 3});
     },
     no},
    {"gather_clip",
     "lax.gather(x, y, lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), "
     "start_index_map=(0,)), (1, 3), "
     "mode='clip')",
     "f32[5,3]:-2:2 s32[6,1]:-3:9",
     [](V v) {
       return pn::gather(v[0], v[1], rows_of_matrix, {1, 3}, pn::OutOfRange::clip);
     }},
    {"scatter",
     "lax.scatter_add(x, y, z, lax.ScatterDimensionNumbers(update_window_dims=(1,), "
     "inserted_window_dims=(0,), "
     "scatter_dims_to_operand_dims=(0,)))",
     "f32[5,3]:-2:2 s32[4,1]:-2:7 f32[4,3]:-2:2",
     [](V v) { return pn::scatter(pn::Update::add, v[0], v[1], v[2], rows_of_matrix); }},
    {"scatter_set",
     "lax.scatter(x, jnp.array([[4], [1]]), y, "
     "lax.ScatterDimensionNumbers(update_window_dims=(1,), inserted_window_dims=(0,), "
     "scatter_dims_to_operand_dims=(0,)), unique_indices=True)",
     "f32[5,3]:-2:2 f32[2,3]:-2:2",
     [](V v) {
       return pn::scatter(pn::Update::set, v[0], pn::tensor<std::int32_t>({4, 1}, {2, 1}), v[1],
                          rows_of_matrix, {.unique = true});
     }},
    {"scatter_max",
     "lax.scatter_max(x, y, z, lax.ScatterDimensionNumbers(update_window_dims=(1,), "
     "inserted_window_dims=(0,), "
     "scatter_dims_to_operand_dims=(0,)))",
     "f32[5,3]:-2:2 s32[4,1]:0:5 f32[4,3]:-2:2",
     [](V v) { return pn::scatter(pn::Update::max, v[0], v[1], v[2], rows_of_matrix); }, ours},
    {"dynamic_slice", "lax.dynamic_slice(x, (y, jnp.int32(1)), (2, 2))", "f32[5,4]:-2:2 s32[]:0:6",
     [](V v) {
       return pn::dynamic_slice(v[0], {v[1], 1}, {2, 2});
     }},
    {"dynamic_update_slice", "lax.dynamic_update_slice(x, y, (z, jnp.int32(1)))",
     "f32[5,4]:-2:2 f32[2,2]:-2:2 s32[]:0:6",
     [](V v) {
       return pn::dynamic_update_slice(v[0], v[1], {v[2], 1});
     }},
    {"dynamic_index", "lax.dynamic_index_in_dim(x, y, 0, False)", "f32[5,4]:-2:2 s32[]:0:5",
     [](V v) { return pn::dynamic_index(v[0], v[1], 0); }},
    {"sort", "jnp.sort(x, 1)", "f32[2,5]:-2:2", [](V v) { return pn::sort(v[0], 1); }},
    {"sort_s32", "jnp.sort(x)", "s32[7]:-9:9", [](V v) { return pn::sort(v[0]); }, no},
    {"argsort", "jnp.argsort(x, 0).astype(jnp.int32)", "f32[5,2]:-2:2",
     [](V v) { return pn::argsort(v[0], 0); }, no},
    {"sort_by", "lax.sort((x, y), num_keys=1)[1]", "s32[8]:0:4 f32[8]:-2:2",
     [](V v) {
       return pn::sort_by({v[0], v[1]}, 1)[1];
     }},
    {"top_k", "lax.top_k(x, 3)[0]", "f32[2,6]:-2:2", [](V v) { return pn::top_k(v[0], 3).first; }},
    {"top_k_indices", "lax.top_k(x, 3)[1]", "f32[2,6]:-2:2",
     [](V v) { return pn::top_k(v[0], 3).second; }, no},
    {"searchsorted", "jnp.searchsorted(jnp.sort(x), y).astype(jnp.int32)",
     "f32[6]:-2:2 f32[4]:-2:2", [](V v) { return pn::searchsorted(pn::sort(v[0]), v[1]); }, no},
    {"fft", "jnp.fft.fft(x)", "c64[2,6]:-2:2", [](V v) { return pn::fft(v[0]); }},
    {"fft2", "jnp.fft.fft2(x)", "c64[3,4]:-2:2", [](V v) { return pn::fft(v[0], 2); }},
    {"ifft", "jnp.fft.ifft(x)", "c64[5]:-2:2", [](V v) { return pn::ifft(v[0]); }},
    {"rfft", "jnp.fft.rfft(x)", "f32[2,6]:-2:2", [](V v) { return pn::rfft(v[0]); }},
    {"rfft_odd", "jnp.fft.rfft(x)", "f32[5]:-2:2", [](V v) { return pn::rfft(v[0]); }},
    {"irfft", "jnp.fft.irfft(jnp.fft.rfft(x) * 2)", "f32[6]:-2:2",
     [](V v) { return pn::irfft(pn::rfft(v[0]) * 2); }},
    {"irfft_odd", "jnp.fft.irfft(jnp.fft.rfft(x) ** 2, 5)", "f32[5]:-2:2",
     [](V v) { return pn::irfft(pn::square(pn::rfft(v[0])), 1, 5); }},
    {"random_key", "jax.random.PRNGKey(12345678901)", "",
     [](V) { return pn::random::key(12345678901); }, no},
    {"random_bits", "jax.random.bits(x, (5,), 'uint32')", "u32[2]:0:4000000000",
     [](V v) { return pn::random::bits(v[0], pn::type<std::uint32_t>({5})); }, no},
    {"random_uniform", "jax.random.uniform(x, (2, 3), jnp.float32, -1, 2)", "u32[2]:0:4000000000",
     [](V v) {
       return pn::random::uniform(v[0], pn::type<float>({2, 3}), -1.0f, 2.0f);
     },
     no},
    {"random_normal", "jax.random.normal(x, (4,), jnp.float32)", "u32[2]:0:4000000000",
     [](V v) { return pn::random::normal(v[0], pn::type<float>({4})); }, no},
    {"random_truncated_normal", "jax.random.truncated_normal(x, -1, 0.5, (6,), jnp.float32)",
     "u32[2]:0:4000000000",
     [](V v) { return pn::random::truncated_normal(v[0], pn::type<float>({6}), -1, 0.5f); }, no},
    {"random_bernoulli", "jax.random.bernoulli(x, np.float32(0.3), (8,))", "u32[2]:0:4000000000",
     [](V v) { return pn::random::bernoulli(v[0], 0.3f, pn::Dims{8}); }, no},
    {"random_exponential", "jax.random.exponential(x, (4,), jnp.float32)", "u32[2]:0:4000000000",
     [](V v) { return pn::random::exponential(v[0], pn::type<float>({4})); }, no},
    {"random_gumbel", "jax.random.gumbel(x, (4,), jnp.float32)", "u32[2]:0:4000000000",
     [](V v) { return pn::random::gumbel(v[0], pn::type<float>({4})); }, no},
    {"random_split", "jax.random.split(x, 3)", "u32[2]:0:4000000000",
     [](V v) { return pn::random::split(v[0], 3); }, no},
    {"random_fold_in", "jax.random.fold_in(x, 7)", "u32[2]:0:4000000000",
     [](V v) { return pn::random::fold_in(v[0], pn::Tensor(7)); }, no},
    {"random_integers", "jax.random.randint(x, (6,), 0, 10, jnp.int32)", "u32[2]:0:4000000000",
     [](V v) { return pn::random::integers(v[0], pn::type<std::int32_t>({6}), 0, 10); }, no},
    {"random_permutation", "jax.random.permutation(x, 10).astype(jnp.int32)", "u32[2]:0:4000000000",
     [](V v) { return pn::random::permutation(v[0], 10); }, no},
    {"random_categorical",
     "jax.random.categorical(x, jnp.arange(6, dtype=jnp.float32).reshape(2, 3)).astype(jnp.int32)",
     "u32[2]:0:4000000000",
     [](V v) {
       return pn::random::categorical(v[0], pn::reshape(pn::iota<float>(6), {2, 3}));
     },
     no},
};

POSTERN_OPS_SUITE(OpsIndex, index_rows);

}  // namespace
}  // namespace ops
