// Where a program is cut, and what is said of it.
//
// cut() gives each equation the earliest step in which its operands are there, so a new step begins
// only behind a call that something of XLA reads or must follow. part_what_runs_beside() parts a
// step whose host functions need not wait for all of it. add_constants() and find_crossing() then
// say what each XLA program reads and makes, and after which step a value may be forgotten.
#include <algorithm>
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

std::vector<ValueId> results_of(const Equation& e) {
  std::vector<ValueId> out;
  for (int r = 0; r < e.results; ++r) out.push_back(e.first + r);
  return out;
}

/// "call 'over'", "dot_general".
std::string words_of(const Equation& e) {
  if (const SiteSpec* site = site_of(e))
    return fmt::format("{} '{}'", word_of(site->kind), site->name);
  if (device_of_call(e) >= 0)
    return fmt::format("call '{}' on device {}", name_of_call(e), device_of_call(e));
  return e.primitive->name;
}

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
    return !reaches || !site.is_tap() || site.device >= 0 ||
           asked({word_of(site.kind), site.place, site.operands, site.operands}) != Cut::none;
  });
}

/// An equation of XLA belongs to the first step whose calls before it have made its operands; a
/// call to the step that computes its own, in a round after those calls of the step that it reads
/// or follows in order.
void StagedProgram::cut() {
  struct Made {
    std::size_t on_device = 0, on_host = 0;  // the first steps that can read it there
    std::size_t round = 0;                   // of the host, in the latter: the first that can
    bool by_device = false;
    const Equation* by = nullptr;
  };
  std::vector<Made> made(program_.types.size());
  std::vector<bool> kept(program_.types.size());  // read by others than XLA
  for (const Equation& e : program_.equations)
    for (const ValueId v : e.operands) kept[at(v)] = kept[at(v)] || on_host(e);
  for (const ValueId v : program_.outputs) kept[at(v)] = true;
  std::size_t ordered_step = 0, ordered_round = 0;  // of the host's last ordered equation
  std::size_t ordered_on_device = 0,
              after_ordered =
                  0;  // the first steps of XLA's next one: behind its own last, and the host's
  for (std::size_t i = 0; i < program_.equations.size(); ++i) {
    const Equation& e = program_.equations[i];
    const bool host = on_host(e), ordered = effect_of(e) == Effect::ordered;
    constant_.push_back(!host && e.operands.empty() && effect_of(e) == Effect::pure &&
                        e.results == 1 && !kept[at(e.first)]);
    if (constant_.back()) continue;
    Cut wanted = Cut::none;
    if (!host) wanted = wanted_cut(e);
    const bool before = wanted == Cut::before || wanted == Cut::both,
               after = wanted == Cut::after || wanted == Cut::both;
    std::size_t step = 0, round = 0;
    std::string reason = "the program begins";
    if (ordered && host) step = std::max(ordered_on_device, ordered_step);
    if (ordered && !host) step = std::max(ordered_on_device, after_ordered);
    if (step > 0) reason = "an effect in it comes after one of the host's, in order";
    for (const ValueId v : e.operands) {
      const Made& m = made[at(v)];
      std::size_t readable = m.on_device;
      if (host)
        readable = m.on_host;
      else if (before && m.by_device)
        readable = m.on_host + 1;
      if (readable > step && m.by_device)
        reason = fmt::format("JitOptions::cut says so {} {}", before ? "before" : "after",
                             words_of(before ? e : *m.by));
      else if (readable > step)
        reason = fmt::format("reads what {} gives", words_of(*m.by));
      step = std::max(step, readable);
    }
    for (const ValueId v : e.operands)
      if (host && made[at(v)].on_host == step) round = std::max(round, made[at(v)].round);
    if (ordered && host) {
      if (step == ordered_step) round = std::max(round, ordered_round);
      ordered_step = step;
      ordered_round = round + 1;
      after_ordered = step + 1;
    } else if (ordered) {
      ordered_on_device = step;
    }
    if (step >= steps_.size()) steps_.resize(step + 1);
    if (host) {
      auto& rounds = steps_[step].host;
      if (round >= rounds.size()) rounds.resize(round + 1);
      rounds[round].push_back(i);
    } else {
      if (steps_[step].device.equations.empty()) steps_[step].reason = reason;
      steps_[step].device.equations.push_back(i);
    }
    Made made_here{step, step, 0, !host, &e};
    if (host || after) ++made_here.on_device;
    if (host) made_here.round = round + 1;
    for (const ValueId v : results_of(e)) made[at(v)] = made_here;
  }
}

