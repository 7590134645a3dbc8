// Cutting programs at their calls, and running the parts.
#include "run/stages.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "host/executor.h"
#include "host/run_state.h"
#include "transform/simplify.h"
#include "transform/walk.h"

namespace postern::run {

namespace {

/// The equations of `from` at the end of `to`, those that only wrap a program with calls replaced by its equations; the outputs.
std::vector<ValueId> flatten(const Program& from, const std::vector<ValueId>& inputs, Program& to) {
  std::vector<ValueId> renamed(from.types.size(), -1);
  auto map = [&](const std::vector<ValueId>& values) {
    std::vector<ValueId> out;
    for (const ValueId v : values) out.push_back(renamed[at(v)]);
    return out;
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) renamed[at(from.inputs[i])] = inputs[i];
  for (const Equation& e : from.equations) {
    if (e.primitive->transparent && has_site(e)) {
      const std::vector<ValueId> results = flatten(*programs_of(*e.params)[0], map(e.operands), to);
      for (int r = 0; r < e.results; ++r) renamed[at(e.first + r)] = results[at(r)];
      continue;
    }
    Equation copy = e;
    copy.operands = map(e.operands);
    copy.first = static_cast<ValueId>(to.types.size());
    for (int r = 0; r < e.results; ++r) {
      renamed[at(e.first + r)] = copy.first + r;
      to.types.push_back(from.type(e.first + r));
    }
    to.equations.push_back(std::move(copy));
  }
  return map(from.outputs);
}

Program flat(const Program& program) {
  Program out;
  out.name = program.name;
  for (const ValueId v : program.inputs) {
    out.inputs.push_back(static_cast<ValueId>(out.types.size()));
    out.types.push_back(program.type(v));
  }
  out.outputs = flatten(program, out.inputs, out);
  return out;
}

/// Where the programs inside an equation that the host drives are found, while it does.
thread_local StagedPrograms* current_family = nullptr;
class FamilyScope {
 public:
  explicit FamilyScope(StagedPrograms* family) : before_(std::exchange(current_family, family)) {}
  ~FamilyScope() { current_family = before_; }
  FamilyScope(const FamilyScope&) = delete;

 private:
  StagedPrograms* before_;
};

}  // namespace

const StagedProgram& StagedPrograms::of(const ProgramPtr& program) {
  std::scoped_lock lock(guard_);
  auto& staged = programs_[program];
  if (!staged) staged = std::make_unique<StagedProgram>(*program, *this);
  return *staged;
}

StagedProgram::StagedProgram(const Program& program, StagedPrograms& family) : program_(flat(program)), family_(&family) {
  cut();
  find_crossing();
  compiled_.resize(steps_.size());
}

/// An equation of XLA belongs to the first step whose calls before it have made its operands; a call to the step that computes its own, in
/// a round after those calls of the step that it reads or follows in order.
void StagedProgram::cut() {
  struct Made {
    std::size_t step = 0;   // the first that can read it on the device
    std::size_t round = 0;  // by the host: the first of the step before that can
    bool by_host = false;
  };
  std::vector<Made> made(program_.types.size());
  std::size_t ordered_step = 0, ordered_round = 0;
  for (std::size_t i = 0; i < program_.equations.size(); ++i) {
    const Equation& e = program_.equations[i];
    const bool host = has_site(e), ordered = host && effect_of(e) == Effect::ordered;
    // What another call makes is there for the host one step before the device could read it.
    auto step_for = [&](const Made& m) { return m.step - (host && m.by_host ? 1 : 0); };
    std::size_t step = ordered ? ordered_step : 0, round = 0;
    for (const ValueId v : e.operands) step = std::max(step, step_for(made[at(v)]));
    for (const ValueId v : e.operands)
      if (host && made[at(v)].by_host && step_for(made[at(v)]) == step) round = std::max(round, made[at(v)].round);
    if (ordered && step == ordered_step) round = std::max(round, ordered_round);
    if (ordered) ordered_step = step, ordered_round = round + 1;
    if (step >= steps_.size()) steps_.resize(step + 1);
    if (host) {
      auto& rounds = steps_[step].host;
      if (round >= rounds.size()) rounds.resize(round + 1);
      rounds[round].push_back(i);
    } else {
      steps_[step].device.equations.push_back(i);
    }
    for (int r = 0; r < e.results; ++r) made[at(e.first + r)] = {host ? step + 1 : step, round + 1, host};
  }
}

void StagedProgram::find_crossing() {
  constexpr std::size_t never = static_cast<std::size_t>(-1);
  struct Value {
    std::size_t made = never, read = never, used = never;  // steps: whose device makes it; whose device reads it, and which uses it, last
    bool wanted = false;                                   // outside of the XLA program that makes it
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
        for (const ValueId v : program_.equations[i].operands) values[at(v)].used = s, values[at(v)].wanted = true;
  }
  for (const ValueId v : program_.outputs) values[at(v)].wanted = values[at(v)].output = true;
  for (std::size_t v = 0; v < values.size(); ++v) {
    const Value& value = values[v];
    if (value.made != never && value.wanted) steps_[value.made].device.outputs.push_back(static_cast<ValueId>(v));
    if (value.used != never && !value.output && (value.made == never || value.wanted))
      steps_[value.used].last_used.push_back(static_cast<ValueId>(v));
  }
}

std::shared_ptr<const CompiledProgram> StagedProgram::compiled(std::size_t step) const {
  std::scoped_lock lock(guard_);
  auto& compiled = compiled_[step];
  if (compiled) return compiled;
  const Device& device = steps_[step].device;
  // Equal parts of different programs have equal texts, which are compiled once: simplify numbers the values anew.
  Program part{"stage", program_.types, device.inputs, {}, device.outputs};
  for (const std::size_t i : device.equations) part.equations.push_back(program_.equations[i]);
  auto module = lower({part.name, simplify(part), device.inputs.size(), {}, {}, {}, {}});
  compiled = std::make_shared<const CompiledProgram>(std::move(module), device.inputs.size(), Tensors());
  return compiled;
}

void StagedProgram::compile() const {
  for (std::size_t s = 0; s < steps_.size(); ++s)
    if (!steps_[s].device.equations.empty()) compiled(s);
}

Tensors StagedProgram::run(Tensors inputs) const {
  Tensors values(program_.types.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) values[at(program_.inputs[i])] = std::move(inputs[i]);
  inputs.clear();
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    if (!step.device.equations.empty()) {
      std::vector<const Tensor*> arguments;
      for (const ValueId v : step.device.inputs) arguments.push_back(&values[at(v)]);
      Tensors results(step.device.outputs.size());
      compiled(s)->run(arguments, results);
      for (std::size_t i = 0; i < results.size(); ++i) values[at(step.device.outputs[i])] = std::move(results[i]);
    }
    run_host(step, values);
    for (const ValueId v : step.last_used) values[at(v)] = Tensor();
  }
  Tensors outputs;
  for (const ValueId v : program_.outputs) outputs.push_back(values[at(v)]);
  return outputs;
}

