// What a call costs: in a loop, in a whole execution, by payload, in memory, and over a long time.
#include <postern/postern.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "bare.h"
#include "harness.h"

namespace bench {

namespace pn = postern;

namespace {

/// The function that each benchmark calls back: result = operand.
pn::Tensor copied(const pn::Tensor& x) {
  return pn::call(
      x.type(),
      [](pn::View<const float> in, pn::View<float> out) {
        std::memcpy(out.data(), in.data(), in.span().size_bytes());
      },
      x);
}

std::string replace(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

/// TYPE stands for the type of the payload, COPY for the attributes and the type of a call of the
/// bare handler.
std::string module_text(const std::string& body, const std::string& type) {
  const std::string copy = "{api_version = 4 : i32, backend_config = {}} : (TYPE) -> TYPE";
  return replace(replace("module { func.func public @main(%x: TYPE) -> TYPE {\n" + body + "\n} }",
                         "COPY", copy),
                 "TYPE", type);
}

std::string size_text(std::int64_t bytes) {
  return bytes < 1 << 20 ? std::to_string(bytes >> 10) + "KiB"
                         : std::to_string(bytes >> 20) + "MiB";
}

}  // namespace

std::string identity_loop(std::int64_t steps) {
  return replace(module_text(R"(
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %end = stablehlo.constant dense<STEPS> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, TYPE
     cond { %go = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %go : tensor<i1> }
     do { %w = stablehlo.custom_call @bench_identity(%v) COPY
          %next = stablehlo.add %i, %one : tensor<i32>
          stablehlo.return %next, %w : tensor<i32>, TYPE }
    return %r#1 : TYPE)",
                             "tensor<4xf32>"),
                 "STEPS", std::to_string(steps));
}

void call_loop(Report& report) {
  const std::int64_t steps = 1'000'000;
  Bare bare(identity_loop(steps));
  const float numbers[4] = {1, 2, 3, 4};
  bare.set_argument(pn::DType::f32, std::vector<std::int64_t>{4}, numbers);
  const auto loop = pn::jit([&](pn::Tensor x) {
    return pn::fori_loop(
        0, steps, [](pn::Tensor, pn::Tensor v) { return copied(v); }, x);
  });
  const auto while_loop = pn::jit([&](pn::Tensor x) {
    const auto more = [&](pn::Tensor i, pn::Tensor) { return i < static_cast<int>(steps); };
    const auto next = [](pn::Tensor i, pn::Tensor v) { return std::tuple{i + 1, copied(v)}; };
    return std::get<1>(pn::while_loop(more, next, std::tuple{pn::Tensor(0), x}));
  });
  const auto scan = pn::jit([&](pn::Tensor x) {
    return pn::scan(
               [](pn::Tensor v) {
                 return std::pair{copied(v), std::tuple<>()};
               },
               x, {.length = steps})
        .first;
  });
  const pn::Tensor x = pn::tensor<float>({1, 2, 3, 4});
  const auto runs_of = [&](const auto& f) {
    return [&](std::int64_t n) {
      while (n-- > 0) f(x).block_until_ready();
    };
  };
  const auto ns = race(
      {runs_of(loop), [&](std::int64_t n) { bare.run(n); }, runs_of(while_loop), runs_of(scan)});
  const double per = static_cast<double>(steps);
  report.add({"call_loop", ns[0] / per, "ns", "ffi", ns[1] / per,
              "one call of f32[4] in a compiled loop; the bare handler copies the same bytes in "
              "the same loop"});
  report.add_jax({"call_loop", ns[0] / per, "ns"}, "call_loop");
  report.add({"call_loop/while_loop", ns[2] / per, "ns", "ffi", ns[1] / per,
              "the same through while_loop"});
  report.add({"call_loop/scan", ns[3] / per, "ns", "ffi", ns[1] / per, "the same through scan"});
}

void overlap(Report& report) {
  using namespace std::chrono_literals;
  constexpr int steps = 100;
  const auto sleeps = [](pn::View<float> out) {
    std::this_thread::sleep_for(1ms);
    for (float& v : out) v = 1;
  };
  const auto start = [=] {
    return pn::start_call({.name = "fetch", .effect = pn::Effect::ordered}, pn::type<float>({32}),
                          sleeps);
  };
  const auto compute = [](const pn::Tensor& v, const pn::Tensor& rounds) {
    return pn::fori_loop(
        0, rounds, [](pn::Tensor, pn::Tensor w) { return pn::sin(w) * 1.01f; }, v);
  };
  using Carry = std::pair<pn::Tensor, pn::Pending<pn::Tensor>>;
  const auto overlapped = pn::jit([=](pn::Tensor x, pn::Tensor rounds) {
    const auto step = [&](pn::Tensor, pn::Tensor v, pn::Pending<pn::Tensor> batch) {
      const pn::Tensor rows = pn::wait(batch);
      const pn::Pending<pn::Tensor> next = start();
      return Carry{compute(v + pn::sum(rows), rounds), next};
    };
    return pn::fori_loop(0, steps, step, Carry{x, start()}).first;
  });
  const auto one_by_one = pn::jit([=](pn::Tensor x, pn::Tensor rounds) {
    return pn::fori_loop(
        0, steps,
        [&](pn::Tensor, pn::Tensor v) {
          const pn::Tensor rows =
              pn::call({.effect = pn::Effect::ordered}, pn::type<float>({32}), sleeps);
          return compute(v + pn::sum(rows), rounds);
        },
        x);
  });
  const auto alone = pn::jit([=](pn::Tensor x, pn::Tensor rounds) {
    return pn::fori_loop(
        0, steps, [&](pn::Tensor, pn::Tensor v) { return compute(v + 32.0f, rounds); }, x);
  });
  const pn::Tensor x = pn::ones(pn::type<float>({4096}));
  const auto ms_of = [&](const auto& f, int rounds) {
    return timed([&] {
             f(x, pn::Tensor(rounds)).block_until_ready();
             pn::barrier();
           }) /
           1e6;
  };
  ms_of(alone, 1);
  ms_of(overlapped, 1);
  ms_of(one_by_one, 1);
  const int rounds = std::max(1, static_cast<int>(10 * steps / ms_of(alone, 10)));
  std::vector<double> device, host, both, sum;
  for (int round = 0; round < 9; ++round) {
    device.push_back(ms_of(alone, rounds));
    host.push_back(ms_of(one_by_one, 0));
    both.push_back(ms_of(overlapped, rounds));
    sum.push_back(ms_of(one_by_one, rounds));
  }
  const double longer = std::max(median(device), median(host));
  const std::string of = std::to_string(steps) + " steps of 1 ms of compute";
  report.add({"overlap", median(both), "ms", "the longer alone", longer,
              of + ", each with a function of 1 ms that was started in the step before; at most "
                   "1.15 is the aim"});
  report.add({"overlap/call", median(sum), "ms", "the longer alone", longer,
              "the same with a call in each step"});
  report.add_jax({"overlap/times", median(both) / longer, "times", "", 0,
                  "the first line's ratio beside a pure_callback's"},
                 "overlap");
}

void call_execute(Report& report) {
  Bare bare(module_text(R"(
    %one = stablehlo.constant dense<1.0> : TYPE
    %two = stablehlo.constant dense<2.0> : TYPE
    %v = stablehlo.multiply %x, %two : TYPE
    %w = stablehlo.custom_call @bench_identity(%v) COPY
    %y = stablehlo.add %w, %one : TYPE
    return %y : TYPE)",
                        "tensor<4xf32>"));
  const float numbers[4] = {1, 2, 3, 4};
  bare.set_argument(pn::DType::f32, std::vector<std::int64_t>{4}, numbers);
  const auto f = pn::jit([](pn::Tensor x) { return copied(x * 2.0f) + 1.0f; });
  const pn::Tensor x = pn::tensor<float>({1, 2, 3, 4});
  const auto ns = race({[&](std::int64_t n) {
                          while (n-- > 0) f(x).block_until_ready();
                        },
                        [&](std::int64_t n) { bare.run(n); }},
                       25);
  report.add(
      {"call_execute", ns[0] / 1e3, "us", "pjrt", ns[1] / 1e3,
       "a whole execution with one call of f32[4], awaited; raw C API with the bare handler"});
  report.add_jax({"call_execute", ns[0] / 1e3, "us"}, "call_execute");
}

void payload(Report& report) {
  const auto f = pn::jit([](pn::Tensor x) { return copied(x); });
  const auto handled = pn::jit([](pn::Tensor x) {
    return pn::ffi_call(pn::FfiTarget{target_of_copy()}, x.type(), std::nullopt, x);
  });
  const bool on_cpu = pn::devices().at(0).kind == "cpu";  // where the handler copies
  for (const std::int64_t bytes : {1ll << 10, 1ll << 16, 1ll << 20, 1ll << 24, 1ll << 28}) {
    const std::vector<std::int64_t> dims = {bytes / 4};
    const pn::Tensor x = pn::iota<float>(dims[0]).block_until_ready();
    Bare bare(module_text("%w = stablehlo.custom_call @bench_identity(%x) COPY\n return %w : TYPE",
                          "tensor<" + std::to_string(dims[0]) + "xf32>"));
    bare.set_argument(pn::DType::f32, dims, x.to_vector<float>().data());
    const bool large = bytes >= 1 << 24;
    std::vector<Side> sides{[&](std::int64_t n) {
                              while (n-- > 0) f(x).block_until_ready();
                            },
                            [&](std::int64_t n) { bare.run(n); }};
    if (on_cpu)
      sides.push_back([&](std::int64_t n) {
        while (n-- > 0) handled(x).block_until_ready();
      });
    const auto ns = race(sides, large ? 11 : 25, large ? 100 : 10);
    const double size = static_cast<double>(bytes);
    const std::string name = "payload/" + size_text(bytes);
    report.add(
        {name, size / ns[0], "GB/s", "pjrt", size / ns[1],
         "an execution of an identity call; raw C API with the bare handler; larger is better"});
    if (on_cpu)
      report.add({name + "/ffi_call", size / ns[0], "GB/s", "ffi", size / ns[2],
                  "the same beside the bare handler by ffi_call"});
    report.add_jax({name, size / ns[0], "GB/s"}, "payload");
  }
}

void memory(Report& report) {
  const std::int64_t bytes = 1 << 28;
  const auto f = pn::jit([](pn::Tensor x) { return copied(x); });
  const pn::Tensor x = pn::iota<float>(bytes / 4).block_until_ready();
  f.compile(x);
  double peak = 0;
  for (int i = 0; i < 3; ++i) {
    reset_peak();
    const std::int64_t before = resident_bytes();
    f(x).block_until_ready();
    peak = std::max(peak, static_cast<double>(peak_bytes() - before) / static_cast<double>(bytes));
  }
  report.add_jax({"memory", peak, "payloads", "", 0,
                  "peak of resident memory above the input, an identity call of 256 MiB"},
                 "memory");
}

void soak(Report& report) {
  const auto loop = pn::jit([](pn::Tensor x) {
    return pn::fori_loop(
        0, 100'000, [](pn::Tensor, pn::Tensor v) { return copied(v); }, x);
  });
  const auto once = pn::jit([](pn::Tensor x) { return copied(x) + 1.0f; });
  const pn::Tensor x = pn::tensor<float>({1, 2, 3, 4});
  const auto calls = [&](int n) {
    while (n-- > 0) loop(x).block_until_ready();
  };
  const auto executions = [&](int n) {
    while (n-- > 0) once(x).block_until_ready();
  };
  calls(1);
  executions(1000);
  const double before = static_cast<double>(resident_bytes()) / 1024;
  calls(100);
  const double middle = static_cast<double>(resident_bytes()) / 1024;
  executions(100'000);
  const double after = static_cast<double>(resident_bytes()) / 1024;
  report.add({"soak/calls", middle, "KiB", "before", before, "resident memory after 1e7 calls"});
  report.add(
      {"soak/executions", after, "KiB", "before", middle, "resident memory after 1e5 executions"});
}

}  // namespace bench
