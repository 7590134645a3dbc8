// Programs made by transformations: training steps, tracing of derivatives, calls under vmap.
#include <postern/postern.h>

#include <array>
#include <ctime>
#include <optional>
#include <vector>

#include "harness.h"
#include "platform/cpu/cpu.h"

namespace bench {

namespace pn = postern;
namespace pjrt = postern::internal::pjrt;
using pn::Tensor;

namespace {

/// A training step whose state goes from one to the next.
template <class State, class Step>
Side chained(const Step& step, State state, const Tensor& x, const Tensor& y) {
  return [step = pn::jit(step), state, x, y](std::int64_t times) mutable {
    while (times-- > 0) state = step(state, x, y);
    for (const Tensor& leaf : pn::leaves(state)) leaf.block_until_ready();
  };
}

using Four = std::array<Tensor, 4>;
struct Adam {
  Four model, mean, square;
  Tensor count;
};

/// The step of examples/digits.cc with a minibatch that is there already.
Side digits_step() {
  constexpr std::int64_t batch = 32, classes = 10;
  const auto loss = [](Four m, Tensor images, Tensor labels) {
    const Tensor scores =
        pn::matmul(pn::maximum(pn::matmul(images, m[0]) + m[1], 0.0f), m[2]) + m[3];
    return -pn::sum(pn::log_softmax(scores) * pn::one_hot(labels, classes)) / float(batch);
  };
  const auto step = [=](Adam s, Tensor images, Tensor labels) {
    const auto [value, gradient] = pn::value_and_grad(loss)(s.model, images, labels);
    s.count = s.count + 1.0f;
    const Tensor part_mean = 1.0f - pn::pow(0.9f, s.count),
                 part_square = 1.0f - pn::pow(0.999f, s.count);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      s.mean[i] = 0.9f * s.mean[i] + 0.1f * gradient[i];
      s.square[i] = 0.999f * s.square[i] + 0.001f * gradient[i] * gradient[i];
      s.model[i] = s.model[i] -
                   2e-3f * (s.mean[i] / part_mean) / (pn::sqrt(s.square[i] / part_square) + 1e-8f);
    }
    return s;
  };
  Adam start;
  const pn::Dims sizes[] = {{64, 128}, {128}, {128, 10}, {10}};
  for (std::size_t i = 0; i < 4; ++i) {
    const pn::Type type = pn::type<float>(sizes[i]);
    start.model[i] = pn::full(type, 0.01f);
    start.mean[i] = start.square[i] = pn::zeros(type);
  }
  start.count = Tensor(0.0f);
  const Tensor images = pn::reshape(pn::iota<float>(batch * 64) % 17.0f / 16.0f, {batch, 64});
  return chained(step, start, images, pn::iota<std::int32_t>(batch) % 10);
}

/// Three layers, all 1024 wide, for 128 rows.
Side mlp_step() {
  constexpr std::int64_t width = 1024, batch = 128;
  using Six = std::array<Tensor, 6>;
  const auto loss = [](Six m, Tensor x, Tensor y) {
    for (std::size_t i = 0; i < m.size(); i += 2) x = pn::tanh(pn::matmul(x, m[i]) + m[i + 1]);
    return pn::mean(pn::square(x - y));
  };
  const auto step = [=](Six m, Tensor x, Tensor y) {
    const Six slope = pn::grad(loss)(m, x, y);
    for (std::size_t i = 0; i < m.size(); ++i) m[i] = m[i] - 0.1f * slope[i];
    return m;
  };
  const Tensor weights =
      pn::reshape(pn::iota<float>(width * width) % 31.0f / 31.0f - 0.5f, {width, width}) / 16.0f;
  const Tensor bias = pn::zeros(pn::type<float>({width})),
               x = pn::reshape(pn::iota<float>(batch * width) % 13.0f / 13.0f, {batch, width});
  return chained(step, Six{weights, bias, weights, bias, weights, bias}, x, x / 2.0f);
}

}  // namespace

void step(Report& report) {
  const auto beside = [&](const std::string& name, const std::string& theirs, const Side& ours,
                          const std::string& note) {
    const std::optional<Side> same =
                                  report.jax_side(theirs, postern::internal::platforms::plugin_path(
                                                              postern::internal::platforms::cpu)),
                              other = report.jax_side(theirs);
    if (!same || !other)
      return report.add(
          {name, race({ours}, 25, 200)[0] / 1e3, "us", "", 0, note + "; JAX is not installed"});
    const auto ns = race({ours, *same, *other}, 25, 200);
    report.add(
        {name, ns[0] / 1e3, "us", "jax", ns[1] / 1e3, note + "; JAX on the same XLA, in turns"});
    report.add({name, ns[0] / 1e3, "us", "jax with jaxlib", ns[2] / 1e3,
                note + "; JAX on the XLA that it brings, in turns"});
  };
  beside("step/digits", "digits_step", digits_step(), "two layers, batch 32, Adam");
  beside("step/mlp", "mlp_step", mlp_step(), "three layers 1024 wide, batch 128, gradient descent");
}