void StagedProgram::run_host(const Step& step, Tensors& values) const {
  auto run_one = [&](std::size_t i) {
    const Equation& e = program_.equations[i];
    const FamilyScope scope(e.primitive->site ? nullptr : family_);  // what a function runs is its own affair
    Tensors operands;
    for (const ValueId v : e.operands) operands.push_back(values[at(v)]);
    Tensors results = evaluate_now(*e.primitive, e.params, operands);
    for (int r = 0; r < e.results; ++r) values[at(e.first + r)] = std::move(results[at(r)]);
  };
  for (const auto& round : step.host) {
    if (round.size() == 1) {
      run_one(round[0]);
      continue;
    }
    std::vector<std::exception_ptr> failures(round.size());
    const host::Nesting* const outer = host::nesting();
    host::parallel_for(static_cast<std::int64_t>(round.size()), [&](std::int64_t k) {
      const host::NestingScope scope(outer);
      const auto i = static_cast<std::size_t>(k);
      try {
        run_one(round[i]);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
    for (const std::exception_ptr& failure : failures)
      if (failure) std::rethrow_exception(failure);
  }
}

std::vector<StageInfo> StagedProgram::stages() const {
  auto types = [&](const std::vector<ValueId>& values) {
    std::vector<Type> out;
    for (const ValueId v : values) out.push_back(program_.type(v));
    return out;
  };
  std::vector<StageInfo> out;
  for (const Step& step : steps_) {
    if (!step.device.equations.empty())
      out.push_back({"xla", "", {}, static_cast<int>(step.device.equations.size()), types(step.device.inputs), types(step.device.outputs)});
    for (const auto& round : step.host)
      for (const std::size_t i : round) {
        const Equation& e = program_.equations[i];
        std::vector<ValueId> results;
        for (int r = 0; r < e.results; ++r) results.push_back(e.first + r);
        const SiteSpec* site = e.primitive->site ? e.primitive->site(e.params.get()) : nullptr;
        out.push_back({site ? site->word : e.primitive->name, site ? site->name : "", site ? site->place : e.place, 1, types(e.operands),
                       types(results)});
      }
  }
  return out;
}

}  // namespace postern::run

namespace postern {

Tensors evaluate_program(const ProgramPtr& program, std::span<const Tensor> inputs) {
  if (run::current_family) return run::current_family->of(program).run(Tensors(inputs.begin(), inputs.end()));
  return apply(*program, inputs);
}

}  // namespace postern
