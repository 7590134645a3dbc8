// Where derivatives of torch functions are zero, where that is an error, and what of them goes
// through a module's own parameters.
#include <postern/torch.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "torch_test.h"

namespace pn = postern;

namespace {

using namespace torch_test;
using at::Tensor;
using Map = std::map<std::string, pn::Tensor>;

const pn::Type two = pn::type<double>({2});

torch::nn::Linear linear() {
  torch::manual_seed(1);
  torch::nn::Linear made(3, 2);
  made->to(at::kDouble);
  return made;
}

/// Of a function of one tensor, all first derivatives and a second one.
template <class F>
void expect_independent(F f) {
  const auto refused = [](auto g, const pn::Tensor& x) {
    try {
      pn::jit(g)(x).block_until_ready();
      ADD_FAILURE() << "not refused";
    } catch (const pn::CallbackError& error) {
      EXPECT_NE(std::string(error.what()).find("no result depends on what is differentiated"),
                std::string::npos)
          << error.what();
    }
  };
  const auto sum = [f](pn::Tensor x) { return pn::sum(f(x)); };
  refused(pn::grad(sum), point);
  refused([f](pn::Tensor x) { return pn::jvp(f, x, direction).second; }, point);
  refused(pn::jacrev(f), point);
  refused(pn::vmap(pn::grad(sum)), rows);
  refused([sum](pn::Tensor x) { return pn::jvp(pn::grad(sum), x, direction).second; }, point);
  refused(pn::jacrev(pn::grad(sum)), point);
}

TEST(TorchDerivatives, OfWhatTorchDoesNotSeeAreErrorsAlsoBesideParameters) {
  auto module = linear();
  torch::jit::Module script("m");
  script.register_parameter("w", module->weight, false);
  script.define("def forward(self, x):\n  return torch.mv(self.w, x.detach())\n");
  for (const std::size_t kept : {std::size_t{256}, std::size_t{0}}) {
    const auto called = [kept](const pn::torch::Function& fn) {
      return [kept, fn](pn::Tensor x) { return pn::torch::call({.kept = kept}, two, fn, x); };
    };
    expect_independent(called([&](Tensor t) { return module(t.detach()); }));
    expect_independent(called([&](Tensor t) { return module(at::ones_like(t)); }));
    expect_independent(called(script));
  }
}

TEST(TorchDerivatives, OfWhatDependsOnOneOperandAreZeroByTheOther) {
  auto module = linear();
  const auto f = [&](pn::Tensor x, pn::Tensor y, pn::Tensor n) {
    return pn::sum(pn::torch::call(
        two, [&](Tensor a, Tensor b, Tensor i) { return module(a + b.detach() + i); }, x, y, n));
  };
  const auto of = [&](auto g) { return pn::jit(g)(point, point, pn::tensor<int>({1, 2, 3})); };
  const auto [dx, dy] = of(pn::grad<0, 1>(f));
  const auto w = pn::torch::parameters(module).at("weight");
  expect_close(dx, pn::sum(w, {.axes = pn::Dims{0}}));
  expect_close(dy, pn::zeros(point.type()));
}

TEST(TorchDerivatives, OfWhatHasNoFloatOperandsAreNotAskedFor) {
  torch::nn::Embedding table(4, 3);
  table->to(at::kDouble);
  const auto f = [&](pn::Tensor x, pn::Tensor i) {
    return pn::sum(pn::torch::call(x.type(), table, i) * x);
  };
  const pn::Tensor g = pn::jit(pn::grad(f))(point, pn::Tensor(std::int64_t{2}));
  const Tensor row = table->weight.detach()[2].contiguous();
  expect_close(g, pn::Tensor(point.type(), row.data_ptr()));
}

TEST(TorchDerivatives, ThatTorchLeavesUndefinedAreZero) {
  // The number of elements that are not zero: its derivative depends on them and is zero.
  auto module = linear();
  const auto f = [&](pn::Tensor x) {
    return pn::torch::call(
        pn::type<double>(), [&](Tensor t) { return at::norm(t, 0) + module->weight.sum(); }, x);
  };
  for (int i = 0; i < 2; ++i) {
    expect_close(pn::jit(pn::grad(f))(point), pn::zeros(point.type()));
    expect_close(pn::jit([&](pn::Tensor x) { return pn::jvp(f, x, direction).second; })(point),
                 pn::Tensor(0.0));
  }
}

// --- parameters

struct HeldImpl : torch::nn::Module {
  explicit HeldImpl(torch::nn::Sequential n) : net(register_module("net", std::move(n))) {}
  Tensor forward(Tensor x) { return net->forward(x); }
  torch::nn::Sequential net;
};
TORCH_MODULE(Held);

/// What is asked of a loss by x, first and second, in all orders of both modes.
template <class F, class G>
void expect_same_derivatives(F theirs, G ours, const pn::Tensor& x) {
  const auto same = [&](auto of) { expect_close(pn::jit(of(theirs))(x), pn::jit(of(ours))(x)); };
  same([](auto f) { return f; });
  same([](auto f) { return pn::grad(f); });
  same([](auto f) { return pn::jacfwd(f); });
  same([](auto f) { return pn::hessian(f); });
  same([](auto f) { return pn::jacrev(pn::grad(f)); });
  same([](auto f) { return pn::jacrev(pn::jacfwd(f)); });
  same([](auto f) { return pn::jacfwd(pn::jacfwd(f)); });
}

TEST(TorchDerivatives, GoThroughModulesWithParametersOfTheirOwn) {
  torch::manual_seed(2);
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::Tanh(), torch::nn::Linear(4, 2));
  net->to(at::kDouble);
  torch::nn::AnyModule any{Held(net)};
  torch::jit::Module script("m");
  for (const auto& p : net->named_parameters()) {
    std::string name = p.key();
    std::replace(name.begin(), name.end(), '.', '_');
    script.register_parameter("p" + name, p.value(), false);
  }
  script.define(R"(
def forward(self, x):
  h = torch.tanh(torch.mv(self.p0_weight, x) + self.p0_bias)
  return torch.mv(self.p2_weight, h) + self.p2_bias
)");
  const Map p = pn::torch::parameters(net);
  const auto ours = [&](pn::Tensor x) {
    const auto layer = [](pn::Tensor v, pn::Tensor w, pn::Tensor b) {
      return pn::matmul(w, v) + b;
    };
    const pn::Tensor h = pn::tanh(layer(x, p.at("0.weight"), p.at("0.bias")));
    return pn::sum(pn::square(layer(h, p.at("2.weight"), p.at("2.bias"))));
  };
  for (const pn::torch::Function& module :
       {pn::torch::Function(net), pn::torch::Function(net.ptr()), pn::torch::Function(any),
        pn::torch::Function(script)}) {
    const auto theirs = [&](pn::Tensor x) {
      return pn::sum(pn::square(pn::torch::call(two, module, x)));
    };
    expect_same_derivatives(theirs, ours, point);
  }
  for (const auto& parameter : net->named_parameters()) {
    EXPECT_TRUE(parameter.value().requires_grad());
    EXPECT_FALSE(parameter.value().grad().defined());
  }
}

