// Cutting programs at their calls, and running the parts.
//
// A staged program is a list of steps: first one XLA program, which may be empty, then rounds of
// host functions. cut() gives each equation the earliest step in which its operands are there, so a
// new step begins only behind a call that something of XLA reads or must follow. add_constants()
// and find_crossing() then say what each XLA program reads and makes, and after which step a value
// may be forgotten; place() asks the user for devices. All this happens once; run() walks the
// steps.
#include "run/stages.h"

#include <postern/shard.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <set>
#include <utility>

#include "core/enum.h"
#include "host/executor.h"
#include "host/run_state.h"
#include "run/array.h"
#include "run/evaluator.h"
#include "run/inspect.h"
#include "run/interpreted.h"
#include "run/residual_store.h"
#include "transform/flatten.h"
#include "transform/simplify.h"
#include "transform/walk.h"

namespace postern::internal::run {

const StagedProgram& StagedPrograms::of(const ProgramPtr& program) {
  {
    std::scoped_lock lock(guard_);
    if (const auto found = programs_.find(program); found != programs_.end()) return *found->second;
  }
  auto made = std::make_unique<StagedProgram>(*program, *this);  // asks the user where to cut
  std::scoped_lock lock(guard_);
  return *programs_.try_emplace(program, std::move(made)).first->second;
}

StagedProgram::StagedProgram(const Program& program, StagedPrograms& family)
    : program_(flattened(program, [](const Equation& e) { return has_site(e); })),
      reach_(reach_of(program_)),
      family_(&family) {
  cut();
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

namespace {

std::vector<ValueId> results_of(const Equation& e) {
  std::vector<ValueId> out;
  for (int r = 0; r < e.results; ++r) out.push_back(e.first + r);
  return out;
}

}  // namespace

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
    if (ordered && host) step = std::max(ordered_on_device, ordered_step);
    if (ordered && !host) step = std::max(ordered_on_device, after_ordered);
    for (const ValueId v : e.operands) {
      const Made& m = made[at(v)];
      std::size_t readable = m.on_device;
      if (host)
        readable = m.on_host;
      else if (before && m.by_device)
        readable = m.on_host + 1;
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
      steps_[step].device.equations.push_back(i);
    }
    Made made_here{step, step, 0, !host};
    if (host || after) ++made_here.on_device;
    if (host) made_here.round = round + 1;
    for (const ValueId v : results_of(e)) made[at(v)] = made_here;
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

std::shared_ptr<const CompiledProgram> StagedProgram::compiled(std::size_t step) const {
  once_[step]([&] { compiled_[step] = make(step); });
  return compiled_[step];
}

std::shared_ptr<const CompiledProgram> StagedProgram::make(std::size_t step) const {
  const Device& device = steps_[step].device;
  std::optional<AtDevice> there;
  if (const int place = steps_[step].place; place >= 0) there.emplace(place);
  // Equal parts of different programs have equal texts, which are compiled once: simplify numbers
  // the values anew.
  Program part{"stage", program_.types, device.inputs, {}, device.outputs};
  for (const std::size_t i : device.equations) part.equations.push_back(program_.equations[i]);
  const Lowerable stage{part.name,
                        simplify(part),
                        device.inputs.size(),
                        {},
                        {},
                        {},
                        {},
                        family_->options().gather_limit};
  auto module = lower(stage);
  tell_shardings(stage, *module);
  return std::make_shared<const CompiledProgram>(std::move(module), device.inputs.size(),
                                                 Tensors());
}

void StagedProgram::compile() const {
  for (std::size_t s = 0; s < steps_.size(); ++s)
    if (!steps_[s].device.equations.empty()) compiled(s);
}

void StagedProgram::place() {
  const auto& wanted = family_->options().stage_device;
  if (!wanted) return;
  const int have = Runtime::get().device_count();
  for (Step& step : steps_) {
    if (step.device.equations.empty()) continue;
    step.place = wanted(info(step.device));
    check(step.place >= -1 && step.place < have,
          "jit: stage_device gave device {}, which is not one of the {} of devices()", step.place,
          have);
  }
  std::vector<Step*> maker(program_.types.size());
  for (Step& step : steps_)
    for (const ValueId v : step.device.outputs) maker[at(v)] = &step;
  for (std::size_t s = 0; s < steps_.size(); ++s)
    for (const ValueId v : steps_[s].device.inputs)
      if (Step* const step = maker[at(v)]) step->read_by.emplace_back(v, s);
}

/// The values of one run; of some a copy on another device, for the stages there.
class StagedProgram::Values {
 public:
  Values(const StagedProgram& program, Tensors inputs) : all(program.program_.types.size()) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      all[at(program.program_.inputs[i])] = std::move(inputs[i]);
  }
  /// Sent there if need be, which nobody waits for.
  const Tensor* on(int device, ValueId v) {
    const Tensor& value = all[at(v)];
    const auto kind = detail::Access::value(value)->kind;
    if (kind != detail::Value::Kind::device || value.device() == device) return &value;
    Tensor& copy = copies_[{v, device}];
    if (!copy.has_value()) copy = detail::put(value, device, Place{});
    return &copy;
  }
  void forget(ValueId v) {
    all[at(v)] = Tensor();
    copies_.erase(copies_.lower_bound({v, 0}), copies_.lower_bound({v + 1, 0}));
  }

  Tensors all;

 private:
  std::map<std::pair<ValueId, int>, Tensor> copies_;
};

// Runs the steps in order on the thread that drives the run. XLA's programs are queued, and their
// results go on to the next step before they are there; only a host function waits for its
// operands. A value that a later step reads on another device is sent as soon as it is made, while
// others run, and is let go of after its last step. Between steps a run that was stopped or has
// failed ends here with its error.
Tensors StagedProgram::run(Tensors inputs) const {
  const bool placed = static_cast<bool>(family_->options().stage_device);
  const int home = default_device();
  const auto device_of = [&](const Step& step) {
    if (step.place < 0) return home;
    return step.place;
  };
  wait_for_earlier(reach_, {});
  Values values(*this, std::move(inputs));
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    InterpretedRun::current()->check_going();
    if (!step.device.equations.empty()) {
      const int device = device_of(step);
      std::optional<DeviceScope> scope;
      if (placed) scope.emplace(device, Place{});
      std::vector<const Tensor*> arguments;
      for (const ValueId v : step.device.inputs) {
        if (placed)
          arguments.push_back(values.on(device, v));
        else
          arguments.push_back(&values.all[at(v)]);
      }
      Tensors results(step.device.outputs.size());
      const auto program = compiled(s);
      if (program->calls())
        InterpretedRun::current()->run_part(*program, arguments, results);
      else
        program->run(arguments, results);
      keep_stores(arguments, results);
      for (std::size_t i = 0; i < results.size(); ++i)
        values.all[at(step.device.outputs[i])] = std::move(results[i]);
      for (const auto& [v, later] : step.read_by)
        values.on(device_of(steps_[later]), v);  // under way while others run
    }
    run_host(step, values.all);
    for (const ValueId v : step.last_used) values.forget(v);
  }
  Tensors outputs;
  for (const ValueId v : program_.outputs) outputs.push_back(values.all[at(v)]);
  return outputs;
}

