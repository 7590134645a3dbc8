// Programs without calls: what starting one costs, and what making one costs.
#include <postern/postern.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "bare.h"
#include "harness.h"
#include "run/compiled.h"

namespace bench {

namespace pn = postern;

void dispatch(Report& report) {
  Bare bare(R"(module { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %one = stablehlo.constant dense<1.0> : tensor<4xf32>
    %y = stablehlo.add %x, %one : tensor<4xf32>
    return %y : tensor<4xf32> } })");
  const float numbers[4] = {1, 2, 3, 4};
  bare.set_argument(pn::DType::f32, std::vector<std::int64_t>{4}, numbers);
  const auto f = pn::jit([](pn::Tensor x) { return x + 1.0f; });
  const pn::Tensor x = pn::tensor<float>({1, 2, 3, 4});
  const auto ns = race({[&](std::int64_t n) {
                          while (n-- > 0) f(x).block_until_ready();
                        },
                        [&](std::int64_t n) { bare.run(n); }},
                       25);
  report.add({"dispatch", ns[0] / 1e3, "us", "pjrt", ns[1] / 1e3,
              "a jitted x + 1 on f32[4], awaited; raw C API"});
  report.add_jax({"dispatch", ns[0] / 1e3, "us"}, "dispatch");
}

namespace {

pn::Tensor many_sines(pn::Tensor x, int count) {
  while (count-- > 0) x = pn::sin(x);
  return x;
}

pn::Tensor calls(pn::Tensor x, int count) {
  while (count-- > 0)
    x = pn::call(
        x.type(), [](pn::View<const float> in, pn::View<float> out) { out[0] = in[0]; }, x);
  return x;
}

/// Milliseconds to trace and lower, without compiling. A jit of its own each time: nothing is found
/// in a cache.
double lower_ms(pn::Tensor (*chain)(pn::Tensor, int), int count) {
  const pn::Tensor x = pn::abstract(pn::type<float>({4}));
  const auto ns = race({[&](std::int64_t n) {
                         while (n-- > 0)
                           pn::jit([&](pn::Tensor v) { return chain(v, count); }).lower(x);
                       }},
                       15, 20);
  return ns[0] / 1e6;
}

}  // namespace

void trace_lower(Report& report) {
  const double ops = lower_ms(many_sines, 1000), more_ops = lower_ms(many_sines, 10'000),
               some_calls = lower_ms(calls, 1000);
  report.add_jax({"trace_lower/1000_ops", ops, "ms"}, "trace_lower");
  report.add_jax({"trace_lower/10000_ops", more_ops, "ms"}, "trace_lower");
  report.add({"trace_lower/10000_ops", more_ops, "ms", "1000_ops", ops, "10 is linear"});
  report.add_jax({"trace_lower/1000_calls", some_calls, "ms"}, "trace_lower");
}

namespace {

auto ordered_calls(int count) {
  return pn::jit([count](pn::Tensor x) {
    for (int i = 0; i < count; ++i)
      x = pn::call(
          {.effect = pn::Effect::ordered}, x.type(),
          [](pn::View<const float> in, pn::View<float> out) { out[0] = in[0]; }, x * 1.0001f);
    return x;
  });
}

/// Seconds to make a program of so many ordered calls and run it once.
double compile_s(int count) {
  const auto begin = std::chrono::steady_clock::now();
  ordered_calls(count)(pn::tensor<float>({1, 2, 3, 4})).block_until_ready();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// What the parts of a long program cost its runs.
void runs_in_parts(Report& report) {
  namespace in = pn::internal;
  const pn::Tensor x = pn::tensor<float>({1, 2, 3, 4});
  const pn::Lowered lowered = ordered_calls(1000).lower(x);
  const auto& parts = static_cast<const in::run::ProgramModule&>(*lowered.internal());
  const auto side = [&](std::string text) -> Side {
    auto module = std::make_shared<in::run::ProgramModule>(parts);
    module->text = std::move(text);
    const auto program =
        std::make_shared<in::run::CompiledProgram>(std::move(module), 1, lowered.captures());
    return [&x, program](std::int64_t times) {
      const pn::Tensor* const arguments[] = {&x};
      pn::Tensor result;
      while (times-- > 0) {
        program->run(arguments, {&result, 1});
        result.block_until_ready();
      }
    };
  };
  const auto ns = race({side(parts.text), side(in::in_one_piece(parts.text))}, 25);
  report.add({"compile_calls/1000/run", ns[0] / 1e3, "us", "one piece", ns[1] / 1e3,
              "a run of the program in parts; 1.05 is the aim"});
}

}  // namespace

void compile_calls(Report& report) {
  double before = 0;
  for (const int count : {1000, 2000, 5000, 10'000, 20'000}) {
    const double seconds = compile_s(count);
    const std::string name = "compile_calls/" + std::to_string(count);
    if (count <= 2000) report.add_jax({name, seconds, "s"}, "compile_calls");
    if (count == 10'000) report.add({name, seconds, "s", "target", 8, "smaller is better"});
    if (count == 2000 || count >= 10'000)
      report.add({name, seconds, "s", "half", before, "2.3 is the aim"});
    before = seconds;
  }
  runs_in_parts(report);  // last: what it compiles is compiled once in a process
}

}  // namespace bench
