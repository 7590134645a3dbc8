// Whose line an error names: that of whoever called a public function wrongly, never one of the
// library's. `scripts/reference --check` finds public functions that are not in the tables here or
// of the other parts.
#include <postern/dlpack.h>

#include <filesystem>
#include <functional>

#include "core/places_test.h"

namespace postern {
namespace {

using namespace places_test;

/// Of a trace that is over.
Tensor leaked() {
  Tensor out;
  static_cast<void>(jit([&](Tensor x) { return out = x * 2.0f; })(Tensor(1.0f)));
  return out;
}

TEST(Places, OfElementwiseOperations) {
  const Tensor x = tensor<float>({1, 2});
  Tensor v = x;
  expect_own_lines({WRONG(none + x),
                    WRONG(x + none),
                    WRONG(x - none),
                    WRONG(x * none),
                    WRONG(x / none),
                    WRONG(x % none),
                    WRONG(x == none),
                    WRONG(x != none),
                    WRONG(x < none),
                    WRONG(x <= none),
                    WRONG(x > none),
                    WRONG(x >= none),
                    WRONG(x & none),
                    WRONG(x | none),
                    WRONG(x ^ none),
                    WRONG(-none),
                    WRONG(~none),
                    WRONG(v += none),
                    WRONG(v -= none),
                    WRONG(v *= none),
                    WRONG(v /= none),
                    WRONG(v %= none),
                    WRONG(v &= none),
                    WRONG(v |= none),
                    WRONG(v ^= none),
                    WRONG(v += tensor<float>({1, 2, 3})),
                    WRONG(x + leaked()),
                    WRONG(add(none, x)),
                    WRONG(subtract(x, none)),
                    WRONG(multiply(x, none)),
                    WRONG(divide(x, none)),
                    WRONG(remainder(x, none)),
                    WRONG(negative(none)),
                    WRONG(pow(x, none)),
                    WRONG(maximum(x, none)),
                    WRONG(minimum(x, none)),
                    WRONG(abs(none)),
                    WRONG(sign(none)),
                    WRONG(exp(none)),
                    WRONG(expm1(none)),
                    WRONG(log(none)),
                    WRONG(log1p(none)),
                    WRONG(sqrt(none)),
                    WRONG(rsqrt(none)),
                    WRONG(cbrt(none)),
                    WRONG(sin(none)),
                    WRONG(cos(none)),
                    WRONG(tan(none)),
                    WRONG(tanh(none)),
                    WRONG(atan2(x, none)),
                    WRONG(logistic(none)),
                    WRONG(erf(none)),
                    WRONG(erfc(none)),
                    WRONG(erf_inv(none)),
                    WRONG(relu(none)),
                    WRONG(gelu(none)),
                    WRONG(silu(none)),
                    WRONG(dropout(x, x, 0.5)),
                    WRONG(cross_entropy(x, x, 1)),
                    WRONG(floor(none)),
                    WRONG(ceil(none)),
                    WRONG(round(none)),
                    WRONG(is_finite(none)),
                    WRONG(square(none)),
                    WRONG(equal(x, none)),
                    WRONG(not_equal(x, none)),
                    WRONG(less(x, none)),
                    WRONG(less_equal(x, none)),
                    WRONG(greater(x, none)),
                    WRONG(greater_equal(x, none)),
                    WRONG(logical_and(x, x)),
                    WRONG(logical_or(x, x)),
                    WRONG(logical_xor(x, x)),
                    WRONG(logical_not(x)),
                    WRONG(population_count(x)),
                    WRONG(count_leading_zeros(x)),
                    WRONG(shift_left(x, 1)),
                    WRONG(shift_right(x, 1)),
                    WRONG(shift_right_logical(x, 1)),
                    WRONG(where(x, x, x)),
                    WRONG(convert(none, DType::s32)),
                    WRONG(convert<int>(none)),
                    WRONG(bitcast(x, DType::s64)),
                    WRONG(real(none)),
                    WRONG(imag(none)),
                    WRONG(conj(none)),
                    WRONG(complex(x, none)),
                    WRONG(clip(x, none, x)),
                    WRONG(isclose(x, none)),
                    WRONG(allclose(x, none))});
}

TEST(Places, OfOperationsOnAxes) {
  const Tensor x = tensor<float>({1, 2}), i(0);
  const std::vector<Tensor> bad{x, none};
  const auto sum_of = [](Tensor a, Tensor b) { return a + b; };
  const CombineFunction both = [](const auto& a, const auto&) { return a; };
  const std::vector<Operand> zero{0.0f};
  expect_own_lines({WRONG(full(f32x2, none)),
                    WRONG(zeros({DType::f32, {-1}})),
                    WRONG(ones({DType::f32, {-1}})),
                    WRONG(zeros_like(none)),
                    WRONG(ones_like(none)),
                    WRONG(iota(f32x2, 1)),
                    WRONG(iota<float>(-1)),
                    WRONG(eye(DType::f32, -1, 2)),
                    WRONG(eye<float>(-1)),
                    WRONG(reshape(x, {3})),
                    WRONG(transpose(x, {1})),
                    WRONG(transpose(none)),
                    WRONG(broadcast_to(x, {3})),
                    WRONG(expand_dims(x, 5)),
                    WRONG(squeeze(x, {0})),
                    WRONG(concatenate({x, none})),
                    WRONG(concatenate(bad)),
                    WRONG(slice(x, {0}, {3})),
                    WRONG(slice_axis(x, 1, 0, 1)),
                    WRONG(pad(x, none, one, one)),
                    WRONG(reverse(x, {1})),
                    WRONG(sum(x, {.axes = one})),
                    WRONG(prod(none)),
                    WRONG(max(none)),
                    WRONG(min(none)),
                    WRONG(mean(none)),
                    WRONG(all(none)),
                    WRONG(any(none)),
                    WRONG(argmax(x, 1)),
                    WRONG(argmin(x, 1)),
                    WRONG(matmul(x, none)),
                    WRONG(dot_general(x, none, {})),
                    WRONG(take(x, x)),
                    WRONG(one_hot(x, 2)),
                    WRONG(sort(x, 1)),
                    WRONG(argsort(x, 1)),
                    WRONG(softmax(x, 1)),
                    WRONG(log_softmax(x, 1)),
                    WRONG(logsumexp(none)),
                    WRONG(stack({x, none})),
                    WRONG(stack(bad)),
                    WRONG(split(x, 3)),
                    WRONG(split_at(x, {5})),
                    WRONG(tile(x, {-1})),
                    WRONG(repeat(x, -1, 0)),
                    WRONG(roll(x, 1, 1)),
                    WRONG(flip(x, 1)),
                    WRONG(move_axis(x, 0, 1)),
                    WRONG(tril(x)),
                    WRONG(triu(x)),
                    WRONG(diagonal(x)),
                    WRONG(matrix_trace(x)),
                    WRONG(linspace(DType::f32, none, x, 2)),
                    WRONG(linspace<float>(none, x, 2)),
                    WRONG(arange(f32x2, none, x)),
                    WRONG(arange(0, 4, 0)),
                    WRONG(x[2]),
                    WRONG(x[{0, 1, 0}]),
                    WRONG(x[x]),
                    WRONG(take_along_axis(x, x)),
                    WRONG(index_set(x, x, x)),
                    WRONG(index_add(x, x, x)),
                    WRONG(index_multiply(x, x, x)),
                    WRONG(index_min(x, x, x)),
                    WRONG(index_max(x, x, x)),
                    WRONG(dynamic_slice(x, {}, two)),
                    WRONG(dynamic_update_slice(x, x, {})),
                    WRONG(dynamic_index(x, x)),
                    WRONG(gather(x, x, {}, two)),
                    WRONG(scatter(Update::set, x, x, x, {})),
                    WRONG(conv(x, none)),
                    WRONG(conv_general(x, none, {})),
                    WRONG(ConvPadding("other")),
                    WRONG(einsum("i->j", {x})),
                    WRONG(einsum("i->j", bad)),
                    WRONG(dot(x, none)),
                    WRONG(outer(x, none)),
                    WRONG(tensordot(x, none)),
                    WRONG(tensordot(x, x, two, one)),
                    WRONG(cumsum(x, 1)),
                    WRONG(cumprod(x, 1)),
                    WRONG(cummax(x, 1)),
                    WRONG(cummin(x, 1)),
                    WRONG(cumlogsumexp(x, 1)),
                    WRONG(reduce(sum_of, none, i)),
                    WRONG(reduce(both, bad, zero)),
                    WRONG(associative_scan(both, bad)),
                    WRONG(variance(none)),
                    WRONG(standard_deviation(none)),
                    WRONG(layer_norm(none, x, x)),
                    WRONG(fft(i)),
                    WRONG(ifft(i)),
                    WRONG(rfft(i)),
                    WRONG(irfft(i)),
                    WRONG(reduce_window(Monoid::add, x, {0})),
                    WRONG(max_pool(x, {0})),
                    WRONG(avg_pool(x, {0})),
                    WRONG(sort_by(bad)),
                    WRONG(top_k(x, 3)),
                    WRONG(searchsorted(i, i))});
}

TEST(Places, OfLinearAlgebraAndRandomNumbers) {
  const Tensor x = tensor<float>({1, 2});
  namespace l = linalg;
  namespace r = random;
  expect_own_lines({WRONG(l::cholesky(x)),
                    WRONG(l::lu(x)),
                    WRONG(l::plu(x)),
                    WRONG(l::qr(x)),
                    WRONG(l::eigh(x)),
                    WRONG(l::eigvalsh(x)),
                    WRONG(l::svd(x)),
                    WRONG(l::svdvals(x)),
                    WRONG(l::eigvals(x)),
                    WRONG(l::solve(x, x)),
                    WRONG(l::triangular_solve(x, x)),
                    WRONG(l::inv(x)),
                    WRONG(l::det(x)),
                    WRONG(l::slogdet(x)),
                    WRONG(l::lstsq(x, x)),
                    WRONG(l::pinv(x)),
                    WRONG(l::matrix_rank(x)),
                    WRONG(l::matrix_power(x, 2)),
                    WRONG(l::expm(x)),
                    WRONG(r::split(x)),
                    WRONG(r::fold_in(x, 1)),
                    WRONG(r::bits(x, f32x2)),
                    WRONG(r::uniform(x, f32x2)),
                    WRONG(r::normal(x, f32x2)),
                    WRONG(r::truncated_normal(x, f32x2, -1, 1)),
                    WRONG(r::integers(x, f32x2, 0, 2)),
                    WRONG(r::bernoulli(x, 0.5f)),
                    WRONG(r::exponential(x, f32x2)),
                    WRONG(r::gumbel(x, f32x2)),
                    WRONG(r::categorical(x, x)),
                    WRONG(r::permutation(x, x)),
                    WRONG(r::permutation(x, 3))});
}

TEST(Places, OfTensorsAndTypes) {
  const Type bad{DType::f32, {-1}}, large{DType::f32, {1L << 40, 1L << 40}};
  const Tensor x = tensor<float>({1, 2}), traced = leaked();
  const std::vector<float> numbers{1, 2, 3};
  std::ostringstream out;
  float to[2];
  const AnyView view(DType::f32, reinterpret_cast<const std::byte*>(to), two.data(), 1, 2);
  const Attributes a{{"n", 1}};
  const Dims d{-1};
  expect_own_lines({WRONG(bad.byte_size() + large.size()),
                    WRONG(large.byte_size()),
                    WRONG(make_type(DType::f32, d)),
                    WRONG(type<float>(d)),
                    WRONG(Tensor(bad, to)),
                    WRONG(Tensor::borrow(bad, to, [] {})),
                    WRONG(make_tensor(f32x2, to, 3)),
                    WRONG(tensor<float>({1, 2, 3}, {2})),
                    WRONG(tensor<float>(numbers, {2})),
                    WRONG(tensor<float>({{1, 2}, {3}})),
                    WRONG(tensor<float>({{{1, 2}, {3}}})),
                    WRONG(abstract(bad)),
                    WRONG(none.type()),
                    WRONG(none.dtype()),
                    WRONG(none.dims()),
                    WRONG(none.rank()),
                    WRONG(none.size()),
                    WRONG(traced.item<float>()),
                    WRONG(none.to_vector<float>()),
                    WRONG(traced.read(to)),
                    WRONG(traced.block_until_ready()),
                    WRONG(x.item<int>()),
                    WRONG(to_string(traced)),
                    WRONG(out << none),
                    WRONG(to_string(x, {.threshold = -1})),
                    WRONG(to_string(view, {.edge_items = -1})),
                    WRONG(view.as<int>()),
                    WRONG(a.get<double>("n")),
                    WRONG(a.get<double>("m")),
                    WRONG(shards_of(traced)),
                    WRONG(DeviceScope(99)),
                    WRONG(costs(99)),
                    WRONG(device_put(x, 99)),
                    WRONG(collect(none))});
}

TEST(Places, OfFilesAndListeners) {
  const Tensor x = tensor<float>({1, 2}), traced = leaked();
  const NamedTensors twice{{"x", x}, {"x", x}}, of_traced{{"x", traced}};
  const std::filesystem::path p = std::filesystem::temp_directory_path() / "places_test.npy";
  const AnyView bf16(DType::bf16, nullptr, nullptr, 0, 0);
  const auto state = [](std::string_view) {};
  const std::string no_text(1, '\xff');
  const Attributes no_utf8{{no_text, 1}};
  const auto with_closure = [](Tensor v) {
    return call(
        v.type(), [](float n) { return n; }, v);
  };
  const Lowered lowered = jit(with_closure).lower(Tensor(1.0f));
  const TracedProgram program = jit(with_closure).program(Tensor(1.0f));
  const Mesh mesh({{"x", 2}});
  const Sharding rows(mesh, P("x"));
  const std::vector<int> many{0, 0};
  const std::string cpu = "abacus";
  const auto live = jit([](Tensor v) { return hook("of_places", v, {.live = true}); });
  static_cast<void>(live(x));
  std::vector<LiveHook> hooks = live_hooks();
  std::erase_if(hooks, [](const LiveHook& h) { return h.name() != "of_places"; });
  ASSERT_EQ(hooks.size(), 1u);
  const Listening on = hooks[0].turn_on([](const AnyView&) {});
  const auto loaded = load_text(saved_text(jit([](Tensor v) { return v; }).lower(x)));
  namespace n = listen;
  expect_own_lines({WRONG(write_npy(p, traced)),
                    WRONG(write_npz(p, twice)),
                    WRONG(write_npz(p, of_traced)),
                    WRONG(npy_bytes(bf16)),
                    WRONG(save_tensors(p, of_traced)),
                    WRONG(save_tensors(p, twice)),
                    WRONG(save_tensors(p, traced)),
                    WRONG(save(p, lowered)),
                    WRONG(saved_text(lowered)),
                    WRONG(register_state(
                        "", [] { return std::string(); }, state)),
                    WRONG(n::progress(0)),
                    WRONG(n::Progress(0)),
                    WRONG(n::record("x")),
                    WRONG(n::Record("x")),
                    WRONG(n::histogram({.bins = 3})),
                    WRONG(n::Histogram({.bins = 3})),
                    WRONG(n::png("x")),
                    WRONG(n::Png("x")),
                    WRONG(n::csv("")),
                    WRONG(n::jsonl("")),
                    WRONG(n::tensorboard("")),
                    WRONG(n::TensorBoard("")),
                    WRONG(n::checkpoint("")),
                    WRONG(n::Checkpoint("")),
                    WRONG(serve({.port = -1})),
                    WRONG(configure({.cpu_devices = -1})),
                    WRONG(tap_queue_stats(-1)),
                    WRONG(to_json_text(no_utf8)),
                    WRONG(register_function("", [](float) {})),
                    WRONG(register_ffi_handler("", nullptr)),
                    WRONG(ffi_handlers(cpu)),
                    WRONG(program.text(cpu)),
                    WRONG(Mesh({{"x", 0}})),
                    WRONG(Mesh({{"x", 2}}, many)),
                    WRONG(mesh.size("y")),
                    WRONG(Sharding(mesh, P("y"))),
                    WRONG(rows.part_type({DType::f32, {3}})),
                    WRONG(rows.part({3}, 0)),
                    WRONG(rows.part({4}, 2)),
                    WRONG(draw(rows, {})),
                    WRONG(loaded.run({})),
                    WRONG(loaded.start({})),
                    WRONG(to_dlpack(traced)),
                    WRONG(from_dlpack(nullptr)),
                    WRONG(hooks[0].change({.every = 0})),
                    WRONG(on.change({.every = 0}))});
  std::filesystem::remove(p);
}

TEST(Places, OfFunctionsOfFunctions) {
  const Tensor x = tensor<float>({1, 2}), i(0);
  const auto f = [](Tensor v) { return v * v; };
  const auto grows = [](Tensor v) { return concatenate({v, v}); };
  const auto yes = [](Tensor) { return Tensor(true); };
  const auto show = [](View<const int>) {};
  const Loaded loaded =
      load_text("func.func @main(%x: tensor<f32>) -> tensor<f32> {return %x : tensor<f32>}");
  const auto twice = [](View<const float> in, View<float> out) { out[0] = in[0]; };
  const auto fwd = [](Tensor v) { return std::pair{v, v}; };
  const auto bwd = [](Tensor, Tensor ct) { return std::pair{ct, ct}; };
  const auto rule = [](const auto& v, const auto&) { return std::pair{std::get<0>(v), v}; };
  const auto solve = [](auto, Tensor b) { return std::pair{b, b}; };
  const auto scale = [](Tensor r, Tensor v) { return r * v; };
  const std::tuple xs{x};
  using namespace literals;
  expect_own_lines({WRONG(jvp(f, xs, std::tuple{tensor<int>({1})})),
                    WRONG(grad(f)(x)),
                    WRONG(value_and_grad(f)(x)),
                    WRONG(jacfwd(f)(none)),
                    WRONG(jacrev(f)(none)),
                    WRONG(hessian(f)(none)),
                    WRONG(vmap(f)(i)),
                    WRONG(vectorize(f, "(")(x)),
                    WRONG(stop_gradient(none)),
                    WRONG(custom_jvp(f, rule)(none)),
                    WRONG(grad([&](Tensor v) { return sum(custom_vjp(f, fwd, bwd)(v)); })(x)),
                    WRONG(linear_call(scale, scale, none, x)),
                    WRONG(custom_root(f, none, solve, solve)),
                    WRONG(custom_linear_solve(f, none, solve)),
                    WRONG(checkpoint(f)(none)),
                    WRONG(ffi_call("", f32x2, std::nullopt, x)),
                    WRONG(cond(x, f, f, x)),
                    WRONG(switch_(x, std::tuple{f, f}, x)),
                    WRONG(while_loop(yes, grows, x)),
                    WRONG(fori_loop(
                        0, 2, [&](Tensor, Tensor v) { return grows(v); }, x)),
                    WRONG(scan(
                        [](Tensor c, Tensor v) {
                          return std::pair{c, v};
                        },
                        x, i)),
                    WRONG(map(f, i)),
                    WRONG(call(f32x2, twice, none)),
                    WRONG(call({.device = 99}, f32x2, twice, x)),
                    WRONG(tap(x, show)),
                    WRONG(print("{} {}", x)),
                    WRONG(print_value({.threshold = -1}, x)),
                    WRONG(check(x, "text")),
                    WRONG(keep(none)),
                    WRONG(hook("h", x, {.every = 0}, show)),
                    WRONG(start_call(f32x2, twice, none)),
                    WRONG(psum(x, "a")),
                    WRONG(pmean(x, "a")),
                    WRONG(pmax(x, "a")),
                    WRONG(pmin(x, "a")),
                    WRONG(all_gather(x, "a")),
                    WRONG(reduce_scatter(x, "a")),
                    WRONG(all_to_all(x, "a", 0, 0)),
                    WRONG(ppermute(x, "a", {})),
                    WRONG(axis_index("a")),
                    WRONG(axis_size("a")),
                    WRONG(loaded.with_tap("none", show)),
                    WRONG(loaded.with_hook("none")),
                    WRONG(loaded.with_replacement("none", nullptr)),
                    WRONG(jit(f)(none)),
                    WRONG(jit(f)(leaked())),
                    WRONG(jit(f, {.donate = {5}})(x)),
                    WRONG(jit(f).lower(none)),
                    WRONG(jit(f).compile(none)),
                    WRONG(jit(f).stages(none)),
                    WRONG(jit(f).program(none)),
                    WRONG(jit(f).hooks(none)),
                    WRONG(jit(f).start(none)),
                    WRONG(jit(f).start_with({}, none)),
                    WRONG(jit(f).run({}, none)),
                    WRONG(jit(f).stream({}, none)),
                    WRONG(jit(f).start_with({.deadline = std::chrono::seconds(-1)}, x)),
                    WRONG(jit(f, {.mode = static_cast<Mode>(99)})),
                    WRONG(broadcast(x, "a")),
                    WRONG(jit(f).with_hooks({{"h", show}, {"h", show}})),
                    WRONG(pbarrier("a")),
                    WRONG(shard_map(f, Mesh({{"x", 2}}), {.in = P("y"), .out = P("x")})(x)),
                    WRONG(pmap(f)(i)),
                    WRONG(inspect_sharding(none, [](const Sharding&) {})),
                    WRONG(scatter_from(x, "a")),
                    WRONG(gather_to(x, "a")),
                    WRONG(send_recv(x, "a", 0, 1))});
}

}  // namespace
}  // namespace postern
