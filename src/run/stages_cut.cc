// Where a program is cut, and what is said of it.
//
// cut() gives each equation the earliest step in which its operands are there, so a new step begins
// only behind a call that something of XLA reads or must follow. part_what_runs_beside() parts a
// step whose host functions need not wait for all of it. add_constants() and find_crossing() then
// say what each XLA program reads and makes, and after which step a value may be forgotten.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/enum.h"
#include "core/lists.h"
#include "run/array.h"
#include "run/costs.h"
#include "run/stages.h"
#include "site/device_call.h"
#include "transform/flatten.h"

namespace postern::internal::run {

namespace {

bool has_calls(const Equation& equation) {
  return any_equation(
      equation, [](const Equation& e) { return e.primitive->site || device_of_call(e) >= 0; });
}

/// "call 'over'", "dot_general".
std::string words_of(const Equation& e) {
  if (const SiteSpec* site = site_of(e))
    return fmt::format("{} '{}'", word_of(site->kind), site->name);
  if (device_of_call(e) >= 0)
    return fmt::format("call '{}' on device {}", name_of_call(e), device_of_call(e));
  return e.primitive->name;
}

/// Who makes a value, and from where on it can be read.
struct Made {
  std::size_t on_device = 0, on_host = 0;  // the first steps whose XLA, and whose host, can
  std::size_t round = 0;                   // the host's first in step `on_host` that can
  bool by_device = false;
  const Equation* by = nullptr;
};

/// The last ordered effects of either side, behind which the next ones come.
struct LastOrdered {
  std::size_t host_step = 0, host_round = 0;     // the host's next comes in this round or later
  std::size_t device_step = 0, behind_host = 0;  // XLA's next comes before neither of these steps

  std::size_t first_step(bool on_host) const {
    return std::max(device_step, on_host ? host_step : behind_host);
  }
};

/// The first step that an equation can be in, and why in none before.
struct FirstStep {
  std::size_t step;
  std::string reason;

