// Two platforms in a process: a program of the other one in the middle of a program, as a site and
// as a stage, and arrays that go across.
#include <postern/postern.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "harness.h"

namespace bench {

namespace pn = postern;

namespace {

/// What `f` takes on these arrays, one run after the other.
Side runs_of(const auto& f, const pn::Tensor& x) {
  f(x).block_until_ready();
  return [f, x](std::int64_t n) {
    while (n-- > 0) f(x).block_until_ready();
  };
}

void on_both(Report& report) {
  const int there = pn::devices("other").front().ordinal;
  const auto inner = pn::jit([](pn::Tensor x) { return x * 2.0f; });
  for (const std::int64_t bytes : {64, 1 << 20}) {
    const pn::Tensor x = pn::zeros(pn::type<float>({bytes / 4})).block_until_ready();
    const auto with_call = [&](int device, pn::Mode mode) {
      return pn::jit(
          [&inner, device](pn::Tensor v) {
            return pn::call({.device = device}, v, inner, v + 1.0f) + 1.0f;
          },
          {.mode = mode});
    };
    const auto one = pn::jit([](pn::Tensor v) { return v + 1.0f; });
    const auto without = pn::jit([](pn::Tensor v) { return (v + 1.0f) * 2.0f + 1.0f; });
    const auto ns = race({runs_of(with_call(there, pn::Mode::compiled), x),
                          runs_of(with_call(1, pn::Mode::compiled), x), runs_of(without, x),
                          runs_of(with_call(there, pn::Mode::staged), x),
                          runs_of(
                              [&](const pn::Tensor& v) {
                                const pn::Tensor a = one(v).block_until_ready();
                                const pn::Tensor b = inner(a).block_until_ready();
                                return one(b);
                              },
                              x),
                          runs_of(with_call(there, pn::Mode::automatic), x)});
    const std::string size = bytes == 64 ? "64B" : "1MiB";
    report.add({"platforms/site/" + size, (ns[0] - ns[2]) / 1e3, "us", "a device of the same one",
                (ns[1] - ns[2]) / 1e3, "the other platform's program and back, in a program"});
    report.add({"platforms/stage/" + size, (ns[3] - ns[4]) / 3e3, "us", "", 0,
                "what each of three stages on both adds to its run; at most 5 is the aim"});
    report.add({"platforms/stages/" + size, ns[3] / 1e3, "us", "as a site", ns[0] / 1e3,
                "the whole program"});
    report.add({"platforms/chosen/" + size, ns[5] / 1e3, "us", "the better one",
                std::min(ns[0], ns[3]) / 1e3, "site or stage, as Mode::automatic has it"});
  }
  const pn::Tensor x = pn::device_put(pn::ones(pn::type<float>({1 << 20})), 0);
  std::vector<float> from(1 << 20), to(1 << 20);
  const auto ns = race({[&](std::int64_t n) {
                          while (n-- > 0) pn::device_put(x, there).block_until_ready();
                        },
                        [&](std::int64_t n) {
                          while (n-- > 0) std::memcpy(to.data(), from.data(), sizeof(float) << 20);
                        }});
  report.add({"platforms/put/4MiB", ns[0] / 1e3, "us", "memcpy", ns[1] / 1e3,
              "an array to the other platform: CPUs see each other's memory"});
}

}  // namespace

void platforms(Report& report) {
  if (pn::devices().back().kind == "other") return on_both(report);
  const char* const other = std::getenv("POSTERN_BENCH_OTHER");  // a plug-in; else the same again
  const std::string plugin = other ? other : pn::plugin_info().path;
  report.add_output_of("POSTERN_CPU_DEVICES=2 POSTERN_PLATFORM='cpu,other=" + plugin + "' '" +
                       std::filesystem::read_symlink("/proc/self/exe").string() + "' platforms");
}

}  // namespace bench