/// The host functions of a step, round after round. Those of one round do not read each other and
/// run at the same time; all of them end before any failure is thrown.
void StagedProgram::run_host(const Step& step, Tensors& values) const {
  InterpretedRun* const run = InterpretedRun::current();
  auto run_one = [&](std::size_t i) {
    const Equation& e = program_.equations[i];
    const PlaceScope::Replace here(e.place);
    Tensors operands;
    for (const ValueId v : e.operands) operands.push_back(values[at(v)]);
    Tensors results = evaluate_equation(*e.primitive, e.params, operands);
    for (int r = 0; r < e.results; ++r) values[at(e.first + r)] = std::move(results[at(r)]);
  };
  for (const auto& round : step.host) {
    if (round.size() == 1) {
      run_one(round[0]);
      continue;
    }
    std::vector<std::exception_ptr> failures(round.size());
    const host::Nesting* const outer = host::nesting();
    const int device = default_device();
    host::parallel_for(static_cast<std::int64_t>(round.size()), [&](std::int64_t k) {
      const host::NestingScope nested(outer);
      const InterpretedRun::Scope scope(run);
      std::optional<DeviceScope> on;
      if (device > 0) on.emplace(device, Place{});
      const auto i = static_cast<std::size_t>(k);
      try {
        run_one(round[i]);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
    run->check_going();  // all that failed in one error
    for (const std::exception_ptr& failure : failures)
      if (failure) std::rethrow_exception(failure);
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
          types(device.outputs)};
}

std::vector<StageInfo> StagedProgram::stages() const {
  std::vector<StageInfo> out;
  for (const Step& step : steps_) {
    if (!step.device.equations.empty()) {
      out.push_back(info(step.device));
      out.back().device = step.place;
    }
    for (const auto& round : step.host)
      for (const std::size_t i : round) {
        const Equation& e = program_.equations[i];
        out.push_back({e.primitive->name, "", e.place, 1, types(e.operands), types(results_of(e))});
        const SiteSpec* site = site_of(e);
        if (!site) continue;
        out.back().kind = word_of(site->kind);
        out.back().name = site->name;
        out.back().place = site->place;
      }
  }
  return out;
}

Tensors evaluate_program(const ProgramPtr& program, TensorSpan inputs) {
  const InterpretedRun* const interpreted = InterpretedRun::current();
  if (interpreted && interpreted->family())
    return interpreted->family()->of(program).run(Tensors(inputs.begin(), inputs.end()));
  return apply(*program, inputs);
}

}  // namespace postern::internal::run
