// Blocks: linear algebra beside NumPy, SciPy and JAX, the example's attention kernel beside its
// default, and what a block itself costs.
#include <malloc.h>
#include <postern/postern.h>

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "../examples/plugin/attention.h"
#include "harness.h"

namespace bench {

namespace pn = postern;

namespace {

pn::Tensor normal(const pn::Dims& dims, std::uint64_t seed = 0) {
  return pn::random::normal(pn::random::key(seed), pn::type<float>(dims));
}

const pn::Tensor& first(const pn::Tensor& y) { return y; }
template <class... T>
const pn::Tensor& first(const std::tuple<T...>& y) {
  return std::get<0>(y);
}
template <class A, class B>
const pn::Tensor& first(const std::pair<A, B>& y) {
  return y.first;
}

}  // namespace

/// jax_sides.py takes the fastest of NumPy, SciPy and JAX. OpenBLAS's threads, which work on larger
/// matrices, wait awake for a while.
void linalg(Report& report) {
  struct Size {
    const char* label;
    pn::Dims dims;
  };
  for (const Size& size : {Size{"8", {8, 8}},
                           {"64", {64, 64}},
                           {"512", {512, 512}},
                           {"1024", {1024, 1024}},
                           {"1000x8", {1000, 8, 8}}}) {
    const std::int64_t n = size.dims.back();
    const pn::Tensor a = normal(size.dims), t = pn::move_axis(a, -1, -2);
    const pn::Tensor symmetric = (a + t) * 0.5f,
                     positive = pn::matmul(a, t) + pn::eye<float>(n) * static_cast<float>(n);
    auto row = [&](const std::string& name, const auto& f, const pn::Tensor& x) {
      const auto jitted = pn::jit(f);
      std::vector<Side> sides{[&](std::int64_t times) {
        while (times-- > 0) first(jitted(x)).block_until_ready();
      }};
      if (auto peer = report.jax_side("linalg:" + name + ":" + size.label))
        sides.push_back(std::move(*peer));
      const auto ns =
          race(sides, n < 512 ? 15 : 5, 20, std::chrono::milliseconds(n < 64 ? 0 : 250));
      report.add({"linalg/" + name + "/" + size.label, ns[0] / 1e3, "us", "fastest",
                  sides.size() > 1 ? ns[1] / 1e3 : 0,
                  "beside the fastest of NumPy, SciPy and JAX, f32"});
    };
    row(
        "cholesky", [](pn::Tensor x) { return pn::linalg::cholesky(x); }, positive);
    row(
        "lu",
        [](pn::Tensor x) {
          const auto f = pn::linalg::lu(x);
          return std::pair{f.lu, f.pivots};
        },
        a);
    row(
        "qr", [](pn::Tensor x) { return pn::linalg::qr(x); }, a);
    row(
        "eigh", [](pn::Tensor x) { return pn::linalg::eigh(x); }, symmetric);
    row(
        "svd", [](pn::Tensor x) { return pn::linalg::svd(x); }, a);
  }
}

namespace {

/// Bytes that one run needs beyond what was there before.
template <class Run>
std::int64_t peak_of(const Run& run) {
  run();
  malloc_trim(0);  // what the first run has freed would hide what this one takes
  reset_peak();
  const std::int64_t before = resident_bytes();
  run();
  return peak_bytes() - before;
}

}  // namespace

void attention(Report& report) {
  pn::load_library(POSTERN_BENCH_ATTENTION);
  constexpr std::int64_t heads = 4, depth = 64;
  const Attention config{false, 1 / std::sqrt(static_cast<double>(depth))};
  const auto native = pn::jit(
      [config](pn::Tensor q, pn::Tensor k, pn::Tensor v) { return ::attention(config, q, k, v); });
  const auto usual = pn::jit([config](pn::Tensor q, pn::Tensor k, pn::Tensor v) {
    return attention_by_default(config, q, k, v);
  });
  for (const std::int64_t length : {512, 1024, 2048, 4096}) {
    const pn::Dims dims{heads, length, depth};
    const pn::Tensor q = normal(dims, 1), k = normal(dims, 2), v = normal(dims, 3);
    auto by_kernel = [&] { native(q, k, v).block_until_ready(); };
    auto by_default = [&] { usual(q, k, v).block_until_ready(); };
    auto times = [](const auto& run) {
      return [&run](std::int64_t n) {
        while (n-- > 0) run();
      };
    };
    const auto ns = race({times(by_kernel), times(by_default)}, 7);
    const std::string name = "attention/" + std::to_string(length);
    report.add({name, ns[0] / 1e6, "ms", "default", ns[1] / 1e6,
                "4 heads of depth 64, f32; the same in ordinary operations"});
    report.add({name + "/peak", static_cast<double>(peak_of(by_kernel)) / 0x1p20, "MiB", "default",
                static_cast<double>(peak_of(by_default)) / 0x1p20,
                "memory of a run at most, its result included"});
  }
}

namespace {

struct Plain {};

pn::Tensor chain(pn::Tensor x) {
  for (int i = 0; i < 10; ++i) x = pn::tanh(x * 1.01f) + 0.5f;
  return x;
}

}  // namespace

void block_tax(Report& report) {
  const auto without = pn::jit([](pn::Tensor x) { return chain(x); });
  const auto with = pn::jit([](pn::Tensor x) { return pn::block(Plain{}, chain, x); });
  const pn::Tensor x = normal({1024});
  const auto ns = race({[&](std::int64_t n) {
                          while (n-- > 0) with(x).block_until_ready();
                        },
                        [&](std::int64_t n) {
                          while (n-- > 0) without(x).block_until_ready();
                        }},
                       25);
  const bool same = with.compile(x).optimized() == without.compile(x).optimized();
  report.add(
      {"block_tax", ns[0] / 1e3, "us", "without", ns[1] / 1e3,
       std::string(
           "ten steps on f32[1024] as a block that takes its default; optimised programs are ") +
           (same ? "the same" : "different")});
}

}  // namespace bench
