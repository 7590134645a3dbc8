// Several devices and staged programs: what calls and taps cost on each device, how fast a failure
// is at the caller, what a stage adds.
#include <postern/postern.h>

#include <array>
#include <ctime>
#include <stdexcept>
#include <string>
#include <thread>

#include "harness.h"

namespace bench {

namespace pn = postern;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Processor time of this thread, in nanoseconds.
double thread_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

/// A loop that taps and calls in each step, on each device, and what a step takes of the thread
/// that executes it: virtual devices share the cores, and threads of XLA's pool that have nothing
/// to do may spin.
class CallingLoop {
 public:
  pn::Tensor operator()(pn::Tensor x) {
    return pn::fori_loop(
        0, steps,
        [this](pn::Tensor, pn::Tensor v) {
          v = pn::tap(v + 1.0f, [](pn::AnyView) {});
          return pn::call(
              {.effect = pn::Effect::unordered}, v.type(),
              [this](const pn::CallInfo& info, pn::View<const float> in, pn::View<float> out) {
                out[0] = in[0];
                count(devices_[static_cast<std::size_t>(info.device)]);
              },
              v);
        },
        x);
  }
  /// Nanoseconds of a step, of every loop that ended since this was asked.
  std::vector<double> take() {
    std::vector<double> all;
    for (Device& d : devices_) {
      all.insert(all.end(), d.took.begin(), d.took.end());
      d.took.clear();
    }
    return all;
  }

 private:
  static constexpr std::int64_t steps = 20'000;
  struct alignas(64) Device {  // no two on a cache line, which their threads would fight for
    std::int64_t step = 0;
    double start = 0;
    std::thread::id thread = {};
    std::vector<double> took = {};
  };
  static void count(Device& d) {
    if (d.step++ == 0) {
      d.thread = std::this_thread::get_id();
      d.start = thread_time();
    }
    if (d.step < steps) return;
    if (d.thread != std::this_thread::get_id()) throw std::logic_error("a loop changed its thread");
    d.took.push_back((thread_time() - d.start) / static_cast<double>(steps - 1));
    d.step = 0;
  }
  std::array<Device, 8> devices_;
};

template <class F>
auto on_each(int devices, F f) {
  return pn::jit(
      pn::shard_map(f, pn::Mesh({{"d", devices}}), {.in = {pn::P("d")}, .out = {pn::P("d")}}));
}

}  // namespace

void shards(Report& report) {
  CallingLoop loop;
  const auto part = [&](pn::Tensor x) { return loop(x); };
  const auto one = pn::jit(part);
  for (const int n : {1, 2, 4, 8}) {
    const auto each = on_each(n, part);
    std::vector<double> alone, together;
    for (int round = 0; round < 15; ++round)
      for (const bool all : {false, true}) {
        const pn::Tensor x = pn::zeros(pn::type<float>({all ? n : 1}));
        (all ? each(x) : one(x)).block_until_ready();
        const std::vector<double> took = loop.take();
        std::vector<double>& counted = all ? together : alone;
        if (round > 0) counted.insert(counted.end(), took.begin(), took.end());
      }
    report.add({"shards/" + std::to_string(n), median(together), "ns",
                "one device without shard_map", median(alone),
                "of a device's thread for a tap and a call; at most 1.5 is the aim"});
  }
  const auto slow = on_each(8, [](pn::Tensor x) {
    return pn::call(
        {.effect = pn::Effect::unordered}, x.type(),
        [](pn::View<const float>, pn::View<float>) { std::this_thread::sleep_for(10ms); }, x);
  });
  std::vector<double> took;
  for (int round = 0; round < 10; ++round) {
    const auto start = Clock::now();
    slow(pn::zeros(pn::type<float>({8}))).block_until_ready();
    took.push_back(milliseconds_since(start));
  }
  report.add({"shards/overlap", median(took), "ms", "", 0,
              "eight devices whose functions take 10 ms each; under 30 is the aim"});
}

void failure(Report& report) {
  for (const int n : {2, 4, 8}) {
    Clock::time_point thrown;
    const auto f = pn::jit(pn::shard_map(
        [&](pn::Tensor x) {
          return pn::psum(
              pn::call(
                  x.type(),
                  [&](const pn::CallInfo& info, pn::View<const float>, pn::View<float>) {
                    if (info.device != 1) return;
                    thrown = Clock::now();
                    throw std::runtime_error("bad part");
                  },
                  x),
              "d");
        },
        pn::Mesh({{"d", n}}), {.in = {pn::P("d")}, .out = {pn::P()}}));
    std::vector<double> took;
    for (int round = 0; round < 200; ++round) try {
        f(pn::zeros(pn::type<float>({n}))).block_until_ready();
      } catch (const pn::CallbackError&) {
        took.push_back(milliseconds_since(thrown));
      }
    report.add({"failure/" + std::to_string(n), median(took), "ms", "", 0,
                "from a part's exception to the error at the caller; under 10 is the aim"});
  }
}

void staged(Report& report) {
  constexpr int calls = 20;
  auto chain = [](pn::Tensor x) {
    for (int i = 0; i < calls; ++i)
      x = pn::call(
          x.type(),
          [](pn::View<const float> in, pn::View<float> out) {
            std::copy(in.begin(), in.end(), out.begin());
          },
          x + 1.0f);
    return x + 1.0f;
  };
  const auto in_stages = pn::jit(chain, {.mode = pn::Mode::staged}), whole = pn::jit(chain);
  const auto one = pn::jit([](pn::Tensor x) { return x + 1.0f; });
  const pn::Tensor x = pn::zeros(pn::type<float>({16})).block_until_ready();
  in_stages(x).block_until_ready();
  const auto ns = race({[&](std::int64_t n) {
                          while (n-- > 0) in_stages(x).block_until_ready();
                        },
                        [&](std::int64_t n) {
                          while (n-- > 0) {
                            pn::Tensor y = x;
                            for (int i = 0; i <= calls; ++i) (y = one(y)).block_until_ready();
                          }
                        }});
  report.add({"staged", (ns[0] - ns[1]) / calls / 1e3, "us", "", 0,
              "what a stage adds to its execution, its call included; at most 5 is the aim"});

  auto large = [](pn::Tensor v) {
    for (int i = 0; i < 4; ++i)
      v = pn::call(
          v.type(),
          [](pn::View<const float> in, pn::View<float> out) {
            std::copy(in.begin(), in.end(), out.begin());
          },
          v * 2.0f);
    return pn::sum(v);
  };
  std::array<double, 2> peak{};
  for (const bool stages : {false, true}) {
    const auto f = pn::jit(large, {.mode = stages ? pn::Mode::staged : pn::Mode::compiled});
    const pn::Tensor v = pn::zeros(pn::type<float>({16 << 20})).block_until_ready();
    f(v).block_until_ready();
    reset_peak();
    const auto before = static_cast<double>(resident_bytes());
    f(v).block_until_ready();
    peak[stages] = (static_cast<double>(peak_bytes()) - before) / (1 << 20);
  }
  report.add({"staged/memory", peak[1], "MiB", "compiled", peak[0],
              "most memory of four calls of 64 MiB, above what was there"});
}

}  // namespace bench