/// The equations of a step's XLA program that its host functions wait for; none where that are all
/// of them, or nothing, or what is left would not be worth a program of its own.
std::optional<std::vector<std::size_t>> StagedProgram::needed_by_host(const Step& step) const {
  constexpr Costs typical{2e-6, 1e-6, 1e10, 1e11, 1e10};  // nothing is measured for a little
  constexpr double worth = 10;                            // launches: functions may be short
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
    double all = -worth * costs.launch;
    for (const std::size_t i : rest) all += seconds_of(program_, program_.equations[i], costs);
    for (const std::size_t i : needed)
      for (const ValueId v : results_of(program_.equations[i]))
        if (crosses[at(v)])
          all -= 2 * static_cast<double>(program_.type(v).byte_size()) / costs.bytes;
    return all;
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
                  [&](std::size_t i) { return std::ranges::find(*needed, i) != needed->end(); });
    steps_.insert(nth(steps_, s++), std::move(first));
  }
}

/// Each XLA program makes the constants that it reads.
void StagedProgram::add_constants() {
  std::vector<std::size_t> maker(program_.types.size());
  std::vector<bool> constant(program_.types.size());
  for (std::size_t i = 0; i < constant_.size(); ++i)
    if (constant_[i]) {
      maker[at(program_.equations[i].first)] = i;
      constant[at(program_.equations[i].first)] = true;
    }
  for (Step& step : steps_) {
    std::set<std::size_t> wanted;
    for (const std::size_t i : step.device.equations)
      for (const ValueId v : program_.equations[i].operands)
        if (constant[at(v)]) wanted.insert(maker[at(v)]);
    step.device.equations.insert(step.device.equations.begin(), wanted.begin(), wanted.end());
  }
}

/// What goes from one XLA program to another or to the host: the inputs of each, the outputs that
/// anything outside of it wants, and the values that no step behind this one uses. The program's
/// own outputs are never forgotten.
void StagedProgram::find_crossing() {
  constexpr std::size_t never = static_cast<std::size_t>(-1);
  struct Value {
    std::size_t
        made = never,
        read = never,
        used =
            never;  // steps: whose device makes it; whose device reads it, and which uses it, last
    bool wanted = false;  // outside of the XLA program that makes it
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
        if (value.made == s || std::exchange(value.read, s) == s) continue;
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

StageInfo StagedProgram::info(const Device& device) const {
  const auto constants =
      std::ranges::count_if(device.equations, [&](std::size_t i) { return constant_[i]; });
  return {"xla",
          "",
          {},
          static_cast<int>(device.equations.size()) - static_cast<int>(constants),
          types(device.inputs),
          types(device.outputs),
          -1,
          ""};
}

/// Why the host does it.
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
    if (!step.device.equations.empty()) {
      out.push_back(info(step.device));
      out.back().device = step.place;
      out.back().reason = step.reason;
    }
    for (const auto& round : step.host)
      for (const std::size_t i : round) {
        const Equation& e = program_.equations[i];
        out.push_back({e.primitive->name, "", e.place, 1, types(e.operands), types(results_of(e)),
                       device_of_call(e), host_reason(e)});
        if (device_of_call(e) >= 0) out.back().name = name_of_call(e);
        const SiteSpec* site = site_of(e);
        if (!site) continue;
        out.back().kind = word_of(site->kind);
        out.back().name = site->name;
        out.back().place = site->place;
      }
  }
  return out;
}

}  // namespace postern::internal::run
