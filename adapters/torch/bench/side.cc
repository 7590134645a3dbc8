// What ./bench torch measures, as lines of JSON: calls of torch in a loop beside the functions
// alone, programs in torch beside the programs alone, and settings of the two pools of threads. A
// program of its own: torch's libraries and threads would disturb the other benchmarks.
#include <ATen/Parallel.h>
#include <postern/postern.h>
#include <postern/torch.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <iostream>

namespace pn = postern;

namespace {

using Work = std::function<void()>;

double nanoseconds(const Work& work) {
  const auto from = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - from).count();
}

/// Medians of the sides, which take turns.
std::vector<double> race(const std::vector<Work>& sides, int rounds = 15) {
  std::vector<std::vector<double>> times(sides.size());
  for (int round = -1; round < rounds; ++round)
    for (std::size_t i = 0; i < sides.size(); ++i) {
      const double took = nanoseconds(sides[i]);
      if (round >= 0) times[i].push_back(took);
    }
  std::vector<double> medians;
  for (std::vector<double>& t : times) {
    std::nth_element(t.begin(), t.begin() + static_cast<std::ptrdiff_t>(t.size() / 2), t.end());
    medians.push_back(t[t.size() / 2]);
  }
  return medians;
}

void line(const std::string& name, double value, const std::string& unit, const std::string& peer,
          double peer_value) {
  std::cout << R"({"name":")" << name << R"(","value":)" << value << R"(,"unit":")" << unit
            << R"(","peer":")" << peer << R"(","peer_value":)" << peer_value << R"(,"ratio":)"
            << value / peer_value << "}" << std::endl;
}

constexpr std::int64_t steps = 2000;

/// A loop of so many calls, and a loop of the same work in torch alone.
void calls(const std::string& name, const std::function<at::Tensor(const at::Tensor&)>& f,
           std::int64_t size, bool derivative) {
  const pn::Type type = pn::type<float>({size});
  const auto call = [&](pn::Tensor x) {
    return pn::torch::call(
        type, [&](const at::Tensor& t) { return f(t); }, x);
  };
  const auto step = [&](pn::Tensor, pn::Tensor x) {
    if (!derivative) return call(x);
    const auto [y, back] = pn::vjp(call, x);
    return std::get<0>(back(y));
  };
  const auto loop = pn::jit([&](pn::Tensor x) { return pn::fori_loop(0, steps, step, x); });
  const pn::Tensor x = pn::zeros(type);
  const at::Tensor t = at::zeros({size});
  const Work ours = [&] { loop(x).block_until_ready(); };
  const Work theirs = [&] {
    if (!derivative) {
      const at::NoGradGuard none;
      at::Tensor v = t;
      for (std::int64_t i = 0; i < steps; ++i) v = f(v);
      return;
    }
    at::Tensor v = t;
    for (std::int64_t i = 0; i < steps; ++i) {
      v = v.detach().requires_grad_(true);
      const at::Tensor y = f(v);
      v = torch::autograd::grad({y}, {v}, {y.detach()})[0];
    }
  };
  const auto times = race({ours, theirs});
  line(name, (times[0] - times[1]) / steps / 1000, "us more than the function", "the function",
       times[1] / steps / 1000);
}

/// A program called from torch, and as itself.
void programs(const std::string& name, std::int64_t size, bool graph) {
  const auto f = pn::jit([](pn::Tensor x, pn::Tensor y) { return x * y + 1.0f; });
  const auto m = pn::torch::module(f);
  const at::Tensor a = at::ones({size}).requires_grad_(graph), b = at::ones({size});
  const pn::Tensor x = pn::ones(pn::type<float>({size})), y = x + 0.0f;
  const Work ours = [&] {
    for (std::int64_t i = 0; i < steps; ++i) m(a, b);
  };
  const Work alone = [&] {
    for (std::int64_t i = 0; i < steps; ++i) f(x, y).block_until_ready();
  };
  const auto times = race({ours, alone});
  line(name, (times[0] - times[1]) / steps / 1000, "us more than the program", "the program",
       times[1] / steps / 1000);
}

/// A step of XLA's threads and of torch's, over and over.
void pools() {
  const pn::Type type = pn::type<float>({384, 384});
  const auto f = pn::jit([&](pn::Tensor x) {
    return pn::fori_loop(
        0, 40,
        [&](pn::Tensor, pn::Tensor v) {
          const pn::Tensor y = pn::torch::call(
              type, [](const at::Tensor& t) { return at::matmul(at::tanh(t), t) * 0.01f; }, v);
          return pn::matmul(pn::tanh(y), v) * 0.01f;
        },
        x);
  });
  const pn::Tensor x = pn::full(type, 0.01f);
  std::vector<Work> sides;
  for (const int threads : {1, 2})
    sides.push_back([&f, &x, threads] {
      pn::torch::set_threads(threads);
      f(x).block_until_ready();
    });
  const auto times = race(sides, 9);
  pn::torch::set_threads(0);
  line("torch_pools", times[0] / 40 / 1000, "us a step, torch with 1 thread", "torch with 2",
       times[1] / 40 / 1000);
}

}  // namespace

int main() {
  const auto relu = [](const at::Tensor& t) { return at::relu(t); };
  calls("torch_call", relu, 16, false);
  calls("torch_call_16384", relu, 16384, false);
  calls("torch_grad", relu, 16, true);
  programs("torch_program", 16, false);
  programs("torch_program_16384", 16384, false);
  programs("torch_program_graph", 16, true);
  pools();
}
