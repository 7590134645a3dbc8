// Loaded programs as functions of torch.
#include <gtest/gtest.h>
#include <postern/postern.h>
#include <postern/torch.h>
#include <torch/torch.h>

#include "gradcheck.h"

namespace pn = postern;

namespace {

using at::Tensor;
using gradcheck::doubles, gradcheck::function;

pn::Loaded loaded(const pn::Lowered& program) { return pn::load_text(pn::saved_text(program)); }

TEST(TorchLoaded, HasTheDerivativesThatAreGiven) {
  const auto f = [](pn::Tensor x) { return pn::sin(x) * x; };
  const auto pull = [f](pn::Tensor x, pn::Tensor ct) {
    return std::get<0>(pn::vjp(f, x).second(ct));
  };
  const auto pull2 = [pull](pn::Tensor x, pn::Tensor ct, pn::Tensor u) {
    return pn::vjp(pull, x, ct).second(u);
  };
  const pn::Tensor a = pn::abstract(pn::type<double>({3}));
  const auto m =
      pn::torch::module(loaded(pn::jit(f).lower(a)),
                        {loaded(pn::jit(pull).lower(a, a)), loaded(pn::jit(pull2).lower(a, a, a))});
  gradcheck::both(function(m), {doubles({3})});
  const auto bare = pn::torch::module(loaded(pn::jit(f).lower(a)));
  const Tensor x = doubles({3}).requires_grad_(true);
  const Tensor y = bare(x).sum();
  try {
    y.backward();
    FAIL();
  } catch (const pn::TypeError& error) {
    EXPECT_NE(std::string(error.what()).find("no derivative of order 1"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(bare(doubles({4})), pn::TypeError);
}

TEST(TorchLoaded, ResultsAreNotTheArgumentsMemory) {
  const auto same = [](pn::Tensor x) {
    return std::pair{x, pn::call(x.type(), pn::Named{"torch_loaded.id"}, x)};
  };
  pn::register_function("torch_loaded.id", [](std::span<const pn::AnyView> in,
                                              std::span<const pn::AnyMutableView> out) {
    std::memcpy(out[0].data(), in[0].data(), in[0].byte_size());
  });
  const auto m =
      pn::torch::module(loaded(pn::jit(same).lower(pn::abstract(pn::type<double>({64})))));
  const Tensor x = doubles({64});
  for (const Tensor& y : m.run({x})) {
    EXPECT_NE(y.data_ptr(), x.data_ptr());
    EXPECT_TRUE(y.equal(x));
  }
}

/// What jax.jit(f).lower(x).as_text() writes.
std::string from_jax(const std::string& arguments, const std::string& results,
                     const std::string& body) {
  return "module @jit_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {\n"
         "  func.func public @main(" +
         arguments + ") -> (" + results + ") {\n" + body + "  }\n}\n";
}

/// f(x) = sin(x) * x, its jax.vjp, and the jax.vjp of that.
TEST(TorchLoaded, OfJaxHasTheDerivativesThatAreGiven) {
  const std::string x = "%arg0: tensor<3xf64>", ct = ", %arg1: tensor<3xf64>",
                    u = ", %arg2: tensor<3xf64>";
  const auto f = pn::load_text(from_jax(x, "tensor<3xf64> {jax.result_info = \"result\"}", R"(
    %0 = stablehlo.sine %arg0 : tensor<3xf64>
    %1 = stablehlo.multiply %0, %arg0 : tensor<3xf64>
    return %1 : tensor<3xf64>
)"));
  const auto pull =
      pn::load_text(from_jax(x + ct, "tensor<3xf64> {jax.result_info = \"result[0]\"}", R"(
    %0 = stablehlo.sine %arg0 : tensor<3xf64>
    %1 = stablehlo.cosine %arg0 : tensor<3xf64>
    %2 = stablehlo.multiply %0, %arg1 : tensor<3xf64>
    %3 = stablehlo.multiply %arg1, %arg0 : tensor<3xf64>
    %4 = stablehlo.multiply %3, %1 : tensor<3xf64>
    %5 = stablehlo.add %2, %4 : tensor<3xf64>
    return %5 : tensor<3xf64>
)"));
  const auto pull2 = pn::load_text(
      from_jax(x + ct + u,
               "tensor<3xf64> {jax.result_info = \"result[0]\"}, tensor<3xf64> {jax.result_info = "
               "\"result[1]\"}",
               R"(
    %0 = stablehlo.sine %arg0 : tensor<3xf64>
    %1 = stablehlo.cosine %arg0 : tensor<3xf64>
    %2 = stablehlo.cosine %arg0 : tensor<3xf64>
    %3 = stablehlo.sine %arg0 : tensor<3xf64>
    %4 = stablehlo.multiply %arg1, %arg0 : tensor<3xf64>
    %5 = stablehlo.multiply %4, %arg2 : tensor<3xf64>
    %6 = stablehlo.multiply %arg2, %2 : tensor<3xf64>
    %7 = stablehlo.multiply %arg1, %6 : tensor<3xf64>
    %8 = stablehlo.multiply %6, %arg0 : tensor<3xf64>
    %9 = stablehlo.multiply %0, %arg2 : tensor<3xf64>
    %10 = stablehlo.add %8, %9 : tensor<3xf64>
    %11 = stablehlo.multiply %arg2, %arg1 : tensor<3xf64>
    %12 = stablehlo.negate %5 : tensor<3xf64>
    %13 = stablehlo.multiply %12, %3 : tensor<3xf64>
    %14 = stablehlo.add %7, %13 : tensor<3xf64>
    %15 = stablehlo.multiply %11, %1 : tensor<3xf64>
    %16 = stablehlo.add %14, %15 : tensor<3xf64>
    return %16, %10 : tensor<3xf64>, tensor<3xf64>
)"));
  const auto m = pn::torch::module(f, {pull, pull2});
  const Tensor at = doubles({3});
  EXPECT_TRUE(at::allclose(m(at), at.sin() * at));
  gradcheck::both(function(m), {at});
  // Other programs than the derivatives of the one before them.
  EXPECT_THROW(pn::torch::module(f, {pull2}), pn::TypeError);
  EXPECT_THROW(pn::torch::module(f, {pull, pull}), pn::TypeError);
}

TEST(TorchLoaded, RefusesDerivativesThatGiveOtherTypes) {
  const pn::Tensor n = pn::abstract(pn::type<int>({3})), x = pn::abstract(pn::type<double>({3}));
  const auto f = [](pn::Tensor i, pn::Tensor v) { return pn::convert(i, v.dtype()) * v; };
  // One for each argument, as jax.export has it, would be taken for x's.
  const auto each = [f](pn::Tensor i, pn::Tensor v, pn::Tensor ct) {
    const pn::Tensor g = std::get<0>(pn::vjp([&](pn::Tensor w) { return f(i, w); }, v).second(ct));
    return std::pair{pn::zeros(pn::type<bool>({3})), g};
  };
  const auto right = [each](pn::Tensor i, pn::Tensor v, pn::Tensor ct) {
    return each(i, v, ct).second;
  };
  const auto none = [](pn::Tensor, pn::Tensor, pn::Tensor) { return std::vector<pn::Tensor>(); };
  const auto forward = loaded(pn::jit(f).lower(n, x));
  const auto m = pn::torch::module(forward, {loaded(pn::jit(right).lower(n, x, x))});
  const Tensor leaf = doubles({3}).requires_grad_(true), two = at::full({3}, 2, at::kInt);
  EXPECT_TRUE(at::equal(torch::autograd::grad({m(two, leaf).sum()}, {leaf})[0],
                        at::full({3}, 2, at::kDouble)));
  try {
    pn::torch::module(forward, {loaded(pn::jit(each).lower(n, x, x))});
    FAIL();
  } catch (const pn::TypeError& error) {
    EXPECT_STREQ(error.what(),
                 "torch::module: the derivative of order 1 gives (pred[3], f64[3]), required are "
                 "the cotangents of the float arguments, (f64[3])");
  }
  EXPECT_THROW(pn::torch::module(forward, {loaded(pn::jit(none).lower(n, x, x))}), pn::TypeError);
}

}  // namespace
