// Programs as functions of torch: values, derivatives, errors, scripted modules, threads.
#include <gtest/gtest.h>
#include <postern/postern.h>
#include <postern/torch.h>
#include <torch/script.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

#include "gradcheck.h"

namespace pn = postern;

namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using gradcheck::doubles, gradcheck::function;

const auto affine = [](pn::Tensor x, pn::Tensor w, pn::Tensor b) {
  return pn::tanh(pn::matmul(x, w) + b);
};

TEST(TorchModule, ComputesOnTorchsMemory) {
  const void* seen = nullptr;
  const auto m = pn::torch::module(pn::jit([&](pn::Tensor x) {
    return pn::call(
               x.type(),
               [&](pn::View<const float> v, pn::View<float> y) {
                 seen = v.data();
                 std::copy(v.begin(), v.end(), y.begin());
               },
               x) *
           2.0f;
  }));
  const Tensor x = at::arange(4096, at::kFloat).view({64, 64});  // small ones are copied
  const Tensor y = m(x);
  EXPECT_TRUE(at::equal(y, x * 2));
  EXPECT_EQ(seen, x.data_ptr());
  EXPECT_TRUE(at::equal(m(x.t()), x.t() * 2));
  EXPECT_TRUE(at::equal(m(x.slice(1, 1)), x.slice(1, 1) * 2));
  EXPECT_EQ(m(at::empty({0, 4})).sizes(), at::IntArrayRef({0, 4}));
}

TEST(TorchModule, HasAllDtypes) {
  const auto m = pn::torch::module([](pn::Tensor x) { return pn::flip(x, {0}); });
  for (const auto d :
       {at::kBool, at::kChar, at::kShort, at::kInt, at::kLong, at::kByte, at::kHalf, at::kBFloat16,
        at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble}) {
    const Tensor x = at::tensor({0, 1, 1}).to(d);
    const Tensor y = m(x);
    EXPECT_EQ(y.scalar_type(), d);
    EXPECT_TRUE(at::equal(y, x.flip(0)));
  }
}