namespace {

/// Milliseconds to trace the gradient, anew each time.
template <class F>
double trace_ms(const F& f) {
  const Tensor x = pn::abstract(pn::type<float>({4}));
  const auto ns = race({[&](std::int64_t n) {
                         while (n-- > 0) pn::jit(pn::grad(f)).program(x);
                       }},
                       15, 20);
  return ns[0] / 1e6;
}

Tensor sines(Tensor x, int count) {
  while (count-- > 0) x = pn::sin(x);
  return x;
}

double chain_ms(int count) {
  return trace_ms([count](Tensor x) { return pn::sum(sines(x, count)); });
}
double scan_ms(int count) {
  return trace_ms([count](Tensor x) {
    return pn::sum(pn::fori_loop(
        0, 1000, [&](Tensor, Tensor v) { return sines(v, count); }, x));
  });
}

}  // namespace

void grad_trace(Report& report) {
  const double chain = chain_ms(1000), chains = chain_ms(10'000), scan = scan_ms(100),
               scans = scan_ms(1000);
  report.add_jax(
      {"grad_trace/chain_1000", chain, "ms", "", 0, "tracing the gradient of 1,000 sines in a row"},
      "grad_trace");
  report.add({"grad_trace/chain_10000", chains, "ms", "chain_1000", chain, "10 is linear"});
  report.add_jax({"grad_trace/scan_100", scan, "ms", "", 0,
                  "tracing the gradient of 1,000 steps of 100 sines"},
                 "grad_trace");
  report.add({"grad_trace/scan_1000", scans, "ms", "scan_100", scan,
              "1,000 sines in a step; 10 is linear"});
}

namespace {

pn::Tensor doubled(const Tensor& x, pn::VmapMethod method) {
  return pn::call(
      {.vmap = method}, x.type(),
      [](pn::AnyView in, pn::AnyMutableView out) {
        const auto from = in.as<const float>();
        const auto to = out.as<float>();
        for (std::int64_t i = 0; i < in.size(); ++i) to[i] = 2 * from[i];
      },
      x);
}

/// Takes a millisecond of a processor's time.
void work(pn::View<const float> in, pn::View<float> out) {
  const auto spent_ns = [] {
    timespec spent{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return 1'000'000'000 * std::int64_t{spent.tv_sec} + spent.tv_nsec;
  };
  for (const std::int64_t end = spent_ns() + 1'000'000; spent_ns() < end;) out[0] = in[0];
}

Side runs_of(const std::function<Tensor(Tensor)>& f, const Tensor& x) {
  return [f = pn::jit(f), x](std::int64_t times) {
    while (times-- > 0) f(x).block_until_ready();
  };
}

}  // namespace

void while_grad(Report& report) {
  constexpr int steps = 1000;
  const auto next = [](Tensor v) { return v + 0.001f * pn::sin(v); };
  const auto through_while = [=](Tensor x) {
    const auto more = [](Tensor i, Tensor) { return i < steps; };
    const auto body = [=](Tensor i, Tensor v) { return std::tuple{i + 1, next(v)}; };
    return pn::sum(std::get<1>(pn::while_loop(more, body, std::tuple{Tensor(0), x})));
  };
  const auto through_scan = [=](Tensor x) {
    const auto step = [=](Tensor v) { return std::pair{next(v), std::tuple<>()}; };
    return pn::sum(pn::scan(step, x, {.length = steps}).first);
  };
  for (const std::int64_t size : {4, 1024, 65'536}) {
    const Tensor x = pn::iota<float>(size) / static_cast<float>(size);
    const auto ns = race({runs_of(pn::grad(through_while), x), runs_of(pn::grad(through_scan), x)});
    report.add({"while_grad/" + std::to_string(size), ns[0] / steps / 1e3, "us", "scan",
                ns[1] / steps / 1e3,
                "a step of the gradient of a while loop of 1,000 on so many floats; 2 is the aim"});
  }
}

void vmap_call(Report& report) {
  using pn::VmapMethod;
  const std::int64_t batch = 1000;
  const Tensor x = pn::iota<float>(batch);
  const auto batched = [&](VmapMethod method) {
    return runs_of(pn::vmap([=](Tensor e) { return doubled(e, method); }), x);
  };
  const Side loop = runs_of(
      [=](Tensor e) {
        return pn::map([](Tensor v) { return doubled(v, VmapMethod::sequential); }, e);
      },
      x);
  const auto ns = race({batched(VmapMethod::sequential), loop, batched(VmapMethod::expand_dims),
                        batched(VmapMethod::broadcast_all)});
  report.add({"vmap_call/sequential", ns[0] / 1e3, "us", "loop", ns[1] / 1e3,
              "1,000 elements; as many calls in a loop"});
  report.add_jax({"vmap_call/sequential", ns[0] / 1e3, "us"}, "vmap_call");
  report.add_jax({"vmap_call/expand_dims", ns[2] / 1e3, "us", "", 0, "1,000 elements, one call"},
                 "vmap_call");
  report.add_jax({"vmap_call/broadcast_all", ns[3] / 1e3, "us", "", 0, "1,000 elements, one call"},
                 "vmap_call");

  const auto working = [&](VmapMethod method) {
    const auto one = [=](Tensor e) { return pn::call({.vmap = method}, e.type(), work, e); };
    return runs_of(pn::vmap(one), pn::iota<float>(100));
  };
  const auto ms = race({working(VmapMethod::parallel), working(VmapMethod::sequential)}, 9, 100);
  report.add({"vmap_call/parallel", ms[0] / 1e6, "ms", "sequential", ms[1] / 1e6,
              "100 elements of 1 ms each; the processors there are share them"});
}

}  // namespace bench
