// What watching costs: synchronous and asynchronous taps, listeners that take their time,
// statistics of a training step, a full queue.
#include <postern/postern.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "bare.h"
#include "harness.h"
#include "host/queue.h"

namespace bench {

namespace pn = postern;
using namespace std::chrono_literals;

namespace {

constexpr double mib = 1 << 20;

/// A loop of so many steps, each of which shows its value.
template <class Listener>
auto tapped_loop(std::int64_t steps, const pn::TapOptions& options, Listener listener,
                 float grow = 1, const pn::JitOptions& how = {}) {
  return pn::jit(
      [=](pn::Tensor x) {
        return pn::fori_loop(
            0, steps,
            [&](pn::Tensor, pn::Tensor v) {
              return grow == 0 ? pn::tap(options, v, listener)
                               : pn::tap(options, v + grow, listener);
            },
            x);
      },
      how);
}
const pn::TapOptions async{.mode = pn::TapMode::async};

template <class F>
Side repeated(const F& f, const pn::Tensor& x) {
  return [&f, x](std::int64_t n) {
    while (n-- > 0) f(x).block_until_ready();
  };
}

/// Each result is the next argument, for a function that is given its argument.
template <class F>
Side passed_on(const F& f, pn::Tensor x) {
  return [&f, x = std::move(x)](std::int64_t n) mutable {
    while (n-- > 0) (x = f(x)).block_until_ready();
  };
}

std::string size_text(std::int64_t bytes) {
  if (bytes < 1 << 10) return std::to_string(bytes) + "B";
  if (bytes < 1 << 20) return std::to_string(bytes >> 10) + "KiB";
  return std::to_string(bytes >> 20) + "MiB";
}

}  // namespace

void tap_sync(Report& report) {
  constexpr std::int64_t steps = 1'000'000;
  static float total = 0;
  const auto loop = tapped_loop(steps, {}, [](float v) { total += v; });
  const pn::Tensor x(0.0f);
  // The same program, entered by a handler that only reads the number.
  std::string text = loop.lower(x).stablehlo();
  text.replace(text.find("postern_call"), std::strlen("postern_call"), "bench_look");
  Bare bare(text);
  const float zero = 0;
  bare.set_argument(pn::DType::f32, {}, &zero);
  const auto ns = race({repeated(loop, x), [&](std::int64_t n) { bare.run(n); }});
  report.add({"tap_sync", ns[0] / steps, "ns", "ffi", ns[1] / steps,
              "a tap of a scalar in a compiled loop; at most 1.25 is the aim"});

  constexpr std::int64_t sizes[] = {4, 4 << 10, 1 << 20, 256 << 20};
  // Arguments are given away, else an execution would copy its own once, which is not the taps'
  // doing.
  const auto passing = tapped_loop(steps, {}, [](pn::AnyView) {}, 0, {.donate = {0}});
  std::vector<Side> sides;
  for (const std::int64_t bytes : sizes)
    sides.push_back(passed_on(passing, pn::zeros(pn::type<float>({bytes / 4}))));
  std::vector<double> each = race(sides, 9, 50);
  for (double& e : each) e /= steps;
  for (std::size_t i = 0; i < each.size(); ++i)
    report.add({"tap_sync/" + size_text(sizes[i]), each[i], "ns", "4B", each[0],
                "the value passes; 0.8 to 1.2 is the aim"});
}

void tap_async(Report& report) {
  constexpr std::int64_t steps = 100'000;
  std::atomic<std::int64_t> delivered = 0;
  const auto loop =
      tapped_loop(steps, async, [&](float) { delivered.fetch_add(1, std::memory_order_relaxed); });
  const auto plain = pn::jit([](pn::Tensor x) {
    return pn::fori_loop(
        0, steps, [](pn::Tensor, pn::Tensor v) { return v + 1.0f; }, x);
  });
  const pn::Tensor x(0.0f);
  loop(x).block_until_ready();
  std::vector<double> program, whole, untapped;
  for (int round = 0; round < 25; ++round) {
    pn::barrier();
    untapped.push_back(timed([&] { plain(x).block_until_ready(); }));
    double alone = 0;
    whole.push_back(timed([&] {
      alone = timed([&] { loop(x).block_until_ready(); });
      pn::barrier();
    }));
    program.push_back(alone);
  }
  report.add({"tap_async/program", (median(program) - median(untapped)) / steps / 1e3, "us",
              "target", 0.15, "what a tap of a scalar costs the program, with an empty listener"});
  report.add({"tap_async/delivered", steps / median(whole) * 1e3, "million/s", "target", 1,
              "larger is better"});
  report.add_jax(
      {"tap_async/loop", median(whole) / steps / 1e3, "us", "", 0, "until all is delivered"},
      "tap_async");

  constexpr std::int64_t bytes = 16 << 20, times = 20;
  const auto large = tapped_loop(times, async, [](pn::AnyView) {}, 0, {.donate = {0}});
  std::vector<char> from(bytes, 1), to(bytes, 1);
  const auto ns = race({passed_on(large, pn::zeros(pn::type<float>({bytes / 4}))),
                        [&](std::int64_t n) {
                          for (std::int64_t i = 0; i < n * times; ++i) {
                            std::memcpy(to.data(), from.data(), bytes);
                            asm volatile("" : : "r"(to.data()) : "memory");
                          }
                        }},
                       15, 50);
  pn::barrier();
  const double sent = static_cast<double>(bytes * times);
  report.add({"tap_async/16MiB", sent / ns[0], "GB/s", "memcpy", sent / ns[1],
              "larger is better; at least 0.8 is the aim"});
}

void tap_overlap(Report& report) {
  constexpr int taps = 200;
  const auto program = [](bool tapped) {
    return pn::jit([=](pn::Tensor x, pn::Tensor rounds) {
      return pn::fori_loop(
          0, taps,
          [&](pn::Tensor, pn::Tensor v) {
            v = pn::fori_loop(
                0, rounds, [](pn::Tensor, pn::Tensor w) { return pn::sin(w) * 1.01f; }, v);
            if (tapped)
              pn::tap({.mode = pn::TapMode::async, .map = [](pn::Tensor w) { return pn::sum(w); }},
                      v, [](float) { std::this_thread::sleep_for(1ms); });
            return v;
          },
          x);
    });
  };
  const auto alone = program(false), tapped = program(true);
  const pn::Tensor x = pn::ones(pn::type<float>({4096}));
  const auto compute = [&](const auto& f, int rounds) {
    return timed([&] { f(x, pn::Tensor(rounds)).block_until_ready(); });
  };
  compute(alone, 1);
  compute(tapped, 1);
  const int rounds = std::max(1, static_cast<int>(10 * 200e6 / compute(alone, 10)));
  std::vector<double> device, listener, total;
  for (int round = 0; round < 7; ++round) {
    pn::barrier();
    device.push_back(compute(alone, rounds));
    listener.push_back(timed([] {
      for (int i = 0; i < taps; ++i) std::this_thread::sleep_for(1ms);
    }));
    total.push_back(timed([&] {
      compute(tapped, rounds);
      pn::barrier();
    }));
  }
  const double longer = std::max(median(device), median(listener));
  report.add_jax({"tap_overlap", median(total) / longer, "times", "", 0,
                  "200 taps with a listener of 1 ms beside 200 ms of compute: total over the "
                  "longer of the two; at most 1.1 is the aim"},
                 "tap_overlap");
}

namespace {

using Weights = std::vector<pn::Tensor>;

/// One step of gradient descent of a network of three layers of 1024; `show` sees activations and
/// gradients by name.
template <class Show>
auto training_step(Show show) {
  return pn::jit([=](Weights w, pn::Tensor x, pn::Tensor y) {
    const auto loss = [&](Weights v) {
      pn::Tensor h = x;
      for (std::size_t i = 0; i < v.size(); ++i) h = show("activation", pn::tanh(pn::dot(h, v[i])));
      const pn::Tensor d = h - y;
      return pn::mean(d * d);
    };
    const Weights g = pn::grad(loss)(w);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = w[i] - 0.1f * show("gradient", g[i]);
    return w;
  });
}

}  // namespace

void tap_tax(Report& report) {
  const pn::Tensor x =
      pn::sin(pn::reshape(pn::iota<float>(128 * 1024), {128, 1024})).block_until_ready();
  const Weights w(3, (pn::sin(pn::reshape(pn::iota<float>(1024 * 1024), {1024, 1024})) * 0.05f)
                         .block_until_ready());
  const auto stats = pn::listen::stats();
  const auto plain = training_step([](const char*, pn::Tensor t) { return t; });
  const auto tapped_in = [=](bool ordered) {
    return training_step([=](const char* name, pn::Tensor t) {
      return pn::tap({.name = name, .ordered = ordered}, t, stats);
    });
  };
  const auto tapped = tapped_in(false), in_order = tapped_in(true);
  const auto side = [&](const auto& step) {
    return [&](std::int64_t n) {
      while (n-- > 0) step(w, x, x)[0].block_until_ready();
    };
  };
  const auto ns = race({side(tapped), side(plain), side(in_order)}, 200, 15);
  report.add({"tap_tax", ns[0] / 1e6, "ms", "untapped", ns[1] / 1e6,
              "a training step of a 3-layer network of 1024, batch 128, with statistics of every "
              "activation and gradient; at most 1.05 is "
              "the aim"});
  report.add({"tap_tax/ordered", ns[2] / 1e6, "ms", "untapped", ns[1] / 1e6,
              "the same taps in program order, as they are by default"});
}

void tap_queue(Report& report) {
  constexpr std::size_t limit = 64 << 20;
  constexpr std::int64_t payload = 1 << 20, firings = 500;
  const pn::Tensor x = pn::zeros(pn::type<float>({payload / 4})).block_until_ready();
  pn::devices();  // the runtime sets the limit when it begins
  postern::internal::host::set_tap_queue_limit(limit);
  std::int64_t seen = 0;
  double last = 0;
  const auto slow = tapped_loop(firings, async, [&](pn::View<const float> v) {
    std::this_thread::sleep_for(2ms);
    ++seen;
    last = v[v.size() - 1];
  });
  slow.compile(x);
  reset_peak();
  const std::int64_t before = resident_bytes();
  slow(x).block_until_ready();
  pn::barrier();
  report.add({"tap_queue/memory", static_cast<double>(peak_bytes() - before) / mib, "MiB", "limit",
              limit / mib,
              "500 taps of 1 MiB with a slow listener: the most that was held, the program's own "
              "values included"});
  report.add({"tap_queue/delivered", static_cast<double>(seen) + (last == firings ? 0 : 1e9),
              "firings", "sent", firings, "none is lost"});
  postern::internal::host::set_tap_queue_limit(0);

  std::int64_t count = 0;
  const auto stream = tapped_loop(1'000'000, async, [&](float) { ++count; });
  const auto million = [&] {
    stream(pn::Tensor(0.0f)).block_until_ready();
    pn::barrier();
  };
  million();
  const double start = static_cast<double>(resident_bytes()) / 1024;
  for (int i = 0; i < 10; ++i) million();
  report.add({"tap_queue/soak", static_cast<double>(resident_bytes()) / 1024, "KiB", "before",
              start, "resident memory after 1e7 taps"});
}

}  // namespace bench
