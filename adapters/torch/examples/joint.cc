// A module of torch inside of a training loop of Postern. The module was trained before, by torch;
// then it and two matrices of Postern's are trained together, in one compiled loop. The same model
// all in torch says whether the gradients are right. Usage: torch_joint [STEPS]
#include <postern/postern.h>
#include <postern/torch.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>

namespace pn = postern;

namespace {

constexpr std::int64_t points = 256;

/// Features of points of the plane.
struct Features : torch::nn::Module {
  Features() {
    first = register_module("first", torch::nn::Linear(2, 32));
    second = register_module("second", torch::nn::Linear(32, 16));
  }
  at::Tensor forward(at::Tensor x) { return at::tanh(second(at::tanh(first(x)))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

/// Trains the features by torch, to tell the distance from the middle.
void pretrain(const std::shared_ptr<Features>& features) {
  torch::nn::Linear head(16, 1);
  std::vector<at::Tensor> all = features->parameters();
  for (const at::Tensor& p : head->parameters()) all.push_back(p);
  torch::optim::Adam optimizer(all, torch::optim::AdamOptions(0.01));
  for (int i = 0; i < 200; ++i) {
    const at::Tensor x = at::randn({points, 2});
    optimizer.zero_grad();
    const at::Tensor loss = (head(features->forward(x)) - x.norm(2, {1}, true)).square().mean();
    loss.backward();
    optimizer.step();
  }
}

using Weights = std::map<std::string, pn::Tensor>;
struct Model {
  Weights features;         // torch's
  pn::Tensor hidden, head;  // ours
};

pn::Tensor tensor_of(const at::Tensor& t) {
  const at::Tensor dense = t.detach().contiguous();
  return {pn::type<float>(pn::Dims(dense.sizes().begin(), dense.sizes().end())), dense.data_ptr()};
}

/// The largest difference of a gradient and torch's own.
float difference(const pn::Tensor& ours, const at::Tensor& theirs) {
  std::vector<float> values = ours.to_vector<float>();
  return (at::from_blob(values.data(), theirs.sizes()) - theirs).abs().max().item<float>();
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 300;
  torch::manual_seed(1);
  const auto features = std::make_shared<Features>();
  pretrain(features);

  const at::Tensor x = at::randn({points, 2});
  const at::Tensor target = at::sin(x.select(1, 0) * 3) * x.select(1, 1);
  at::Tensor hidden = at::randn({16, 16}) * 0.25, head = at::randn({16}) * 0.25;

  const auto module = pn::torch::with_parameters(features);
  const auto loss = [&](const Model& m, pn::Tensor in, pn::Tensor want) {
    const pn::Tensor f = pn::torch::call({.name = "features"}, pn::type<float>({points, 16}),
                                         module, m.features, in);
    return pn::mean(pn::square(pn::matmul(pn::tanh(pn::matmul(f, m.hidden)), m.head) - want));
  };
  Model model{pn::torch::parameters(features), tensor_of(hidden), tensor_of(head)};
  const pn::Tensor in = tensor_of(x), want = tensor_of(target);

  // The same in torch.
  hidden.requires_grad_(true);
  head.requires_grad_(true);
  features->zero_grad();
  const at::Tensor all_torch =
      (at::matmul(at::tanh(at::matmul(features->forward(x), hidden)), head) - target)
          .square()
          .mean();
  all_torch.backward();
  const auto [value, gradient] = pn::jit(pn::value_and_grad(loss))(model, in, want);
  float worst =
      std::max(difference(gradient.hidden, hidden.grad()), difference(gradient.head, head.grad()));
  for (const auto& p : features->named_parameters())
    worst = std::max(worst, difference(gradient.features.at(p.key()), p.value().grad()));
  std::cout << "loss before: " << value.item<float>() << "\n"
            << "gradients as in torch: " << (worst < 1e-5f ? "yes" : "no") << "\n";

  // One program: each step calls torch for the features and for their derivative.
  const auto train = pn::jit([&](const Model& start, pn::Tensor a, pn::Tensor b) {
    return pn::fori_loop(
        0, steps,
        [&](pn::Tensor, const Model& m) {
          const Model g = pn::grad(loss)(m, a, b);
          Model next = m;
          for (auto& [name, w] : next.features) w = w - 0.1f * g.features.at(name);
          next.hidden = m.hidden - 0.1f * g.hidden;
          next.head = m.head - 0.1f * g.head;
          return next;
        },
        start);
  });
  model = train(model, in, want);
  const float after = loss(model, in, want).item<float>();
  std::cout << "loss after:  " << after << "\n";
  pn::torch::store_parameters(features, model.features);  // and torch has what was learnt
  const bool good = worst < 1e-5f && after < 0.8f * value.item<float>();
  return good ? 0 : 1;
}
