// Simulators of the tests of pools.
#pragma once
#include <postern/pool.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "support.h"

namespace postern::test {

/// Walks by its action from where its seed says, with noise that its seed makes; ends beyond 3.
struct Walk {
  static Type action() { return type<float>({1}); }
  static Type observation() { return type<float>({2}); }
  void reset(std::uint64_t seed, View<float> seen) {
    state = seed;
    x = noise();
    show(seen);
  }
  Stepped step(View<const float> move, View<float> seen) {
    x += move[0] + noise() / 8;
    show(seen);
    return {.reward = x, .terminated = x > 3};
  }
  std::string save() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }
  void load(std::string_view text) {
    if (text.size() != sizeof *this) throw Error(ErrorCode::data_loss, "no Walk");
    std::memcpy(static_cast<void*>(this), text.data(), sizeof *this);
  }
  float noise() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(state >> 40) / (1 << 24);
  }
  void show(View<float> seen) const {
    seen[0] = x;
    seen[1] = static_cast<float>(state % 1024);
  }
  std::uint64_t state = 0;
  float x = 0;
};

/// Counts its steps, and does in each what it was made with.
struct Counter {
  using Act = std::function<Stepped(std::int64_t element, std::int32_t action)>;
  explicit Counter(std::int64_t e, Act a = {}) : element(e), act(std::move(a)) {}
  Counter(const Counter&) = delete;

  static Type action() { return type<std::int32_t>(); }
  static Type observation() { return type<std::int32_t>(); }
  void reset(std::uint64_t, View<std::int32_t> seen) { seen[0] = steps = 0; }
  Stepped step(std::int32_t number, View<std::int32_t> seen) {
    seen[0] = ++steps;
    return act ? act(element, number) : Stepped{.reward = static_cast<double>(number)};
  }
  std::int64_t element;
  Act act;
  std::int32_t steps = 0;
};

/// A pool of counters that do this in each step.
inline Pool<Counter> counters(std::int64_t n, Counter::Act act,
                              const SimulatorOptions& options = {.kept = false}) {
  return Pool<Counter>(
      n, [act](std::int64_t e) { return Counter(e, act); }, options);
}

}  // namespace postern::test