TEST(TorchModule, GivesMemoryThatMayBeWritten) {
  const pn::Tensor constant = pn::tensor<float>({1, 2});
  const auto m = pn::torch::module([&](pn::Tensor x) {
    return std::vector{x, constant, constant};
  });
  const Tensor x = at::ones({2});
  for (int i = 0; i < 2; ++i) {
    Tensors y = m.run({x});
    for (const Tensor& t : y) t.add_(5);
    EXPECT_TRUE(at::equal(y[1], at::tensor({6.f, 7.f})));
    EXPECT_TRUE(at::equal(y[2], at::tensor({6.f, 7.f})));
  }
  EXPECT_TRUE(at::equal(x, at::ones({2})));
  EXPECT_EQ(constant.to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(TorchModule, WaitsAlsoWhereThereIsNoResult) {
  static std::atomic<int> ended;
  ended = 0;
  const auto slow = [](pn::View<const float> v) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (v[0] < 0) throw std::runtime_error("negative");
    ++ended;
  };
  pn::register_function("torch_test.slow", slow, {.replace = true});
  const auto without = [&](bool empty) {
    return pn::jit([empty](pn::Tensor x) {
      pn::call({.effect = pn::Effect::unordered}, std::tuple<>(), pn::Named{"torch_test.slow"},
               pn::exp(x) * x);
      std::vector<pn::Tensor> none;
      if (empty) none.push_back(pn::zeros(pn::type<float>({0})));
      return none;
    });
  };
  int calls = 0;
  const auto check = [&](const pn::torch::Module& m, std::size_t results) {
    EXPECT_EQ(m.run({at::ones({4096})}).size(), results);
    EXPECT_EQ(ended, ++calls);
    EXPECT_THROW(m.run({-at::ones({4096})}), pn::CallbackError);
  };
  check(pn::torch::module(without(false)), 0);
  const auto empty = without(true);
  check(pn::torch::module(empty), 1);
  const std::string text = pn::saved_text(empty.lower(pn::abstract(pn::type<float>({4096}))));
  check(pn::torch::module(pn::load_text(text)), 1);
}

TEST(TorchModule, PassesGradcheck) {
  torch::manual_seed(1);
  const auto m = pn::torch::module(pn::jit(affine));
  gradcheck::both(function(m), {doubles({3, 4}), doubles({4, 2}), doubles({2})});
}

TEST(TorchModule, PassesGradcheckInLoops) {
  torch::manual_seed(2);
  const auto m = pn::torch::module([](pn::Tensor x, pn::Tensor h) {
    const auto step = [](pn::Tensor c, pn::Tensor v) {
      const pn::Tensor next = pn::sin(c) * v + c;
      return std::pair{next, pn::sum(next)};
    };
    return pn::scan(step, h, x);
  });
  gradcheck::both(function(m), {doubles({4, 2}), doubles({2})});
}

TEST(TorchModule, PassesGradcheckWithIntegers) {
  torch::manual_seed(3);
  const auto m = pn::torch::module([](pn::Tensor x, pn::Tensor i) {
    return std::tuple{pn::take(pn::exp(x), i), i + 1, pn::argmax(x)};
  });
  gradcheck::both(function(m), {doubles({4}), at::tensor({2, 0, 2}, at::kLong)});
}

TEST(TorchModule, PassesGradcheckWithComplexNumbers) {
  torch::manual_seed(4);
  const auto m = pn::torch::module([](pn::Tensor z, pn::Tensor x) {
    const pn::Tensor y = pn::exp(z * 0.5) * z;
    return std::tuple{y, pn::real(y) * x};
  });
  gradcheck::both(function(m), {at::randn({3}, at::kComplexDouble), doubles({3})});
}

TEST(TorchModule, PassesGradcheckAroundTorchFunctions) {
  torch::manual_seed(5);
  const auto m = pn::torch::module([](pn::Tensor x) {
    return pn::torch::call(
               x.type(), [](Tensor t) { return at::softmax(t, 0) * t; }, x) *
           x;
  });
  gradcheck::both(function(m), {doubles({3})});
}

TEST(TorchModule, HasThirdDerivatives) {
  const auto m = pn::torch::module([](pn::Tensor x) { return pn::sin(x); });
  const Tensor x = at::tensor({0.4}, at::TensorOptions(at::kDouble)).requires_grad_(true);
  Tensor y = m(x).sum();
  for (int i = 0; i < 3; ++i) y = torch::autograd::grad({y}, {x}, {}, true, true)[0].sum();
  EXPECT_NEAR(y.item<double>(), -std::cos(0.4), 1e-12);
}

TEST(TorchModule, HasTorchsForwardMode) {
  const auto m = pn::torch::module([](pn::Tensor x) { return pn::sin(x) * x; });
  const Tensor x = doubles({3}), dx = doubles({3});
  const auto level = torch::autograd::forward_ad::enter_dual_level();
  const Tensor y = m(at::_make_dual(x, dx, static_cast<std::int64_t>(level)));
  const Tensor dy = std::get<1>(at::_unpack_dual(y, static_cast<std::int64_t>(level))).clone();
  torch::autograd::forward_ad::exit_dual_level(level);
  EXPECT_TRUE(at::allclose(dy, (x.cos() * x + x.sin()) * dx));
}

TEST(TorchModule, TrainsByTorchsOptimizer) {
  torch::manual_seed(6);
  const auto m = pn::torch::module(pn::jit(affine));
  const Tensor x = at::randn({64, 4}), target = at::tanh(at::matmul(x, at::randn({4, 2})));
  const Tensor w = at::zeros({4, 2}).requires_grad_(true), b = at::zeros({2}).requires_grad_(true);
  torch::optim::Adam optimizer({w, b}, torch::optim::AdamOptions(0.05));
  float first = 0, last = 0;
  for (int i = 0; i < 200; ++i) {
    optimizer.zero_grad();
    const Tensor loss = (m(x, w, b) - target).square().mean();
    loss.backward();
    optimizer.step();
    (i ? last : first) = loss.item<float>();
  }
  EXPECT_LT(last, first / 50);
}

TEST(TorchModule, ThrowsWhatTheProgramThrows) {
  const auto m = pn::torch::module([](pn::Tensor x) {
    return pn::call(
        {.name = "stop"}, x.type(),
        [](pn::View<const float>, pn::View<float>) { throw std::out_of_range("no"); }, x);
  });
  const Tensor x = at::ones({2});
  EXPECT_THROW(m(x), pn::CallbackError);
  const auto two = pn::torch::module([](pn::Tensor a) { return std::pair{a, a}; });
  EXPECT_THROW(two(x), pn::TypeError);
  EXPECT_THROW(two(x, x), pn::TypeError);
  EXPECT_THROW(two(Tensor()), pn::TypeError);
  EXPECT_THROW(two.run({at::ones({2}).to_sparse()}), pn::TypeError);
  EXPECT_THROW(two.run({at::ones({2}, at::TensorOptions(at::kMeta))}), pn::TypeError);
  const auto square = pn::torch::module([](pn::Tensor a) { return a * a; });
  const Tensor leaf = at::ones({2}).requires_grad_(true);
  const Tensor y = square(leaf).sum();
  y.backward();
  EXPECT_THROW(y.backward(), c10::Error);  // the graph is gone
  const Tensor z = square(leaf.clone());
  const Tensor middle = leaf.clone();
  const Tensor later = square(middle).sum();
  middle.detach().add_(1);
  EXPECT_THROW(later.backward(), c10::Error);  // an operand was changed
}

TEST(TorchModule, RefusesToBeSeenByTorchsVmap) {
  const auto m = pn::torch::module([](pn::Tensor x) { return x * 2.0f; });
  const auto f = [&](std::optional<pn::VmapMethod> method) {
    return pn::jit(pn::vmap([&m, method](pn::Tensor x) {
      pn::torch::Options options;
      options.vmap = method;
      return pn::torch::call(
          options, x.type(), [&m](Tensor t) { return m(t); }, x);
    }));
  };
  const pn::Tensor x = pn::tensor<float>({{1, 2}, {3, 4}});
  try {
    f({})(x).block_until_ready();
    FAIL();
  } catch (const pn::CallbackError& error) {
    EXPECT_NE(std::string(error.what()).find("VmapMethod::sequential"), std::string::npos);
  }
  EXPECT_EQ(f(pn::VmapMethod::sequential)(x).to_vector<float>(), (std::vector<float>{2, 4, 6, 8}));
}

TEST(TorchModule, ServesManyThreads) {
  torch::manual_seed(7);
  const auto m = pn::torch::module(pn::jit(affine));
  const Tensor w = doubles({4, 2}), b = doubles({2});
  std::vector<Tensor> parts, right, got(8);
  const auto gradient = [&](const Tensor& x) {
    const Tensor leaf = w.detach().clone().requires_grad_(true);
    m(x, leaf, b).square().sum().backward();
    return leaf.grad().clone();
  };
  for (int i = 0; i < 8; ++i) {
    parts.push_back(doubles({16, 4}));
    right.push_back(gradient(parts.back()));
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (int n = 0; n < 20; ++n) got[i] = gradient(parts[i]);
    });
  for (std::thread& t : threads) t.join();
  for (std::size_t i = 0; i < 8; ++i) EXPECT_TRUE(at::allclose(got[i], right[i]));
}