  /// Goes on to the step in which an operand of `e` can be read.
  void reach(const Made& operand, const Equation& e, bool on_host, bool cut_before) {
    std::size_t readable = operand.on_device;
    if (on_host)
      readable = operand.on_host;
    else if (cut_before && operand.by_device)
      readable = operand.on_host + 1;
    if (readable <= step) return;
    step = readable;
    if (!operand.by_device)
      reason = fmt::format("reads what {} gives", words_of(*operand.by));
    else if (cut_before)
      reason = fmt::format("JitOptions::cut says so before {}", words_of(e));
    else
      reason = fmt::format("JitOptions::cut says so after {}", words_of(*operand.by));
  }
};

}  // namespace

StagedProgram::StagedProgram(const Program& program, StagedPrograms& family)
    : program_(flattened(
          program, [](const Equation& e) { return e.primitive->transparent && has_calls(e); })),
      reach_(reach_of(program_)),
      family_(&family) {
  cut();
  part_what_runs_beside();
  add_constants();
  find_crossing();
  place();
  compiled_.resize(steps_.size());
  once_ = std::make_unique<Once[]>(steps_.size());
}

std::vector<Type> StagedProgram::types(const std::vector<ValueId>& values) const {
  std::vector<Type> out;
  for (const ValueId v : values) out.push_back(program_.type(v));
  return out;
}

Cut StagedProgram::asked(const StageNode& node) const {
  const auto& wanted = family_->options().cut;
  Cut cut = Cut::none;
  enters_users_code();
  if (wanted) cut = wanted(node);
  check_enum("jit: the option cut: Cut", cut, Cut::both);
  return cut;
}
Cut StagedProgram::wanted_cut(const Equation& e) const {
  if (e.primitive->site) return Cut::none;
  return asked({e.primitive->name, e.place, types(e.operands), types(results_of(e))});
}

/// What calls is the host's, and taps where XLA cannot reach it or the user wants to cut there.
bool StagedProgram::on_host(const Equation& equation) const {
  if (family_->choices()) return family_->choices()->is_stage(equation);
  bool reaches = platforms::used_here().calls_back;
  if (family_->options().stage_device)  // it may be on any
    for (const auto& backend : Runtime::get().backends())
      reaches = reaches && backend->used.calls_back;
  return any_equation(equation, [&](const Equation& e) {
    if (e.primitive->calls) return true;
    if (!e.primitive->site) return false;
    const SiteSpec& site = *e.primitive->site(e.params.get());
    return !reaches || !site.is_tap() || site.call.device >= 0 ||
           asked({word_of(site.kind), site.place, site.operands, site.operands}) != Cut::none;
  });
}

/// Returns by value whether the host or the caller reads it.
std::vector<bool> StagedProgram::read_outside_xla() const {
  std::vector<bool> read(program_.types.size());
  for (const Equation& e : program_.equations)
    for (const ValueId v : e.operands) read[at(v)] = read[at(v)] || on_host(e);
  for (const ValueId v : program_.outputs) read[at(v)] = true;
  return read;
}

/// Gives each equation its step. One of XLA belongs to the first step whose calls before it have
/// made its operands; a call to the step that computes its own, in a round after those calls of the
/// step that it reads or follows in order. Constants are in no step: see add_constants().
void StagedProgram::cut() {
  std::vector<Made> made(program_.types.size());
  const std::vector<bool> leaves_xla = read_outside_xla();
  LastOrdered last;
  for (std::size_t i = 0; i < program_.equations.size(); ++i) {
    const Equation& e = program_.equations[i];
    const bool host = on_host(e), ordered = effect_of(e) == Effect::ordered;
    constant_.push_back(!host && e.operands.empty() && effect_of(e) == Effect::pure &&
                        e.results == 1 && !leaves_xla[at(e.first)]);
    if (constant_.back()) continue;
    const Cut wanted = host ? Cut::none : wanted_cut(e);
    const bool cut_before = wanted == Cut::before || wanted == Cut::both,
               cut_after = wanted == Cut::after || wanted == Cut::both;
    FirstStep first{ordered ? last.first_step(host) : 0, "the program begins"};
    if (first.step > 0) first.reason = "an effect in it comes after one of the host's, in order";
    for (const ValueId v : e.operands) first.reach(made[at(v)], e, host, cut_before);
    const std::size_t step = first.step;
    if (step >= steps_.size()) steps_.resize(step + 1);
    if (!host) {
      if (ordered) last.device_step = step;
      if (steps_[step].device.equations.empty()) steps_[step].reason = first.reason;
      steps_[step].device.equations.push_back(i);
      const std::size_t readable = cut_after ? step + 1 : step;
      for (const ValueId v : results_of(e))
        made[at(v)] = {.on_device = readable, .on_host = step, .by_device = true, .by = &e};
      continue;
    }
    std::size_t round = 0;
    for (const ValueId v : e.operands)
      if (made[at(v)].on_host == step) round = std::max(round, made[at(v)].round);
    if (ordered && step == last.host_step) round = std::max(round, last.host_round);
    if (ordered) {
      last.host_step = step;
      last.host_round = round + 1;
      last.behind_host = step + 1;
    }
    auto& rounds = steps_[step].host;
    if (round >= rounds.size()) rounds.resize(round + 1);
    rounds[round].push_back(i);
    for (const ValueId v : results_of(e))
      made[at(v)] = {.on_device = step + 1, .on_host = step, .round = round + 1, .by = &e};
  }
}

/// Returns the equations of a step's XLA program that its host functions wait for; none where that
/// are all of them, or nothing, or the rest takes no longer than launches and what crosses between
/// the two programs. Typical costs come first: nothing is measured for a little.
std::optional<std::vector<std::size_t>> StagedProgram::needed_by_host(const Step& step) const {
  constexpr Costs typical{
      .launch = 2e-6, .latency = 1e-6, .bandwidth = 1e10, .flops = 1e11, .bytes = 1e10};
  constexpr double least_launches = 10;  // functions may be short
  std::vector<bool> wanted(program_.types.size()), crosses(program_.types.size());
  for (const auto& round : step.host)
    for (const std::size_t i : round)
      for (const ValueId v : program_.equations[i].operands) wanted[at(v)] = true;
  std::vector<std::size_t> needed, rest;
  for (std::size_t k = step.device.equations.size(); k-- > 0;) {
    const std::size_t i = step.device.equations[k];
    const Equation& e = program_.equations[i];
    bool needs = effect_of(e) != Effect::pure || has_calls(e);
    for (int r = 0; r < e.results; ++r) needs = needs || wanted[at(e.first + r)];
    (needs ? needed : rest).push_back(i);
    for (const ValueId v : e.operands) {
      if (needs)
        wanted[at(v)] = true;
      else
        crosses[at(v)] = true;
    }
  }
  if (needed.empty() || rest.empty()) return std::nullopt;
  const auto gain = [&](const Costs& costs) {
    double seconds = -least_launches * costs.launch;
    for (const std::size_t i : rest) seconds += seconds_of(program_, program_.equations[i], costs);
    for (const std::size_t i : needed)
      for (const ValueId v : results_of(program_.equations[i]))
        if (crosses[at(v)])  // written by one program, read by the other
          seconds -= 2 * static_cast<double>(program_.type(v).byte_size()) / costs.bytes;
    return seconds;
  };
  if (gain(typical) < 0 || gain(costs_of(Runtime::get().here())) < 0) return std::nullopt;
  std::ranges::reverse(needed);
  return needed;
}

/// Has host functions begin when their operands are there, while XLA goes on with what they do not
/// need: as a program of its own behind the one that they wait for.
void StagedProgram::part_what_runs_beside() {
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    if (steps_[s].host.empty()) continue;
    const auto needed = needed_by_host(steps_[s]);
    if (!needed) continue;
    Step first;
    first.device.equations = *needed;
    first.reason = std::exchange(steps_[s].reason,
                                 "nothing that follows waits for it: it runs beside the host");
    std::erase_if(steps_[s].device.equations,
                  [&](std::size_t i) { return std::ranges::binary_search(*needed, i); });
    steps_.insert(nth(steps_, s++), std::move(first));
  }
}

