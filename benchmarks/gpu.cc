// What calls and taps cost on a GPU (POSTERN_PLATFORM=cuda); without one there is nothing to
// measure.
#include <postern/postern.h>

#include <fmt/format.h>

#include "harness.h"

namespace bench {

namespace pn = postern;

namespace {

constexpr std::int64_t loop_steps = 1000;

/// Nanoseconds for a step of a loop, less those of the loop without what is measured.
template <class F>
double per_step(std::int64_t elements, F f) {
  auto loop = [&](auto body) {
    return pn::jit([=](pn::Tensor x) {
      return pn::fori_loop(
          0, loop_steps, [=](pn::Tensor, pn::Tensor v) { return body(v + 1.0f); }, x);
    });
  };
  const auto with = loop(f), without = loop([](pn::Tensor v) { return v; });
  const pn::Tensor x = pn::zeros(pn::type<float>({elements})).block_until_ready();
  auto run = [&](const auto& g) {
    return [&](std::int64_t n) {
      while (n-- > 0) g(x).block_until_ready();
    };
  };
  run(with)(1);
  run(without)(1);
  const auto ns = race({run(with), run(without)}, 9, 50);
  pn::barrier();
  return (ns[0] - ns[1]) / static_cast<double>(loop_steps);
}

}  // namespace

void gpu(Report& report) {
  if (pn::devices().at(0).kind != "cuda") return;
  for (const std::int64_t elements : {std::int64_t{1}, std::int64_t{1} << 18}) {
    const std::string size = fmt::format("{}B", 4 * elements);
    const double staged = per_step(elements, [](pn::Tensor v) {
      return pn::call(
          {.effect = pn::Effect::unordered}, v.type(),
          [](pn::View<const float> in, pn::View<float> out) { out[0] = in[0]; }, v);
    });
    report.add(
        {"gpu/call/" + size, staged, "ns", "", 0, "operands to the host, one wait, results back"});
    const double in_place = per_step(elements, [](pn::Tensor v) {
      return pn::call(
          {.effect = pn::Effect::unordered, .memory = pn::Memory::device}, v.type(),
          [](pn::View<const float>, pn::View<float>) {}, v);
    });
    report.add({"gpu/call_device/" + size, in_place, "ns", "the same by the host", staged,
                "device pointers and the stream"});
    const double tap = per_step(elements, [](pn::Tensor v) {
      return pn::tap({.mode = pn::TapMode::async}, v, [](pn::AnyView) {});
    });
    report.add(
        {"gpu/tap_async/" + size, tap, "ns", "a call", staged, "a copy and an event, no wait"});
  }
}

}  // namespace bench