// --- scripts

/// A model of torch that holds a program, with a weight of its own.
torch::jit::Module model() {
  const auto m =
      pn::torch::module([](pn::Tensor x, pn::Tensor w) { return pn::tanh(pn::matmul(x, w)); });
  m(at::ones({2, 3}, at::kDouble), at::ones({3, 2}, at::kDouble));
  torch::jit::Module outer("Model");
  outer.register_module("layer", pn::torch::scripted(m, 2));
  outer.register_parameter("w", at::arange(6, at::kDouble).view({3, 2}) * 0.1, false);
  outer.define(R"(
def forward(self, x):
  return self.layer.forward(x, self.w).sum(dim=1) * 2.0
)");
  return outer;
}
Tensor model_input() { return at::arange(6, at::kDouble).view({2, 3}) * 0.2; }
Tensor expected(const Tensor& x) {
  const Tensor w = at::arange(6, at::kDouble).view({3, 2}) * 0.1;
  return at::tanh(at::matmul(x, w)).sum(1) * 2;
}

TEST(TorchScripted, IsSavedAndLoadedByTorch) {
  torch::jit::Module m = model();
  std::stringstream file;
  m.save(file);
  torch::jit::Module again = torch::jit::load(file);
  const Tensor x = model_input();
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(at::allclose(m.forward({x}).toTensor(), expected(x)));
    EXPECT_TRUE(at::allclose(again.forward({x}).toTensor(), expected(x)));
  }
  gradcheck::both([&](const Tensors& in) { return Tensors{again.forward({in[0]}).toTensor()}; },
                  {x});
  const auto inner = pn::torch::from_scripted(again.attr("layer").toModule());
  EXPECT_THROW(inner(at::ones({5, 3}, at::kDouble), at::ones({3, 2}, at::kDouble)), pn::TypeError);
}

