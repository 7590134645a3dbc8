// Host functions in C++ for the tests of postern.jax; it finds Postern in the process.
#include <postern/c.h>
#include <postern/postern.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>

namespace pn = postern;

namespace {

std::atomic<int> now{0}, most{0};

/// How many of us are at work at a time.
void meet(pn::View<const float> x, pn::View<float> y) {
  const int here = ++now;
  for (int known = most; here > known && !most.compare_exchange_weak(known, here);) {
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  --now;
  y[0] = 2 * x[0];
}

float part_of(const pn::CallInfo& info) {
  if (info.coordinates.empty()) return -1;
  float number = 0;
  for (const std::int64_t c : info.coordinates) number = 10 * number + static_cast<float>(c);
  return number;
}

void load() {
  pn::register_function("cc.twice", [](pn::AnyView x, pn::AnyMutableView y) {
    const auto from = x.as<float>();
    auto to = y.as<float>();
    for (std::int64_t i = 0; i < from.size(); ++i) to[i] = 2 * from[i];
  });
  pn::register_function("cc.sum", [](pn::View<const float> x, pn::View<const float> y) {
    float sum = 0;
    for (std::int64_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
    return sum;
  });
  pn::register_function("cc.meet", meet);
  pn::register_function("cc.most", [] { return most.exchange(0); });
  pn::register_function("cc.scale", [](const pn::Attributes& a, float x) {
    return static_cast<float>(a.get<double>("factor") +
                              static_cast<double>(a.get<std::int64_t>("plus"))) *
           x;
  });
  pn::register_function("cc.told",
                        [](float x) { std::printf("told %g\n", static_cast<double>(x)); });
  pn::register_function("cc.fails", [](float) -> float { throw std::runtime_error("no luck"); });
  // Where on the mesh it is, its coordinates the digits of a number; -1 where there is none.
  pn::register_function("cc.part",
                        [](const pn::CallInfo& info, float x) { return x + part_of(info); });
  pn::register_function("cc.show_part", [](const pn::CallInfo& info, float x) {
    std::printf("%d is at %g with %g\n", info.device, static_cast<double>(part_of(info)),
                static_cast<double>(x));
    std::fflush(stdout);
  });
  // A step with a derivative of its own: the cube, and a cotangent that says whose it is.
  pn::register_function("cc.cube", [](float x) { return x * x * x; });
  pn::register_function("cc.cube.vjp",
                        [](float x, float, float c) { return 3 * x * x * c + 0.5f; });
}

}  // namespace

POSTERN_LIBRARY("functions", "1.0", load)

extern "C" {
__attribute__((visibility("default"))) int c_plus(void* user, const pn_firing* firing) {
  *static_cast<float*>(firing->results[0].data) =
      *static_cast<const float*>(firing->operands[0].data) + *static_cast<float*>(user);
  return PN_OK;
}
__attribute__((visibility("default"))) const void* minus_one() {
  return new pn::Callee([](float x) { return x - 1; });
}
}