TEST(TorchParameters, ThatAreFrozenHaveDerivativesAsOperands) {
  auto module = linear();
  for (const Tensor& p : module->parameters()) p.requires_grad_(false);
  const auto loss = [&](const Map& p, pn::Tensor x) {
    return pn::sum(pn::torch::call(two, pn::torch::with_parameters(module), p, x));
  };
  const auto right = pn::stack({point, point});
  const auto g = pn::jit(pn::grad(loss));
  const auto parameters = pn::torch::parameters(module);
  expect_close(g(parameters, point).at("weight"), right);
  const at::NoGradGuard none;
  expect_close(g(parameters, point).at("weight"), right);
  expect_close(pn::grad(loss)(parameters, point).at("weight"), right);
}

TEST(TorchParameters, ThatAreFrozenHaveDerivativesInProgramsThatTorchRuns) {
  auto module = linear();
  for (const Tensor& p : module->parameters()) p.requires_grad_(false);
  const Map parameters = pn::torch::parameters(module);
  const auto gradient = pn::torch::module([&](pn::Tensor x) {
    return pn::grad([&](const Map& p) {
             return pn::sum(pn::torch::call(two, pn::torch::with_parameters(module), p, x));
           })(parameters)
        .at("weight");
  });
  const Tensor x = at::tensor({0.3, 0.7, 1.1}, at::TensorOptions(at::kDouble));
  EXPECT_TRUE(at::allclose(gradient(x), at::stack({x, x})));
}

