// What ./bench torch measures, as lines of JSON: calls of torch in a loop beside the functions
// alone, programs in torch beside the programs alone, and settings of the two pools of threads. A
// program of its own: torch's libraries and threads would disturb the other benchmarks. With
// arguments, the measurements whose names begin with one of them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <postern/postern.h>
#include <postern/torch.h>
#include <torch/csrc/autograd/autograd.h>

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

enum class Of { function, reverse, forward };

/// A vector-Jacobian product, or a Jacobian-vector product of torch's forward mode.
at::Tensor pulled(const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& v) {
  const at::Tensor x = v.detach().requires_grad_(true);
  const at::Tensor y = f(x);
  return torch::autograd::grad({y}, {x}, {y.detach()})[0];
}
at::Tensor pushed(const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& v) {
  const auto level = torch::autograd::forward_ad::enter_dual_level();
  const at::NoGradGuard none;
  const at::Tensor y = f(at::_make_dual(v, v, static_cast<std::int64_t>(level)));
  const at::Tensor dy = y._fw_grad(level);
  torch::autograd::forward_ad::exit_dual_level(level);
  return dy;
}

/// A loop of so many calls, and a loop of the same work in torch alone.
void calls(const std::string& name, const std::function<at::Tensor(const at::Tensor&)>& f,
           std::int64_t size, Of of) {
  const pn::Type type = pn::type<float>({size});
  const auto call = [&](pn::Tensor x) {
    return pn::torch::call(
        type, [&](const at::Tensor& t) { return f(t); }, x);
  };
  const auto step = [&](pn::Tensor, pn::Tensor x) {
    if (of == Of::function) return call(x);
    if (of == Of::forward) return pn::jvp(call, x, x).second;
    const auto [y, back] = pn::vjp(call, x);
    return std::get<0>(back(y));
  };
  const auto loop = pn::jit([&](pn::Tensor x) { return pn::fori_loop(0, steps, step, x); });
  const pn::Tensor x = pn::zeros(type);
  const at::Tensor t = at::zeros({size});
  const Work ours = [&] { loop(x).block_until_ready(); };
  const Work theirs = [&] {
    at::Tensor v = t;
    if (of == Of::function) {
      const at::NoGradGuard none;
      for (std::int64_t i = 0; i < steps; ++i) v = f(v);
      return;
    }
    for (std::int64_t i = 0; i < steps; ++i) v = of == Of::reverse ? pulled(f, v) : pushed(f, v);
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

int main(int count, char** arguments) {
  const std::vector<std::string> wanted(arguments + 1, arguments + count);
  const auto relu = [](const at::Tensor& t) { return at::relu(t); };
  const auto measure = [&](const std::string& name, const auto& how) {
    const auto asked = [&](const std::string& w) { return name.starts_with(w); };
    if (wanted.empty() || std::any_of(wanted.begin(), wanted.end(), asked)) how(name);
  };
  const auto call = [&](const std::string& name, std::int64_t size, Of of) {
    measure(name, [&](const std::string& n) { calls(n, relu, size, of); });
  };
  const auto program = [&](const std::string& name, std::int64_t size, bool graph) {
    measure(name, [&](const std::string& n) { programs(n, size, graph); });
  };
  call("torch_call", 16, Of::function);
  call("torch_call_16384", 16384, Of::function);
  call("torch_grad", 16, Of::reverse);
  call("torch_jvp", 16, Of::forward);
  program("torch_program", 16, false);
  program("torch_program_16384", 16384, false);
  program("torch_program_graph", 16, true);
  measure("torch_pools", [](const std::string&) { pools(); });
}
