// Choosing by cost. A function that is called from inside of a program runs on its device while the
// program waits, and its results are copied into the program's memory. As a stage it costs another
// start of a program; results stay where they are, and what does not depend on them goes on beside.
#include "run/stage_choice.h"

#include <algorithm>

#include "analysis/rewrite.h"
#include "core/site_spec.h"
#include "run/costs.h"
#include "run/runtime.h"
#include "site/device_call.h"
#include "transform/flatten.h"

namespace postern::internal::run {

namespace {

/// Calls act(program, equation, in_loop) for each call of a device.
template <class Act>
void each_call(const Program& program, bool in_loop, const Act& act) {
  for (const Equation& e : program.equations) {
    if (device_of_call(e) >= 0) {
      act(program, e, in_loop);
    } else if (e.params) {
      for (const ProgramPtr& p : programs_of(*e.params))
        each_call(*p, in_loop || e.primitive->loops(), act);
    }
  }
}

/// Returns how long the equations take that could run meanwhile: that neither lead to the call nor
/// depend on it.
double seconds_beside(const Program& program, const Equation& call, const Costs& costs) {
  std::vector<bool> leads_to(program.types.size()), depends(program.types.size());
  const auto mark = [](std::vector<bool>& marked, const std::vector<ValueId>& values) {
    for (const ValueId v : values) marked[at(v)] = true;
  };
  const auto any = [](const std::vector<bool>& marked, const std::vector<ValueId>& values) {
    return std::ranges::any_of(values, [&](ValueId v) { return marked[at(v)]; });
  };
  mark(leads_to, call.operands);
  mark(depends, results_of(call));
  for (std::size_t i = program.equations.size(); i-- > 0;)
    if (const Equation& e = program.equations[i]; any(leads_to, results_of(e)))
      mark(leads_to, e.operands);
  double seconds = 0;
  for (const Equation& e : program.equations) {
    if (&e == &call || e.operands.empty() || any(leads_to, results_of(e))) continue;
    if (any(depends, e.operands))
      mark(depends, results_of(e));
    else if (effect_of(e) == Effect::pure)
      seconds += seconds_of(program, e, costs);
  }
  return seconds;
}

double bytes_of(const Program& program, const std::vector<ValueId>& values) {
  double all = 0;
  for (const ValueId v : values) all += static_cast<double>(program.type(v).byte_size());
  return all;
}

StageChoices::Choice choose(const Program& program, const Equation& call, bool in_loop,
                            const Backend& home) {
  const int device = device_of_call(call);
  const Backend& there = Runtime::get().backend_of(device);
  const Costs &ours = costs_of(home), &theirs = costs_of(there);
  const double in = bytes_of(program, call.operands), out = bytes_of(program, results_of(call));
  double transfers = 0;  // to the device and back, the same either way
  for (const auto& [backend, costs] : {std::pair(&home, &ours), std::pair(&there, &theirs)})
    if (!backend->platform().on_host)
      transfers += 2 * costs->latency + (in + out) / costs->bandwidth;
  const double overlap = std::min(seconds_of(*programs_of(*call.params)[0], theirs),
                                  seconds_beside(program, call, ours));
  // From inside, results are copied once more, read and written.
  const double inside = theirs.launch + transfers + 2 * out / ours.bytes;
  double stage = theirs.launch + transfers + ours.launch;
  if (in_loop) stage += 2 * ours.launch;  // the host drives it
  std::string reason = fmt::format("call '{}' on device {}: {} as a stage", name_of_call(call),
                                   device, time_text(stage));
  if (overlap > ours.launch / 10)
    reason += fmt::format(", less {} of other work beside it", time_text(overlap));
  reason += fmt::format(", {} from inside of the program", time_text(inside));
  const bool is_stage = stage - overlap + ours.launch < inside;  // by more than could be measured
  return {is_stage, std::move(reason)};
}

/// Returns false for calls that wait for each other, or whose data outlives a part of the run.
bool may_be_cut(const Program& program) {
  return !any_equation(program, [](const Equation& e) {
    if (device_of_call(e) >= 0) return false;
    if (e.primitive->calls) return true;
    const SiteSpec* const site = site_of(e);
    return site && (site->call.role != SiteCall::Role::whole || site->call.device >= 0);
  });
}

}  // namespace

std::vector<ValueId> results_of(const Equation& e) {
  std::vector<ValueId> out;
  for (int r = 0; r < e.results; ++r) out.push_back(e.first + r);
  return out;
}

bool StageChoices::any_stage() const {
  return std::ranges::any_of(of, [](const auto& entry) { return entry.second.stage; });
}
bool StageChoices::is_stage(const Equation& equation) const {
  return any_equation(equation, [&](const Equation& e) {
    const auto found = of.find(e.params.get());
    return found != of.end() && found->second.stage;
  });
}
std::string StageChoices::reason(const Equation& equation) const {
  const auto found = of.find(equation.params.get());
  return found == of.end() ? "" : found->second.reason;
}

std::string reasons(const StageChoices& choices) {
  std::vector<std::string> texts;
  for (const Params* call : choices.order) texts.push_back(choices.of.at(call).reason);
  return fmt::format("{}", fmt::join(texts, "; "));
}

bool calls_devices(const Program& program) {
  bool any = false;
  each_call(program, false, [&](const Program&, const Equation&, bool) { any = true; });
  return any;
}

ProgramPtr with_own_calls_inlined(const ProgramPtr& program, int device) {
  if (!calls_devices(*program)) return program;
  Program out = flattened(*program, [&](const Equation& e) { return device_of_call(e) == device; });
  out.captures = program->captures;
  for (Equation& e : out.equations)
    if (device_of_call(e) < 0)
      e.params = with_each(
          e, [&](const ProgramPtr& inner) { return with_own_calls_inlined(inner, device); });
  return std::make_shared<const Program>(std::move(out));
}

StageChoices choose_stages(const Program& program, int device) {
  StageChoices out;
  if (!may_be_cut(program)) return out;
  const Backend& home = Runtime::get().backend_of(device);
  each_call(program, false, [&](const Program& in, const Equation& e, bool in_loop) {
    if (out.of.emplace(e.params.get(), choose(in, e, in_loop, home)).second)
      out.order.push_back(e.params.get());
  });
  return out;
}

}  // namespace postern::internal::run