TEST(TorchDerivatives, AreThereForThreadsInInferenceMode) {
  const c10::InferenceMode inference;
  const auto f = [](pn::Tensor x) {
    return pn::sum(pn::torch::call(
        x.type(), [](Tensor t) { return at::sin(t); }, x));
  };
  expect_close(f(point), pn::sum(pn::sin(point)));
  expect_close(pn::grad(f)(point), pn::cos(point));
  expect_close(pn::jvp(f, point, direction).second, pn::sum(pn::cos(point) * direction));
}

/// One layer under two names.
struct Tied : torch::nn::Module {
  Tied() {
    torch::manual_seed(3);
    layer = register_module("first", torch::nn::Linear(torch::nn::LinearOptions(3, 3).bias(false)));
    register_module("second", layer);
    to(at::kDouble);
  }
  Tensor forward(Tensor x) { return layer(at::tanh(layer(x))); }
  torch::nn::Linear layer{nullptr};
};

TEST(TorchParameters, ThatAModuleSharesAreOneOperand) {
  const auto module = std::make_shared<Tied>();
  const Tensor weight = module->layer->weight;
  const Tensor before = weight.detach().clone();
  const void* const memory = weight.data_ptr();
  const Map parameters = pn::torch::parameters(module);
  ASSERT_EQ(parameters.size(), 1u);
  const auto theirs = [&](const Map& p, pn::Tensor x) {
    return pn::sum(pn::torch::call(x.type(), pn::torch::with_parameters(module), p, x));
  };
  const auto ours = [](const Map& p, pn::Tensor x) {
    const pn::Tensor w = p.at("first.weight");
    return pn::sum(pn::matmul(w, pn::tanh(pn::matmul(w, x))));
  };
  const auto a = pn::jit(pn::grad(theirs))(parameters, point);
  expect_close(a.at("first.weight"), pn::jit(pn::grad(ours))(parameters, point).at("first.weight"));
  EXPECT_EQ(weight.data_ptr(), memory);
  EXPECT_TRUE(at::equal(weight, before));
}

// --- torch's forward mode

TEST(TorchDerivatives, InForwardModeAreTorchsOwnWhereItHasThem) {
  int runs = 0, duals = 0;
  const auto look = [&](const Tensor& t) {
    ++runs;
    duals += t._fw_grad(0).defined();
  };
  const auto pushed = [](auto f) {
    return pn::jit([f](pn::Tensor x) {
      return pn::jvp([f](pn::Tensor v) { return pn::torch::call(v.type(), f, v); }, x, direction)
          .second;
    });
  };
  const auto sine = pushed([&](Tensor t) {
    look(t);
    return at::sin(t);
  });
  for (int i = 1; i <= 3; ++i) {
    expect_close(sine(point), pn::cos(point) * direction);
    EXPECT_EQ(duals, i);
  }
  const auto pulled = pn::jit(pn::grad([&](pn::Tensor x) {
    return pn::sum(pn::torch::call(
        x.type(),
        [&](Tensor t) {
          look(t);
          return at::sin(t);
        },
        x));
  }));
  runs = duals = 0;
  expect_close(pulled(point), pn::cos(point));
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(duals, 0);
  // A compiled script in it drops tangents: seen once, then by autograd.
  torch::jit::Module script("m");
  script.define("def forward(self, x):\n  return torch.sin(x)\n");
  const auto scripted = pushed([&](Tensor t) {
    look(t);
    return script.forward({t}).toTensor();
  });
  for (int i = 1; i <= 3; ++i) {
    expect_close(scripted(point), pn::cos(point) * direction);
    EXPECT_EQ(duals, 1);
  }
}

// --- batches of nothing

TEST(TorchCallBatches, OfNothingAreEmpty) {
  const pn::Tensor none = pn::zeros(pn::type<double>({0, 3}));
  const auto part = [](Tensor t) {
    const at::NoGradGuard constant;
    return at::sin(t);
  };
  for (const auto& method : methods) {
    const auto f = [&](pn::Tensor x) {
      return pn::torch::call(
          {.vmap = method}, x.type(), [&](Tensor t) { return part(t) * t; }, x);
    };
    EXPECT_EQ(pn::jit(pn::vmap(f))(none).dims(), none.dims());
    const auto g = pn::grad([&](pn::Tensor x) { return pn::sum(f(x)); });
    EXPECT_EQ(pn::jit(pn::vmap(g))(none).dims(), none.dims());
    EXPECT_EQ(pn::jit(pn::vmap(pn::jacrev(g)))(none).dims(), (pn::Dims{0, 3, 3}));
  }
}

}  // namespace
