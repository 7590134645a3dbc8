// Derivatives by the parameters of torch modules.
#include <postern/torch.h>
#include <torch/torch.h>

#include <thread>

#include "torch_test.h"

namespace pn = postern;

namespace {

using namespace torch_test;
using at::Tensor;

struct Net : torch::nn::Module {
  Net() {
    a = register_module("a", torch::nn::Linear(torch::nn::LinearOptions(3, 8)));
    b = register_module("b", torch::nn::Linear(torch::nn::LinearOptions(8, 1)));
    to(at::kDouble);
  }
  Tensor forward(Tensor x) { return b(at::tanh(a(x))); }
  torch::nn::Linear a{nullptr}, b{nullptr};
};
pn::Tensor loss_of(const std::shared_ptr<Net>& net,
                   const std::map<std::string, pn::Tensor>& parameters, const pn::Tensor& x) {
  return pn::mean(pn::square(
      pn::torch::call(pn::type<double>({4, 1}), pn::torch::with_parameters(net), parameters, x)));
}
const pn::Tensor batch = pn::reshape(pn::iota(pn::type<double>({12}), 0) * 0.1, {4, 3});

TEST(TorchParameters, AreOperands) {
  torch::manual_seed(5);
  const auto net = std::make_shared<Net>();
  const auto parameters = pn::torch::parameters(net);
  ASSERT_EQ(parameters.size(), 4u);
  EXPECT_EQ(parameters.begin()->first, "a.bias");
  const auto g = pn::jit(pn::value_and_grad([&](const std::map<std::string, pn::Tensor>& p,
                                                pn::Tensor x) { return loss_of(net, p, x); }));
  const auto [loss, gradient] = g(parameters, batch);
  std::vector<double> data = values(batch);
  const Tensor l = net->forward(at::from_blob(data.data(), {4, 3}, at::kDouble)).square().mean();
  l.backward();
  EXPECT_NEAR(loss.item<double>(), l.item<double>(), 1e-12);
  for (const auto& p : net->named_parameters()) {
    const Tensor mine = p.value().grad().contiguous();
    const double* const at = mine.data_ptr<double>();
    expect_close(values(gradient.at(p.key())), std::vector<double>(at, at + mine.numel()), 1e-12);
    EXPECT_TRUE(p.value().requires_grad());
  }
  // Twice the parameters; the module's own stay.
  auto twice = parameters;
  for (auto& [name, value] : twice) value = value * 2.0;
  EXPECT_NE(g(twice, batch).first.item<double>(), loss.item<double>());
  EXPECT_NEAR(g(parameters, batch).first.item<double>(), loss.item<double>(), 1e-12);
  pn::torch::store_parameters(net, twice);
  EXPECT_EQ(values(pn::torch::parameters(net).at("a.weight")), values(twice.at("a.weight")));
  twice.erase("a.weight");
  EXPECT_THROW(pn::torch::store_parameters(net, twice), pn::TypeError);
  twice.emplace("a.weight", pn::Tensor(1.0));
  EXPECT_THROW(pn::torch::store_parameters(net, twice), pn::TypeError);
  EXPECT_THROW(loss_of(net, twice, batch), pn::TypeError);
}

TEST(TorchParameters, HaveSecondDerivatives) {
  torch::manual_seed(6);
  const auto net = std::make_shared<Net>();
  const auto parameters = pn::torch::parameters(net);
  using Map = std::map<std::string, pn::Tensor>;
  const auto ours = [](const Map& p, pn::Tensor x) {
    const auto layer = [](pn::Tensor v, pn::Tensor w, pn::Tensor b) {
      return pn::matmul(v, pn::transpose(w)) + b;
    };
    const pn::Tensor h = pn::tanh(layer(x, p.at("a.weight"), p.at("a.bias")));
    return pn::mean(pn::square(layer(h, p.at("b.weight"), p.at("b.bias"))));
  };
  const auto theirs = [&](const Map& p, pn::Tensor x) { return loss_of(net, p, x); };
  Map moves;
  for (const auto& [name, p] : parameters) moves.emplace(name, pn::ones(p.type()));
  // Forward over reverse, and reverse over reverse.
  const auto forward = [&](auto f) {
    return pn::jit([f](const Map& p, const Map& dp, pn::Tensor x) {
      return pn::jvp([f, x](const Map& q) { return pn::grad(f)(q, x); }, p, dp).second;
    })(parameters, moves, batch);
  };
  const auto reverse = [&](auto f) {
    return pn::jit(pn::grad([f](const Map& p, pn::Tensor x) {
      pn::Tensor sum = 0.0;
      for (const auto& [name, g] : pn::grad(f)(p, x)) sum = sum + pn::sum(g * g);
      return sum;
    }))(parameters, batch);
  };
  const Map a = forward(theirs), b = forward(ours), c = reverse(theirs), d = reverse(ours);
  for (const auto& [name, p] : parameters) {
    expect_close(values(a.at(name)), values(b.at(name)), 1e-10);
    expect_close(values(c.at(name)), values(d.at(name)), 1e-10);
  }
}

TEST(TorchParameters, ServeManyThreads) {
  torch::manual_seed(7);
  const auto net = std::make_shared<Net>();
  const auto parameters = pn::torch::parameters(net);
  using Map = std::map<std::string, pn::Tensor>;
  const auto g = pn::jit(pn::grad([&](const Map& p, pn::Tensor x) { return loss_of(net, p, x); }));
  const auto of = [&](double factor) {
    Map scaled = parameters;
    for (auto& [name, value] : scaled) value = value * factor;
    return values(g(scaled, batch).at("a.weight"));
  };
  std::vector<std::vector<double>> right, wrong(4);
  for (int i = 0; i < 4; ++i) right.push_back(of(1 + i));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int n = 0; n < 20; ++n)
        if (of(1 + static_cast<double>(i)) != right[i]) wrong[i].push_back(n);
    });
  for (std::thread& t : threads) t.join();
  for (const auto& w : wrong) EXPECT_TRUE(w.empty());
}

