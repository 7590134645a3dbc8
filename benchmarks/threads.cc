// How much more several threads get done than one, each with its own runs of one small program.
#include <postern/postern.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bare.h"
#include "harness.h"

namespace bench {

namespace pn = postern;

namespace {

constexpr int most_threads = 4;

/// Work for each thread by its number, as one side: all threads do it so many times.
Side together(int threads, std::function<void(int thread, std::int64_t times)> work) {
  return [threads, work = std::move(work)](std::int64_t times) {
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back([&, t] { work(t, times); });
    work(0, times);
    for (std::thread& t : others) t.join();
  };
}

std::string text_of(bool calls) {
  const std::string call =
      "%w = stablehlo.custom_call @bench_identity(%x) {api_version = 4 : i32, backend_config = {}} "
      ": (tensor<4xf32>) -> tensor<4xf32>";
  return "module { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
         "%one = stablehlo.constant dense<1.0> : tensor<4xf32>\n" +
         (calls ? call : "%w = stablehlo.multiply %x, %one : tensor<4xf32>") +
         "\n%y = stablehlo.add %w, %one : tensor<4xf32>\nreturn %y : tensor<4xf32>\n} }";
}

/// `own`: each thread on a device of its own.
void measure(Report& report, bool calls, bool own) {
  const auto f = pn::jit([calls](pn::Tensor x) {
    const auto same = [](pn::View<const float> in, pn::View<float> out) {
      std::copy(in.begin(), in.end(), out.begin());
    };
    if (calls) x = pn::call({.effect = pn::Effect::unordered}, x.type(), same, x);
    return x + 1.0f;
  });
  std::vector<pn::Tensor> arguments;
  std::vector<std::unique_ptr<Bare>> bare;
  const float numbers[] = {1, 2, 3, 4};
  for (int t = 0; t < most_threads; ++t) {
    arguments.push_back(pn::device_put(pn::tensor<float>({1, 2, 3, 4}), own ? t : 0));
    bare.push_back(std::make_unique<Bare>(text_of(calls), own ? t : 0));
    bare.back()->set_argument(pn::DType::f32, std::vector<std::int64_t>{4}, numbers);
  }
  std::vector<Side> sides;
  const std::vector<int> counts{1, 2, most_threads};
  for (const int n : counts) {
    sides.push_back(together(n, [&](int thread, std::int64_t times) {
      const pn::Tensor& x = arguments[static_cast<std::size_t>(thread)];
      while (times-- > 0) f(x).block_until_ready();
    }));
    sides.push_back(together(n, [&](int thread, std::int64_t times) {
      bare[static_cast<std::size_t>(thread)]->run(times);
    }));
  }
  const std::vector<double> ns = race(sides, 15, 40);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double n = counts[i];
    const std::string name = std::string("threads/") + (calls ? "call" : "plain") +
                             (own ? "/own devices/" : "/one device/") + std::to_string(counts[i]);
    if (i == 0)
      report.add({name, ns[0] / 1e3, "us", "pjrt", ns[1] / 1e3, "a run, by one thread"});
    else
      report.add({name, n * ns[0] / ns[2 * i], "times one thread", "pjrt",
                  n * ns[1] / ns[2 * i + 1],
                  "as much gets done; on two cores 1.8 is the aim where PJRT gets there"});
  }
}

}  // namespace

void threads(Report& report) {
  for (const bool calls : {false, true})
    for (const bool own : {false, true}) measure(report, calls, own);
}

}  // namespace bench
