// Derivatives and batches of blocks: those of the default, and those that overrides bring.
#include "block_test.h"

namespace postern {
namespace {

using test::has;
using test::Removed, test::Scale, test::expect_error, test::native_scale, test::scale;
using Floats = std::vector<float>;

TEST(Block, DerivativesAreTheDefaults) {
  RecordProperty("covers", "BLOCK-07");
  if (test::skipped_in_stages("kernels are custom calls")) return;
  int fired = 0;
  for (const bool native : {false, true}) {
    const Removed handle{native ? native_scale(fired) : OverrideHandle()};
    auto f = [](Tensor x) { return scale(x * x, 3); };
    EXPECT_EQ(grad(f)(Tensor(3.0f)).item<float>(), 18);
    EXPECT_EQ(jit(grad(f))(Tensor(3.0f)).item<float>(), 18);
    EXPECT_EQ(jit(grad(grad(f)))(Tensor(3.0f)).item<float>(), 6);
    auto cubed = [](Tensor x) {
      return block(
          Scale{3}, [](Tensor v) { return v * v * v; }, x);
    };
    EXPECT_EQ(jit(grad(grad(cubed)))(Tensor(2.0f)).item<float>(), 12);
    EXPECT_EQ(jit(hessian(cubed))(Tensor(2.0f)).item<float>(), 12);
    EXPECT_EQ(jit(grad([&](Tensor x) { return jvp(cubed, x, Tensor(1.0f)).second; }))(Tensor(2.0f))
                  .item<float>(),
              12);
  }
  EXPECT_GT(fired, 0);
}

TEST(Block, StaysABlockUnderDerivatives) {
  if (test::skipped_in_stages("kernels are custom calls")) return;
  int fired = 0;
  const Removed handle{native_scale(fired)};
  auto f = jit(value_and_grad([](Tensor x) { return sum(scale(tanh(x), 3)); }));
  const auto [y, slope] = f(tensor<float>({0, 0}));
  EXPECT_EQ(fired, 1) << f.program(tensor<float>({0, 0}));
  EXPECT_EQ(slope.to_vector<float>(), (Floats{3, 3}));
}

TEST(Block, CapturedTensorsAreDifferentiatedToo) {
  auto f = [](Tensor x, Tensor w) {
    return block(
        Scale{2}, [&](Tensor v) { return v * w; }, x);
  };
  EXPECT_EQ(jit(grad<1>(f))(Tensor(3.0f), Tensor(5.0f)).item<float>(), 3);
  EXPECT_EQ(jit(vmap(f, {.in_axes = {unmapped, 0}}))(Tensor(3.0f), tensor<float>({1, 2}))
                .to_vector<float>(),
            (Floats{3, 6}));
}

OverrideHandle scale_with_vjp(int& forward, int& backward) {
  return override_block<Scale>(
      {.kernel =
           [](const Scale& s, View<const float> in, View<float> out) {
             for (std::int64_t i = 0; i < in.size(); ++i)
               out[i] = in[i] * static_cast<float>(s.factor);
           },
       .vjp = {
           .forward =
               [&forward](const Scale& s, std::span<const Tensor> x) {
                 const float by = static_cast<float>(s.factor);
                 const Tensor y = call(
                     x[0],
                     [&forward, by](View<const float> in, View<float> out) {
                       ++forward;
                       for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] * by;
                     },
                     x[0]);
                 return std::pair{std::vector<Tensor>{y}, std::vector<Tensor>{}};
               },
           .backward =
               [&backward](const Scale& s, std::span<const Tensor>, std::span<const Tensor> ct) {
                 const float by = static_cast<float>(s.factor);
                 return std::vector<Tensor>{call(
                     ct[0],
                     [&backward, by](View<const float> in, View<float> out) {
                       ++backward;
                       for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] * by;
                     },
                     ct[0])};
               }},
       .batch = VmapMethod::broadcast_all});
}