/// Sees whether two are inside of it at once.
struct Part : torch::nn::Module {
  Part() { linear = register_module("linear", torch::nn::Linear(2, 2)); }
  Tensor forward(Tensor x) {
    if (++inside > 1) met = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    x = linear(x);
    --inside;
    return x;
  }
  torch::nn::Linear linear{nullptr};
  std::atomic<int> inside{0};
  std::atomic<bool> met{false};
};
struct Whole : torch::nn::Module {
  Whole(const std::shared_ptr<Part>& a, const std::shared_ptr<Part>& b) : first(a), second(b) {
    register_module("first", a);
    register_module("second", b);
  }
  Tensor forward(Tensor x) { return second->forward(first->forward(x)); }
  std::shared_ptr<Part> first, second;
};

TEST(TorchParameters, OfModulesThatShareSomeAreOfOneCallAtATime) {
  const auto a = std::make_shared<Part>(), b = std::make_shared<Part>();
  const auto whole = std::make_shared<Whole>(a, b);
  const auto f = pn::torch::with_parameters(a), g = pn::torch::with_parameters(b),
             h = pn::torch::with_parameters(whole);
  const auto runs = [](const auto& module, const pn::torch::Function& fn) {
    return [p = pn::torch::parameters(module), fn] {
      const auto run = pn::jit([fn](const std::map<std::string, pn::Tensor>& v, pn::Tensor x) {
        return pn::torch::call(x.type(), fn, v, x);
      });
      for (int i = 0; i < 8; ++i) run(p, pn::ones(pn::type<float>({1, 2}))).block_until_ready();
    };
  };
  std::vector<std::thread> threads;
  threads.emplace_back(runs(a, f));
  threads.emplace_back(runs(b, g));
  threads.emplace_back(runs(whole, h));
  for (std::thread& t : threads) t.join();
  EXPECT_FALSE(a->met);
  EXPECT_FALSE(b->met);
}

/// Writes to its parameter, as some write to what ought to be a buffer.
struct Counting : torch::nn::Module {
  Counting() { seen = register_parameter("seen", at::zeros({2})); }
  Tensor forward(Tensor x) {
    const Tensor y = x * seen;
    if (!writes) return y;
    const at::NoGradGuard no_graph;
    seen.add_(1);
    return y;
  }
  Tensor seen;
  bool writes = true;
};

TEST(TorchParameters, AreNotWrittenTo) {
  using Map = std::map<std::string, pn::Tensor>;
  const auto module = std::make_shared<Counting>();
  const auto parameters = pn::torch::parameters(module);
  const auto fn = pn::torch::with_parameters(module);
  const auto f = [&](const Map& p, pn::Tensor x) { return pn::torch::call(x.type(), fn, p, x); };
  const auto g = [&](const Map& p, pn::Tensor x) {
    return pn::grad([&](const Map& q) { return pn::sum(f(q, x)); })(p).at("seen");
  };
  const pn::Tensor x = pn::ones(pn::type<float>({2}));
  const auto expect_refused = [&](auto run) {
    try {
      pn::jit(run)(parameters, x).block_until_ready();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const pn::CallbackError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("has written to its parameter 'seen'"), std::string::npos) << text;
    }
  };
  expect_refused(f);
  expect_refused(g);
  EXPECT_TRUE(module->seen.requires_grad());
  EXPECT_EQ(module->seen.sum().item<float>(), 0);  // its own memory is back, and as it was
  module->writes = false;
  EXPECT_EQ(pn::jit(g)(parameters, x).to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST(TorchParameters, AreBatchedOneByOne) {
  torch::manual_seed(8);
  const auto net = std::make_shared<Net>();
  const auto parameters = pn::torch::parameters(net);
  using Map = std::map<std::string, pn::Tensor>;
  const auto g = pn::grad([&](const Map& p, pn::Tensor x) { return loss_of(net, p, x); });
  const pn::Tensor both = pn::stack({batch, batch * 2.0});
  const Map all = pn::jit(pn::vmap(g, {.in_axes = {pn::unmapped, 0}}))(parameters, both);
  const auto rows = values(all.at("b.weight"));
  const auto first = values(g(parameters, batch).at("b.weight")),
             second = values(g(parameters, batch * 2.0).at("b.weight"));
  expect_close(std::vector<double>(rows.begin(), rows.begin() + 8), first, 1e-12);
  expect_close(std::vector<double>(rows.begin() + 8, rows.end()), second, 1e-12);
}

}  // namespace
