// Holds two carts in the middle of their rails: a control loop with a known worst case. The loop is
// one compiled program; each step asks the sensors, computes a policy with two layers of 32 and
// drives the motors, which are functions of this process. Says how long it took from the sensors to
// the motors, at most and in so many of all steps.
//
//   control [HERTZ STEPS [LIMIT]]     0 hertz: each step as soon as it can be; LIMIT of each call,
//                                     in us: a call that is later ends the run, and the carts stop
#include <postern/postern.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "histogram.h"

namespace pn = postern;

namespace {

using Clock = std::chrono::steady_clock;
using Limit = std::chrono::nanoseconds;
constexpr std::size_t motors = 2, sensors = 2 * motors, width = 32;

struct Policy {
  pn::Tensor first, second, last;

  pn::Tensor operator()(const pn::Tensor& seen) const {
    return pn::matmul(pn::tanh(pn::matmul(pn::tanh(pn::matmul(seen, first)), second)), last);
  }
};

/// Pushes each cart to the middle, so strongly.
Policy policy(float strength) {
  std::vector<float> first(sensors * width), second(width * width), last(width * motors);
  for (std::size_t m = 0; m < motors; ++m) {
    first[m * width + m] = -0.1f * strength;             // where it is
    first[(motors + m) * width + m] = -0.2f * strength;  // how fast
    second[m * width + m] = 1;
    last[m * motors + m] = 10;
  }
  return {pn::tensor(first, {sensors, width}), pn::tensor(second, {width, width}),
          pn::tensor(last, {width, motors})};
}

/// The carts. The sensors wait until a step is due, awake: a thread that sleeps is woken too late.
class Rig {
 public:
  explicit Rig(double hertz) : period_(hertz > 0 ? static_cast<std::int64_t>(1e9 / hertz) : 0) {}

  Clock::time_point start() { return due_ = Clock::now(); }
  void sense(pn::View<float> seen, pn::View<bool> changed) {
    if (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    while (period_.count() > 0 && Clock::now() < due_) continue;
    sensed_ = Clock::now();
    for (due_ += period_; period_.count() > 0 && due_ <= sensed_; due_ += period_) ++missed;
    std::ranges::copy(at, seen.data());
    std::ranges::copy(speed, seen.data() + motors);
    changed[0] = fresh_.load(std::memory_order_acquire);
  }
  void drive(pn::View<const float> pushes) {
    took.add((Clock::now() - sensed_).count());
    for (std::size_t m = 0; m < motors; ++m) {
      push[m] = pushes.data()[m];
      at[m] += 0.01f * (speed[m] += 0.01f * push[m]);
    }
  }
  /// What was pushed last goes on until somebody stops it.
  void stop() { push.fill(0); }

  /// Has the loop go on with other weights, from its next step on. Any thread.
  void exchange(const Policy& policy) {
    std::vector<std::vector<float>> weights;
    for (const pn::Tensor& leaf : pn::leaves(policy)) weights.push_back(leaf.to_vector<float>());
    const std::scoped_lock lock(guard_);
    weights_ = std::move(weights);
    fresh_.store(true, std::memory_order_release);
  }
  void fetch(std::span<const pn::AnyMutableView> out) {
    const std::scoped_lock lock(guard_);
    for (std::size_t i = 0; i < out.size(); ++i)
      std::ranges::copy(weights_[i], out[i].as<float>().begin());
    fresh_ = false;
  }
  bool fetched() const { return !fresh_; }

  std::array<float, motors> at{1, -1}, speed{}, push{};
  std::atomic<bool> hangs{false};  // the sensors do
  std::int64_t missed = 0;
  Histogram took;  // from the sensors to the motors

 private:
  const Limit period_;
  Clock::time_point due_, sensed_;
  std::mutex guard_;
  std::vector<std::vector<float>> weights_;
  std::atomic<bool> fresh_{false};
};

/// The loop: a function of the first weights and how many steps there are.
auto loop(Rig& rig, Limit limit) {
  return pn::jit([&rig, limit](Policy first, pn::Tensor steps) {
    const auto options = [&](const char* name) {
      return pn::CallOptions{.name = name, .effect = pn::Effect::ordered, .timeout = limit};
    };
    const auto fetch = [&](const Policy& like) {
      const auto fill = [&rig](std::span<const pn::AnyView>,
                               std::span<const pn::AnyMutableView> out) { rig.fetch(out); };
      return pn::call(options("weights"), like, fill);
    };
    const auto step = [&](pn::Tensor i, Policy now) {
      const auto [seen, changed] =
          pn::call(options("sensors"), std::pair{pn::type<float>({sensors}), pn::type<bool>()},
                   [&rig](pn::View<float> s, pn::View<bool> c) { rig.sense(s, c); });
      now = pn::cond(
          changed, fetch, [](const Policy& same) { return same; }, now);
      pn::call(
          options("motors"), std::tuple<>(),
          [&rig](pn::View<const float> pushes) { rig.drive(pushes); }, now(seen));
      return std::pair{i + 1, now};
    };
    const auto goes_on = [&](pn::Tensor i, const Policy&) { return i < steps; };
    return pn::while_loop(goes_on, step, std::pair{pn::Tensor(0), first}).first;
  });
}

/// Runs it until the end or a call that is late. Says whether one was.
bool run(Rig& rig, std::int32_t steps, Limit limit) {
  const auto control = loop(rig, limit);
  control.compile(policy(1), pn::Tensor(steps));
  bool late = false;
  const auto begin = rig.start();
  try {
    control(policy(1), pn::Tensor(steps)).block_until_ready();
  } catch (const pn::TimeoutError& e) {
    rig.stop();
    std::printf("the carts stop: %s\n", e.what());
    late = true;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const Histogram& took = rig.took;
  std::printf(
      "%lld steps in %.3f s, %lld periods missed: p50 %.2f us, p99 %.2f us, p99.9 %.2f us, "
      "p99.999 %.2f us, at most %.2f us\n",
      static_cast<long long>(took.count), seconds, static_cast<long long>(rig.missed),
      took.quantile(0.5), took.quantile(0.99), took.quantile(0.999), took.quantile(0.99999),
      static_cast<double>(took.longest) / 1e3);
  took.print();
  return late;
}

/// Weights are exchanged while it runs, then the sensors hang.
bool check() {
  Rig rig(1000);
  std::jthread other([&] {
    rig.exchange(policy(2));
    while (!rig.fetched()) std::this_thread::yield();
    rig.hangs = true;
  });
  const bool late = run(rig, 1'000'000, std::chrono::milliseconds(50));
  return late && rig.fetched() && std::ranges::count(rig.push, 0.0f) == motors;
}

}  // namespace

int main(int count, char** arguments) try {
  const auto number = [&](int i) { return i < count ? std::atof(arguments[i]) : 0; };
  if (count > 1) {
    Rig rig(number(1));
    return run(rig, static_cast<std::int32_t>(number(2)), Limit(std::int64_t(1000 * number(3))));
  }
  for (const int hertz : {1000, 10'000, 50'000, 0}) {
    std::printf(hertz ? "%d Hz: " : "as fast as can be: ", hertz);
    Rig rig(hertz);
    run(rig, hertz ? hertz : 1'000'000, {});
    const bool rests = std::abs(rig.at[0]) < 0.1f && std::abs(rig.at[1]) < 0.1f;
    if (!rests && rig.took.count > 5000) throw std::runtime_error("the carts are not at rest");
  }
  if (!check()) throw std::runtime_error("it was not stopped");
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "control: %s\n", e.what());
  return 1;
}