TEST(TorchScripted, IsSavedAgainAndCopied) {
  std::stringstream file, second;
  model().save(file);
  const torch::jit::Module loaded = torch::jit::load(file);
  loaded.save(second);
  const Tensor x = model_input();
  for (torch::jit::Module m : {torch::jit::load(second), loaded.deepcopy()}) {
    gradcheck::both([&](const Tensors& in) { return Tensors{m.forward({in[0]}).toTensor()}; }, {x});
    EXPECT_TRUE(at::allclose(m.forward({x}).toTensor(), expected(x)));
  }
}

TEST(TorchScripted, TrainsInDataParallelThreads) {
  torch::manual_seed(9);
  std::stringstream file;
  model().save(file);
  const torch::jit::Module whole = torch::jit::load(file);
  constexpr std::size_t parts = 4;
  const Tensor x = doubles({2 * parts, 3});
  std::vector<Tensor> gradients(parts);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < parts; ++i)
    threads.emplace_back([&, i] {
      torch::jit::Module replica = whole.deepcopy();
      const Tensor w = replica.attr("w").toTensor().detach().requires_grad_(true);
      replica.setattr("w", w);
      const Tensor part =
          x.slice(0, 2 * static_cast<std::int64_t>(i), 2 * static_cast<std::int64_t>(i) + 2);
      for (int n = 0; n < 10; ++n)
        gradients[i] =
            torch::autograd::grad({replica.forward({part}).toTensor().square().sum()}, {w})[0];
    });
  for (std::thread& t : threads) t.join();
  const Tensor w = (at::arange(6, at::kDouble).view({3, 2}) * 0.1).requires_grad_(true);
  const Tensor loss = (at::tanh(at::matmul(x, w)).sum(1) * 2).square().sum();
  EXPECT_TRUE(at::allclose(at::stack(gradients).sum(0), torch::autograd::grad({loss}, {w})[0]));
}

TEST(TorchScripted, IsLoadedByAnotherProcess) {
  const char* const file = std::getenv("POSTERN_TORCH_MODEL");
  if (file) {
    torch::jit::Module m = torch::jit::load(file);
    EXPECT_TRUE(at::allclose(m.forward({model_input()}).toTensor(), expected(model_input())));
    return;
  }
  const auto path = std::filesystem::temp_directory_path() /
                    ("postern_torch_" + std::to_string(getpid()) + ".pt");
  model().save(path.string());
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command =
      "POSTERN_TORCH_MODEL='" + path.string() + "' '" + self +
      "' --gtest_brief=1 --gtest_filter=TorchScripted.IsLoadedByAnotherProcess";
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::filesystem::remove(path);
}

TEST(TorchScripted, IsWrittenForPython) {
  const char* const file = std::getenv("POSTERN_TORCH_WRITE");
  if (!file) GTEST_SKIP() << "for gradcheck.py, which names a file";
  model().save(file);
}

TEST(TorchScripted, RefusesWhatCannotBeSaved) {
  std::stringstream file;
  const auto never = pn::torch::module([](pn::Tensor x) { return x; });
  EXPECT_THROW(pn::torch::scripted(never, 1).save(file), std::exception);
  const auto closure = pn::torch::module([](pn::Tensor x) {
    return pn::torch::call(
        x.type(), [](Tensor t) { return t * 2; }, x);
  });
  closure(at::ones({2}));
  EXPECT_THROW(pn::torch::scripted(closure, 1).save(file), std::exception);
}

// --- two libraries in one process

TEST(TorchSymbols, BothWorkInOneProcess) {
  torch::manual_seed(8);
  // Torch's oneDNN, OpenMP and BLAS, and protocol buffers' registration when it was loaded.
  torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(8, 8, 3));
  const Tensor image = at::randn({2, 8, 32, 32});
  const Tensor before = convolution(image);
  // XLA's own of each.
  const pn::Tensor x = pn::ones(pn::type<float>({128, 128}));
  const auto product = pn::jit([](pn::Tensor a) { return pn::sum(pn::tanh(pn::matmul(a, a))); });
  EXPECT_NEAR(product(x).item<float>(), 128 * 128, 1);
  EXPECT_TRUE(at::equal(convolution(image), before));
  const auto both = pn::jit([&](pn::Tensor v) {
    const pn::Tensor y = pn::torch::call(pn::type<float>({2, 8, 30, 30}), convolution, v);
    return pn::sum(pn::matmul(pn::reshape(y, {16, 900}), pn::ones(pn::type<float>({900, 4}))));
  });
  const pn::Tensor ours(pn::type<float>({2, 8, 32, 32}), image.data_ptr());
  EXPECT_NEAR(both(ours).item<float>(), before.sum().item<float>() * 4, 0.5);
}

}  // namespace