/// Gives each XLA program the constants that it reads, in front: it makes them anew.
void StagedProgram::add_constants() {
  std::map<ValueId, std::size_t> maker;  // of constants alone
  for (std::size_t i = 0; i < constant_.size(); ++i)
    if (constant_[i]) maker.emplace(program_.equations[i].first, i);
  for (Step& step : steps_) {
    std::set<std::size_t> wanted;
    for (const std::size_t i : step.device.equations)
      for (const ValueId v : program_.equations[i].operands)
        if (const auto made = maker.find(v); made != maker.end()) wanted.insert(made->second);
    step.device.equations.insert(step.device.equations.begin(), wanted.begin(), wanted.end());
  }
}

/// Finds what goes from one XLA program to another or to the host: the inputs of each, the outputs
/// that anything outside of it wants, and the values that no step behind this one uses. The
/// program's own outputs are never forgotten.
void StagedProgram::find_crossing() {
  constexpr auto never = static_cast<std::size_t>(-1);
  struct Value {
    std::size_t made = never;  // the step whose XLA program makes it
    std::size_t read = never;  // the last whose XLA program reads it without making it
    std::size_t used = never;  // the last that uses it in any way
    bool wanted = false;       // outside of the XLA program that makes it
    bool output = false;
  };
  std::vector<Value> values(program_.types.size());
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    Step& step = steps_[s];
    for (const std::size_t i : step.device.equations) {
      const Equation& e = program_.equations[i];
      for (const ValueId v : e.operands) {
        Value& value = values[at(v)];
        value.used = s;
        if (value.made == s || value.read == s) continue;
        value.read = s;
        value.wanted = true;
        step.device.inputs.push_back(v);
      }
      for (int r = 0; r < e.results; ++r) values[at(e.first + r)].made = s;
    }
    for (const auto& round : step.host)
      for (const std::size_t i : round)
        for (const ValueId v : program_.equations[i].operands) {
          values[at(v)].used = s;
          values[at(v)].wanted = true;
        }
  }
  for (const ValueId v : program_.outputs) values[at(v)].wanted = values[at(v)].output = true;
  for (std::size_t v = 0; v < values.size(); ++v) {
    const Value& value = values[v];
    if (value.made != never && value.wanted)
      steps_[value.made].device.outputs.push_back(static_cast<ValueId>(v));
    if (value.used != never && !value.output && (value.made == never || value.wanted))
      steps_[value.used].last_used.push_back(static_cast<ValueId>(v));
  }
}

StageInfo StagedProgram::xla_stage(const Device& device, int place,
                                   const std::string& reason) const {
  const auto constants =
      std::ranges::count_if(device.equations, [&](std::size_t i) { return constant_[i]; });
  return {.kind = "xla",
          .name = "",
          .place = {},
          .equations = static_cast<int>(std::ssize(device.equations) - constants),
          .inputs = types(device.inputs),
          .outputs = types(device.outputs),
          .device = place,
          .reason = reason};
}

StageInfo StagedProgram::host_stage(const Equation& e) const {
  const SiteSpec* const site = site_of(e);
  const int device = device_of_call(e);
  std::string name;
  if (site) name = site->name;
  if (device >= 0) name = name_of_call(e);
  return {.kind = site ? word_of(site->kind) : e.primitive->name,
          .name = std::move(name),
          .place = site ? site->place : e.place,
          .equations = 1,
          .inputs = types(e.operands),
          .outputs = types(results_of(e)),
          .device = device,
          .reason = host_reason(e)};
}

std::string StagedProgram::host_reason(const Equation& e) const {
  const Equation* inside = nullptr;
  any_equation(e, [&](const Equation& inner) {
    if (!inside && (inner.primitive->calls || inner.primitive->site) && on_host(inner))
      inside = &inner;
    return inside != nullptr;
  });
  if (inside && inside->params != e.params)
    return fmt::format("{} is in it, so the host drives it", words_of(*inside));
  if (family_->choices()) return family_->choices()->reason(e);
  if (const auto& used = platforms::used_here(); !used.calls_back)
    return fmt::format("the plug-in for {} calls no host function from a program",
                       Runtime::get().here().name);
  const SiteSpec* const site = site_of(e);
  if (site && site->is_tap()) return "JitOptions::cut says so";
  return "Mode::staged cuts at calls";
}

std::vector<StageInfo> StagedProgram::stages() const {
  std::vector<StageInfo> out;
  for (const Step& step : steps_) {
    if (!step.device.equations.empty())
      out.push_back(xla_stage(step.device, step.place, step.reason));
    for (const auto& round : step.host)
      for (const std::size_t i : round) out.push_back(host_stage(program_.equations[i]));
  }
  return out;
}

}  // namespace postern::internal::run
