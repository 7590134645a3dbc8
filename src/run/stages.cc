// Cutting programs at their calls, and running the parts.
#include "run/stages.h"

#include <algorithm>

#include "host/executor.h"
#include "host/run_state.h"
#include "run/array.h"
#include "trace/trace.h"

namespace postern::run {

namespace {

std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }

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

/// An equation of XLA belongs to the first step whose calls before it have made its operands; a call to the step that computes its own.
void StagedProgram::cut() {
  std::vector<std::size_t> ready(program_.types.size(), 0);  // by value: the first step that can read it on the device
  std::vector<bool> by_host(program_.types.size(), false);
  std::size_t ordered = 0;
  for (std::size_t i = 0; i < program_.equations.size(); ++i) {
    const Equation& e = program_.equations[i];
    const bool host = has_site(e);
    std::size_t step = 0;
    // What another call makes is there one step before the device could read it.
    for (const ValueId v : e.operands) step = std::max(step, ready[at(v)] - (host && by_host[at(v)] ? 1 : 0));
    const bool in_order = effect_of(e) == Effect::ordered;
    if (in_order) ordered = step = std::max(step, ordered);
    if (step >= steps_.size()) steps_.resize(step + 1);
    (host ? steps_[step].host : steps_[step].device.equations).push_back(i);
    for (int r = 0; r < e.results; ++r) {
      ready[at(e.first + r)] = host ? step + 1 : step;
      by_host[at(e.first + r)] = host;
    }
  }
}

void StagedProgram::find_crossing() {
  constexpr std::size_t never = static_cast<std::size_t>(-1);
  std::vector<std::size_t> made(program_.types.size(), never), used(program_.types.size(), never);
  std::vector<bool> wanted(program_.types.size(), false);  // outside of the XLA program that makes it
  for (std::size_t s = 0; s < steps_.size(); ++s)
    for (const std::size_t i : steps_[s].device.equations)
      for (int r = 0; r < program_.equations[i].results; ++r) made[at(program_.equations[i].first + r)] = s;
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    for (const std::size_t i : steps_[s].device.equations)
      for (const ValueId v : program_.equations[i].operands) {
        used[at(v)] = s;
        if (made[at(v)] == s) continue;
        wanted[at(v)] = true;
        if (!std::ranges::count(steps_[s].device.inputs, v)) steps_[s].device.inputs.push_back(v);
      }
    for (const std::size_t i : steps_[s].host)
      for (const ValueId v : program_.equations[i].operands) used[at(v)] = s, wanted[at(v)] = true;
  }
  for (const ValueId v : program_.outputs) wanted[at(v)] = true, used[at(v)] = never;
  for (std::size_t v = 0; v < made.size(); ++v) {
    if (made[v] != never && wanted[v]) steps_[made[v]].device.outputs.push_back(static_cast<ValueId>(v));
    if (used[v] != never && std::ranges::count(program_.outputs, static_cast<ValueId>(v)) == 0 && (made[v] == never || wanted[v]))
      steps_[used[v]].last_used.push_back(static_cast<ValueId>(v));
  }
}

std::shared_ptr<const CompiledProgram> StagedProgram::compiled(std::size_t step) const {
  std::scoped_lock lock(guard_);
  auto& compiled = compiled_[step];
  if (compiled) return compiled;
  const Device& device = steps_[step].device;
  Program part;
  // Equal parts of different programs have equal texts, which are compiled once.
  part.name = "stage";
  std::vector<ValueId> renamed(program_.types.size(), -1);
  auto take = [&](ValueId v) {
    renamed[at(v)] = static_cast<ValueId>(part.types.size());
    part.types.push_back(program_.type(v));
    return renamed[at(v)];
  };
  for (const ValueId v : device.inputs) part.inputs.push_back(take(v));
  for (const std::size_t i : device.equations) {
    Equation e = program_.equations[i];
    for (ValueId& v : e.operands) v = renamed[at(v)];
    const ValueId first = e.first;
    e.first = static_cast<ValueId>(part.types.size());
    for (int r = 0; r < e.results; ++r) take(first + r);
    part.equations.push_back(std::move(e));
  }
  for (const ValueId v : device.outputs) part.outputs.push_back(renamed[at(v)]);
  auto module = lower({part.name, std::make_shared<const Program>(std::move(part)), device.inputs.size(), {}, {}});
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
    const FamilyScope scope(family_);
    Tensors operands;
    for (const ValueId v : e.operands) operands.push_back(values[at(v)]);
    Tensors results = evaluate_now(*e.primitive, e.params, operands);
    for (int r = 0; r < e.results; ++r) values[at(e.first + r)] = std::move(results[at(r)]);
  };
  // One that reads what another of this step makes follows it, as ordered ones follow each other.
  std::vector<std::vector<std::size_t>> rounds;
  std::vector<std::size_t> round_of(program_.types.size(), 0);
  std::size_t ordered = 0;
  for (const std::size_t i : step.host) {
    const Equation& e = program_.equations[i];
    std::size_t round = 0;
    for (const ValueId v : e.operands) round = std::max(round, round_of[at(v)]);
    if (effect_of(e) == Effect::ordered) round = std::max(round, ordered), ordered = round + 1;
    if (round >= rounds.size()) rounds.resize(round + 1);
    rounds[round].push_back(i);
    for (int r = 0; r < e.results; ++r) round_of[at(e.first + r)] = round + 1;
  }
  for (const auto& round : rounds) {
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
    for (const std::size_t i : step.host) {
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