TEST(Block, AnOverrideBringsItsOwnDerivative) {
  RecordProperty("covers", "BLOCK-08");
  if (test::skipped_in_stages("kernels are custom calls")) return;
  int forward = 0, backward = 0;
  const Removed handle{scale_with_vjp(forward, backward)};
  auto f = [](Tensor x) { return sum(scale(x, 3)); };
  auto both = jit(value_and_grad(f));
  const auto [y, slope] = both(tensor<float>({1, 2}));
  EXPECT_EQ(y.item<float>(), 9);
  EXPECT_EQ(slope.to_vector<float>(), (Floats{3, 3}));
  EXPECT_EQ(forward, 1);
  EXPECT_EQ(backward, 1);
  EXPECT_FALSE(has(both.lower(tensor<float>({1, 2})).stablehlo(), "multiply"));
  EXPECT_EQ(grad(f)(tensor<float>({1, 2})).to_vector<float>(), (Floats{3, 3}));
  // Forward mode has the default's.
  EXPECT_EQ(jit([&](Tensor x) { return jvp(f, x, ones_like(x)).second; })(tensor<float>({1, 2}))
                .item<float>(),
            6);
  // Batches, inside and outside.
  const Tensor rows = tensor<float>({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(jit(vmap(grad(f)))(rows).to_vector<float>(), (Floats{3, 3, 3, 3}));
  EXPECT_EQ(jit(grad([&](Tensor x) { return sum(vmap(f)(x)); }))(rows).to_vector<float>(),
            (Floats{3, 3, 3, 3}));
}

TEST(Block, BatchesAreTheDefaultsOrTheOverrides) {
  RecordProperty("covers", "BLOCK-09");
  if (test::skipped_in_stages("kernels are custom calls")) return;
  const Tensor rows = tensor<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  auto f = jit(vmap([](Tensor x) { return scale(x, 2); }));
  const Floats doubled = {2, 4, 6, 8, 10, 12};
  EXPECT_EQ(f(rows).to_vector<float>(), doubled);
  struct Row {
    std::optional<VmapMethod> method;
    int firings;
  };
  for (const Row& row : {Row{{}, 0}, Row{VmapMethod::sequential, 3},
                         Row{VmapMethod::broadcast_all, 1}, Row{VmapMethod::expand_dims, 1}}) {
    int fired = 0;
    const Removed handle{native_scale(fired, row.method)};
    EXPECT_EQ(f(rows).to_vector<float>(), doubled);
    EXPECT_EQ(fired, row.firings);
    EXPECT_EQ(jit(vmap(vmap([](Tensor x) { return scale(x, 2); })))(rows).to_vector<float>(),
              doubled);
    EXPECT_EQ(jit(vmap(grad([](Tensor x) { return sum(scale(x, 2)); })))(rows).to_vector<float>(),
              Floats(6, 2));
  }
}

TEST(Block, BatchedInsideABranchOnlyLiveElementsCount) {
  RecordProperty("covers", "BLOCK-09");
  if (test::skipped_in_stages("kernels are custom calls")) return;
  int fired = 0;
  const Removed handle{native_scale(fired, VmapMethod::sequential)};
  auto f = jit(vmap([](Tensor p, Tensor x) {
    return cond(
        p, [](Tensor v) { return scale(v, 2); }, [](Tensor v) { return v; }, x);
  }));
  EXPECT_EQ(f(tensor<bool>({true, false, true}), tensor<float>({1, 2, 3})).to_vector<float>(),
            (Floats{2, 2, 6}));
  EXPECT_EQ(fired, 2);
}

struct Bend {
  static constexpr std::string_view name = "bend";
};
Tensor bend(const Tensor& x) {
  return block(
      Bend{}, [](Tensor v) { return tanh(v); }, x);
}

TEST(Block, AnOwnDerivativeKeepsWhatItWants) {
  RecordProperty("covers", "BLOCK-08");
  int forward = 0, backward = 0;
  const Removed handle{override_block<Bend>(
      {.program = [](const Bend&,
                     std::span<const Tensor> x) { return std::vector<Tensor>{tanh(x[0])}; },
       .vjp = {.forward =
                   [&](const Bend&, std::span<const Tensor> x) {
                     ++forward;
                     const Tensor y = tanh(x[0]);
                     return std::pair{std::vector<Tensor>{y},
                                      std::vector<Tensor>{1.0f - y * y, Tensor(10.0f)}};
                   },
               .backward =
                   [&](const Bend&, std::span<const Tensor> kept, std::span<const Tensor> ct) {
                     ++backward;
                     return std::vector<Tensor>{kept[0] * kept[1] *
                                                ct[0]};  // ten times too much: seen to be used
                   }}})};
  auto f = [](Tensor x) { return sum(bend(x)); };
  const Tensor zero = tensor<float>({0, 0});
  EXPECT_EQ(grad(f)(zero).to_vector<float>(), (Floats{10, 10}));
  EXPECT_EQ(jit(vmap(grad(f)))(reshape(zero, {2, 1})).to_vector<float>(), (Floats{10, 10}));
  EXPECT_EQ(jit(grad([&](Tensor x) { return sum(vmap(bend)(x)); }))(zero).to_vector<float>(),
            (Floats{10, 10}));
  auto loop = [](Tensor x) {
    return sum(fori_loop(
        0, 2, [](Tensor, Tensor v) { return bend(v); }, x));
  };
  EXPECT_EQ(jit(grad(loop))(zero).to_vector<float>(), (Floats{100, 100}));
  EXPECT_GT(forward, 0);
  EXPECT_GT(backward, 0);
  // An operand that is the same for the whole batch gets the sum.
  EXPECT_EQ(jit(grad([](Tensor x) {
              return sum(vmap([&](Tensor) { return bend(x); })(tensor<float>({1, 2, 3})));
            }))(Tensor(0.0f))
                .item<float>(),
            30);
}

TEST(Block, WrongOwnDerivativesAreRefused) {
  auto with = [](std::vector<Tensor> cotangents) {
    return override_block<Bend>(
        {.program = [](const Bend&,
                       std::span<const Tensor> x) { return std::vector<Tensor>{tanh(x[0])}; },
         .vjp = {.forward =
                     [](const Bend&, std::span<const Tensor> x) {
                       return std::pair{std::vector<Tensor>{tanh(x[0])}, std::vector<Tensor>{}};
                     },
                 .backward = [=](const Bend&, std::span<const Tensor>,
                                 std::span<const Tensor>) { return cotangents; }}});
  };
  auto slope = [] { grad([](Tensor x) { return sum(bend(x)); })(tensor<float>({0, 0})); };
  {
    const Removed handle{with({})};
    expect_error<TypeError>(slope, {"bend", "0 cotangents for 1 operands"});
  }
  const Removed handle{with({Tensor(1.0f)})};
  expect_error<TypeError>(slope, {"bend", "f32[]", "operand 0, which is f32[2]"});
  expect_error<TypeError>(
      [] {
        override_block<Bend>(
            {.program = [](const Bend&,
                           std::span<const Tensor> x) { return std::vector<Tensor>{x[0]}; },
             .vjp = {
                 .backward = [](const Bend&, std::span<const Tensor>, std::span<const Tensor> ct) {
                   return std::vector<Tensor>{ct[0]};
                 }}});
      },
      {"bend", "both forward and backward"});
}

TEST(Block, CapturesUnderBatchesDerivativesAndOverrides) {
  if (test::skipped_in_stages("kernels are custom calls")) return;
  auto f = [](Tensor x, Tensor w) {
    return block(
        Scale{2}, [&](Tensor v) { return v * w; }, x);
  };
  const Tensor three(3.0f), rows = tensor<float>({1, 2});
  auto slopes = vmap(grad<0, 1>(f), {.in_axes = {unmapped, 0}});
  EXPECT_EQ(std::get<0>(jit(slopes)(three, rows)).to_vector<float>(), (Floats{1, 2}));
  EXPECT_EQ(std::get<1>(jit(slopes)(three, rows)).to_vector<float>(), (Floats{3, 3}));
  auto second = grad([&](Tensor w) { return sum(vmap(f, {.in_axes = {unmapped, 0}})(three, w)); });
  EXPECT_EQ(jit(second)(rows).to_vector<float>(), (Floats{3, 3}));
  // An override sees the operands alone: it is used once for the whole batch.
  int fired = 0;
  const Removed handle{native_scale(fired, VmapMethod::sequential)};
  EXPECT_EQ(jit(vmap(f, {.in_axes = {unmapped, 0}}))(three, rows).to_vector<float>(),
            (Floats{6, 6}));
}

TEST(Block, TangentsAloneDoNotBatchTheBlock) {
  if (test::skipped_in_stages("kernels are custom calls")) return;
  int fired = 0;
  const Removed handle{native_scale(fired)};  // without a batching method
  const Tensor x = tensor<float>({1, 2, 3});
  EXPECT_EQ(jit(jacfwd([](Tensor v) { return scale(v, 2); }))(x).to_vector<float>(),
            (Floats{2, 0, 0, 0, 2, 0, 0, 0, 2}));
  EXPECT_EQ(fired, 0) << "its value is not asked for";
  auto both = jit([](Tensor v) {
    return vmap([&](Tensor t) { return jvp([](Tensor u) { return scale(u, 2); }, v, t); },
                {.out_axes = 0})(eye<float>(3))
        .first;
  });
  EXPECT_EQ(both(x).to_vector<float>(), (Floats{2, 4, 6, 2, 4, 6, 2, 4, 6}));
  EXPECT_EQ(fired, 1);
}

TEST(Block, DeadElementsOfABatchDoNotFail) {
  if (test::skipped_in_stages("kernels are custom calls")) return;
  const Tensor batch = tensor<float>({4, 2, 2, 3, 1, 2, 2, 1}, {2, 2, 2});
  auto f = jit(vmap([](Tensor p, Tensor a) {
    return cond(
        p, [](Tensor m) { return linalg::cholesky(m, linalg::Failure::error); },
        [](Tensor m) { return m; }, a);
  }));
  EXPECT_EQ(f(tensor<bool>({true, false}), batch).to_vector<float>()[4], 1);
  expect_error<CallbackError>(
      [&] {
        f(tensor<bool>({false, true}), batch).to_vector<float>();
      },
      {"linalg.cholesky", "matrix 1"});
}

}  // namespace
}  // namespace postern
