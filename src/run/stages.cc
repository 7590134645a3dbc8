// Running programs that are cut at their calls.
//
// A staged program is a list of steps: first one XLA program, which may be empty, then rounds of
// host functions. Where they are cut is decided once (stages_cut.cc), and place() asks the user for
// devices; run() walks the steps.
#include "run/stages.h"

#include <postern/shard.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "host/executor.h"
#include "host/run_state.h"
#include "run/array.h"
#include "run/evaluator.h"
#include "run/inspect.h"
#include "run/interpreted.h"
#include "run/residual_store.h"
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

std::shared_ptr<const CompiledProgram> StagedProgram::compiled(std::size_t step) const {
  once_[step]([&] { compiled_[step] = make(step); });
  return compiled_[step];
}

std::shared_ptr<const CompiledProgram> StagedProgram::make(std::size_t step) const {
  const Device& device = steps_[step].device;
  std::optional<DeviceScope> there;
  if (const int place = steps_[step].place; place >= 0) there.emplace(place, Place{});
  // Equal parts of different programs have equal texts, which are compiled once: simplify numbers
  // the values anew.
  Program part{"stage", program_.types, device.inputs, {}, device.outputs};
  for (const std::size_t i : device.equations) part.equations.push_back(program_.equations[i]);
  Lowerable stage;
  stage.name = part.name;
  stage.program = simplify(part);
  stage.arguments = device.inputs.size();
  stage.gather_limit = family_->options().gather_limit;
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
    step.place = wanted(xla_stage(step.device, -1, ""));
    check(step.place >= -1 && step.place < have,
          "jit: stage_device gave device {}, which is not one of the {} of devices()", step.place,
          have);
  }
  std::vector<Step*> maker(program_.types.size());  // by value; null: no XLA program
  for (Step& step : steps_)
    for (const ValueId v : step.device.outputs) maker[at(v)] = &step;
  for (std::size_t s = 0; s < steps_.size(); ++s)
    for (const ValueId v : steps_[s].device.inputs)
      if (Step* const step = maker[at(v)]) step->read_by.emplace_back(v, s);
}

/// The values of one run; of some a copy on another device, for the stages there.
class StagedProgram::Values {
 public:
  Values(const Program& program, const Tensors& inputs) : all(program) {
    all.set(program.inputs, inputs);
  }
  /// Returns the value on the device, sent there if need be, which nobody waits for.
  const Tensor* on(int device, ValueId v) {
    const Tensor& value = all[v];
    const auto kind = detail::Access::value(value)->kind;
    if (kind != detail::Value::Kind::device || value.device() == device) return &value;
    Tensor& copy = copies_[{v, device}];
    if (!copy.has_value()) copy = detail::put(value, device, Place{});
    return &copy;
  }
  void forget(ValueId v) {
    all[v] = Tensor();
    copies_.erase(copies_.lower_bound({v, 0}), copies_.lower_bound({v + 1, 0}));
  }

  Env all;

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
  Values values(program_, std::exchange(inputs, {}));  // none is kept longer than it is read
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    InterpretedRun::current()->check_going();
    if (!step.device.equations.empty()) {
      const int device = device_of(step);
      std::optional<DeviceScope> scope;
      if (placed) scope.emplace(device, Place{});
      std::vector<const Tensor*> arguments;
      for (const ValueId v : step.device.inputs)
        arguments.push_back(placed ? values.on(device, v) : &values.all[v]);
      Tensors results(step.device.outputs.size());
      const auto program = compiled(s);
      if (program->calls())
        InterpretedRun::current()->run_part(*program, arguments, results);
      else
        program->run(arguments, results);
      keep_owned(arguments, results);
      values.all.set(step.device.outputs, results);
      for (const auto& [v, later] : step.read_by)
        values.on(device_of(steps_[later]), v);  // under way while others run
    }
    run_host(step, values.all);
    for (const ValueId v : step.last_used) values.forget(v);
  }
  return values.all.get(program_.outputs);
}

/// Runs the host functions of a step, round after round. Those of one round do not read each other
/// and run at the same time; all of them end before any failure is thrown.
void StagedProgram::run_host(const Step& step, Env& values) const {
  InterpretedRun* const run = InterpretedRun::current();
  auto run_one = [&](std::size_t i) {
    const Equation& e = program_.equations[i];
    const PlaceScope::Replace here(e.place);
    values.set(e, evaluate_equation(*e.primitive, e.params, values.get(e.operands)));
  };
  const auto has_programs = [&](std::size_t i) {
    const ParamsPtr& params = program_.equations[i].params;
    return params && !programs_of(*params).empty();
  };
  for (const auto& round : step.host) {
    // A recording knows the runs of the programs inside by their order.
    const bool in_order = run->observer && std::ranges::any_of(round, has_programs);
    if (round.size() == 1 || in_order) {
      std::ranges::for_each(round, run_one);
      continue;
    }
    std::vector<std::exception_ptr> failures(round.size());
    const host::Nesting* const outer = host::nesting();
    const int device = default_device();
    host::parallel_for(std::ssize(round), [&](std::int64_t k) {
      const host::NestingScope nested(outer);
      const InterpretedRun::Scope scope(run);
      std::optional<DeviceScope> on;
      if (device > 0) on.emplace(device, Place{});
      const auto i = size_of(k);
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

Tensors evaluate_program(const ProgramPtr& program, TensorSpan inputs) {
  const InterpretedRun* const interpreted = InterpretedRun::current();
  if (interpreted && interpreted->family())
    return interpreted->family()->of(program).run(Tensors(inputs.begin(), inputs.end()));
  return apply(*program, inputs);
}

}  // namespace postern::internal::run
