// Measuring a platform, and estimating programs.
#include "run/costs.h"

#include <postern/jit.h>
#include <postern/ops.h>
#include <postern/products.h>
#include <postern/shard.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <locale>
#include <sstream>
#include <vector>

#include "analysis/control_flow.h"
#include "core/check.h"
#include "core/lists.h"
#include "platform/find_plugin.h"
#include "run/array.h"
#include "run/interpreted.h"
#include "run/runtime.h"
#include "trace/trace.h"

namespace postern::internal::run {

namespace {

using Clock = std::chrono::steady_clock;

/// Returns the time of the shortest of some runs, which nothing else was in the way of; one more
/// goes before, to warm up. Each is given what `ready` makes, which does not count.
template <class Ready, class F>
double shortest_time(int runs, const Ready& ready, const F& f) {
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i <= runs; ++i) {
    const auto given = ready();
    const auto begin = Clock::now();
    f(given);
    const double taken = std::chrono::duration<double>(Clock::now() - begin).count();
    if (i > 0) best = std::min(best, taken);
  }
  return best;
}

/// Returns an amount a second, less the launch, or a tenth of the time where that is hardly more.
double rate(double amount, double taken, double launch) {
  return amount / std::max(taken - launch, taken / 10);
}

/// Measures it on its first device, by programs and transfers of one number and of many.
Costs measured(const Backend& backend) {
  constexpr std::int64_t rows = 384, many = std::int64_t{1} << 18;
  constexpr auto list_bytes = static_cast<double>(many) * 4;
  const Type number{DType::f32, {1}}, list{DType::f32, {many}}, square{DType::f32, {rows, rows}};
  const Untraced untraced;  // whatever the thread is doing
  const InterpretedRun::Scope apart(nullptr);
  const DeviceScope on(backend.first_device, Place{});
  const auto made = [](const Type& type) {
    return Tensor(type, std::vector<float>(size_of(type.size())).data());
  };
  const auto put = [&](const Tensor& x) {
    Tensor there = detail::put(x, backend.first_device, Place{});
    there.block_until_ready();
    return there;
  };
  const auto program_time = [&](int runs, const Type& type, auto f) {
    const auto compiled = jit(f, {.mode = Mode::compiled, .name = "costs"});
    const Tensor x = put(made(type));
    return shortest_time(
        runs, [&] { return x; }, [&](const Tensor& t) { compiled(t).block_until_ready(); });
  };
  const auto transfer_time = [&](int runs, const Type& type) {  // of arrays that were never sent
    return shortest_time(
        runs, [&] { return made(type); }, put);
  };
  const auto plus = [](Tensor x) { return x + 1.0f; };
  const auto product = [](Tensor x) { return dot(x, x); };
  Costs c{};
  c.launch = program_time(40, number, plus);
  c.bytes = rate(2 * list_bytes, program_time(10, list, plus), c.launch);  // read and written
  c.flops = rate(2.0 * rows * rows * rows, program_time(5, square, product), c.launch);
  c.latency = transfer_time(40, number);
  c.bandwidth = rate(list_bytes, transfer_time(5, list), c.latency);
  return c;
}

/// Reads POSTERN_COSTS; none: they are to be measured.
std::optional<Costs> costs_of_environment() {
  const char* const text = platforms::environment("POSTERN_COSTS");
  if (!text) return std::nullopt;
  std::istringstream in(text);
  in.imbue(std::locale::classic());
  Costs c{};
  std::string more;
  in >> c.launch >> c.latency >> c.bandwidth >> c.flops >> c.bytes;
  const bool is_five = !in.fail() && !(in >> more);
  check(is_five && c.launch > 0 && c.latency > 0 && c.bandwidth > 0 && c.flops > 0 && c.bytes > 0,
        "POSTERN_COSTS must be five positive numbers (seconds of a launch and a transfer, bytes a "
        "second of transfers, operations and bytes a second of programs), got '{}'",
        text);
  return c;
}

std::atomic<const Costs*> instead{nullptr};  // of a CostsScope

}  // namespace

CostsScope::CostsScope(const Costs& costs) : outer_(instead.load()), costs_(costs) {
  instead = &costs_;
}
CostsScope::~CostsScope() { instead = outer_; }

const Costs& costs_of(const Backend& backend) {
  if (const Costs* const other = instead.load()) return *other;
  backend.costs_once([&] {
    const std::optional<Costs> costs = costs_of_environment();
    backend.costs = costs ? *costs : measured(backend);
  });
  return backend.costs;
}

double seconds_of(const Program& program, const Equation& e, const Costs& costs) {
  const auto of = [&](const ProgramPtr& p) { return seconds_of(*p, costs); };
  if (e.primitive->control == ControlFlow::scan) {
    const auto& p = as<ScanParams>(*e.params);
    // How many steps an offloaded one takes is known only when it runs.
    return static_cast<double>(std::max<std::int64_t>(p.offloaded ? 1 : p.length, 1)) * of(p.body);
  }
  if (e.primitive->control == ControlFlow::branches) {
    double most = 0;
    for (const ProgramPtr& p : programs_of(*e.params)) most = std::max(most, of(p));
    return most;
  }
  // These run their programs; those of other primitives say what becomes of an element.
  if (e.primitive->loops() || e.primitive->transparent || e.primitive->may_call ||
      (e.primitive->calls && !e.primitive->site)) {
    double all = 0;
    if (e.params)
      for (const ProgramPtr& p : programs_of(*e.params)) all += of(p);
    return all;
  }
  std::vector<const Type*> types;
  double bytes = 0, flops = 0;
  for (const ValueId v : e.operands) {
    types.push_back(&program.type(v));
    bytes += static_cast<double>(types.back()->byte_size());
  }
  for (int r = 0; r < e.results; ++r) {
    bytes += static_cast<double>(program.type(e.first + r).byte_size());
    flops += static_cast<double>(program.type(e.first + r).size());
  }
  if (e.primitive->flops) flops = e.primitive->flops(e.params.get(), {types.data(), types.size()});
  return std::max(bytes / costs.bytes, flops / costs.flops);
}

double seconds_of(const Program& program, const Costs& costs) {
  double all = 0;
  for (const Equation& e : program.equations) all += seconds_of(program, e, costs);
  return all;
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  return fmt::format("{:.1f} ms", seconds * 1e3);
}

}  // namespace postern::internal::run

namespace postern {
using namespace internal;

Costs costs(int device, Place place) {
  PlaceScope at(place);
  run::check_device(device);
  return run::costs_of(run::Runtime::get().backend_of(device));
}

std::string to_string(const Costs& c) {
  return fmt::format(
      "launch {}, transfer {} and {:.3g} GB/s, compute {:.3g} GFLOP/s and {:.3g} GB/s",
      run::time_text(c.launch), run::time_text(c.latency), c.bandwidth / 1e9, c.flops / 1e9,
      c.bytes / 1e9);
}

}  // namespace postern
