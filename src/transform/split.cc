// One walk sorts the equations, a second writes the unknown half.
//
// The first walk traces the known half: an equation of known operands goes into it at once, one
// with a split rule of its own in part, any other is deferred. What deferred equations and unknown
// outputs read of the known half are the residuals, each once. The second walk writes the deferred
// equations behind the residuals and the unknown inputs. Results that nobody wants are left out of
// both. Numbers, and what is made of numbers alone, are no residuals: they are made again where
// they are used, so that they stay constants that the rules and XLA can see.
#include "transform/split.h"

#include "core/check.h"
#include "transform/simplify.h"
#include "transform/walk.h"

namespace postern::internal {

namespace {

using detail::Access;

struct Source {
  Tensor known;        // empty: the unknown half makes it
  ValueId value = -1;  // of the program that is split
};
/// An equation of the unknown half. `results` are values of the program that is split; -1: not one
/// of them.
struct Deferred {
  const Primitive* primitive;
  ParamsPtr params;
  std::vector<Source> operands;
  std::vector<ValueId> results;
  Place place;
};

class Splitter {
 public:
  Splitter(const Program& program, const std::vector<bool>& unknown)
      : program_(program),
        unknown_inputs_(unknown),
        known_(program),
        needed_(needed_values(program)),
        remade_(program.types.size()) {}

  Halves operator()(const std::vector<bool>& force) {
    Halves halves;
    std::vector<Source> unknown_outputs;
    Closed known;
    {
      Trace scope("known");
      for (std::size_t i = 0; i < program_.inputs.size(); ++i)
        if (!unknown_inputs_[i])
          known_[program_.inputs[i]] = scope.input(program_.type(program_.inputs[i]));
      for (const Equation& e : program_.equations) sort(e);
      Tensors outputs;
      for (std::size_t i = 0; i < program_.outputs.size(); ++i) {
        const ValueId v = program_.outputs[i];
        halves.unknown_outputs.push_back(!known_[v].has_value() || (!force.empty() && force[i]));
        if (halves.unknown_outputs.back())
          unknown_outputs.push_back({known_[v], v});
        else
          outputs.push_back(known_[v]);
      }
      for (const Deferred& d : deferred_)
        for (const Source& s : d.operands) need(s);
      for (const Source& s : unknown_outputs) need(s);
      append(outputs, residuals_);
      halves.residuals = residuals_.size();
      known = scope.finish(outputs);
    }
    check(known.captures.empty(), "split: a rule uses a tensor from outside of the program");
    halves.known = simplify(*known.program);
    halves.unknown = unknown_half(unknown_outputs);
    return halves;
  }

 private:
  std::vector<bool> wanted_results(const Equation& e) const {
    return {needed_.begin() + e.first, needed_.begin() + e.first + e.results};
  }

  void sort(const Equation& e) {
    if (!is_needed(e, needed_)) return;
    PlaceScope::Replace place(e.place);
    Tensors operands = known_.get(e.operands);
    if (has_all(operands)) {
      remember_constant(e);
      Tensors results = bind_n(*e.primitive, e.params, operands);
      for (int i = 0; i < e.results; ++i)
        if (remade_[at(e.first + i)])
          constants_.emplace(Access::value(results[at(i)]), e.first + i);
      return known_.set(e, std::move(results));
    }
    if (e.primitive->split)
      return defer_rest(e,
                        e.primitive->split({*e.primitive, e.params}, operands, wanted_results(e)));
    Deferred d{e.primitive, e.params, {}, {}, e.place};
    for (ValueId v : e.operands) d.operands.push_back({known_[v], v});
    for (int i = 0; i < e.results; ++i) d.results.push_back(e.first + i);
    deferred_.push_back(std::move(d));
  }

  /// Numbers and what is made of numbers alone are made again rather than kept.
  void remember_constant(const Equation& e) {
    bool constant = !e.primitive->distinct && (!e.params || programs_of(*e.params).empty()) &&
                    effect_of(e) == Effect::pure;
    for (ValueId v : e.operands) constant = constant && remade_[at(v)];
    for (int i = 0; i < e.results; ++i) remade_[at(e.first + i)] = constant;
  }

  void defer_rest(const Equation& e, Primitive::SplitResult r) {
    known_.set(e, std::move(r.known));
    if (!r.primitive) return;
    Deferred d{r.primitive, std::move(r.params), {}, {}, e.place};
    for (Primitive::SplitResult::Source& s : r.operands)
      if (s.known.has_value())
        d.operands.push_back({std::move(s.known)});
      else
        d.operands.push_back({{}, e.operands[at(s.operand)]});
    for (const int i : r.results) {
      d.results.push_back(-1);
      if (i >= 0) d.results.back() = e.first + i;
    }
    deferred_.push_back(std::move(d));
  }

  void need(const Source& s) {
    if (!s.known.has_value()) return;
    const detail::Value* value = Access::value(s.known);
    if (constants_.contains(value) || !residual_of_.emplace(value, residuals_.size()).second)
      return;
    residuals_.push_back(s.known);
  }

  /// The constants that the unknown half uses, written into it.
  void remake(Env& env, const std::vector<Source>& outputs) {
    std::vector<bool> used(program_.types.size());
    auto use = [&](const Source& s) {
      if (!s.known.has_value()) return;
      if (const auto found = constants_.find(Access::value(s.known)); found != constants_.end())
        used[at(found->second)] = true;
    };
    for (const Deferred& d : deferred_)
      for (const Source& s : d.operands) use(s);
    for (const Source& s : outputs) use(s);
    std::vector<const Equation*> again;
    for (std::size_t i = program_.equations.size(); i-- > 0;) {
      const Equation& e = program_.equations[i];
      if (!makes_any(e, used)) continue;
      again.push_back(&e);
      for (ValueId v : e.operands) used[at(v)] = true;
    }
    for (std::size_t i = again.size(); i-- > 0;) {
      PlaceScope::Replace place(again[i]->place);
      env.set(*again[i],
              bind_n(*again[i]->primitive, again[i]->params, env.get(again[i]->operands)));
    }
  }

  ProgramPtr unknown_half(const std::vector<Source>& outputs) {
    Types types = types_of(residuals_);
    append(types, where_marked(program_.input_types(), unknown_inputs_));
    const Closed closed = trace_program("unknown", types, [&](TensorSpan inputs) {
      Env env(program_);
      std::size_t next = residuals_.size();
      for (std::size_t i = 0; i < program_.inputs.size(); ++i)
        if (unknown_inputs_[i]) env[program_.inputs[i]] = inputs[next++];
      remake(env, outputs);
      auto get = [&](const Source& s) {
        if (!s.known.has_value()) return env[s.value];
        if (const auto found = residual_of_.find(Access::value(s.known));
            found != residual_of_.end())
          return inputs[found->second];
        return env[constants_.at(Access::value(s.known))];
      };
      for (const Deferred& d : deferred_) {
        PlaceScope::Replace place(d.place);
        Tensors operands;
        for (const Source& s : d.operands) operands.push_back(get(s));
        Tensors results = bind_n(*d.primitive, d.params, operands);
        for (std::size_t i = 0; i < results.size(); ++i)
          if (d.results[i] >= 0) env[d.results[i]] = std::move(results[i]);
      }
      Tensors out;
      for (const Source& s : outputs) out.push_back(get(s));
      return out;
    });
    return closed.program;
  }

  const Program& program_;
  const std::vector<bool>& unknown_inputs_;
  Env known_;
  const std::vector<bool> needed_;
  std::vector<bool> remade_;
  std::unordered_map<const detail::Value*, ValueId> constants_;
  std::vector<Deferred> deferred_;
  Tensors residuals_;
  std::unordered_map<const detail::Value*, std::size_t> residual_of_;
};

}  // namespace

Halves split(const Program& program, const std::vector<bool>& unknown,
             const std::vector<bool>& force) {
  return Splitter(program, unknown)(force);
}

Primitive::SplitResult split_result(const Primitive& primitive, ParamsPtr params,
                                    const std::vector<bool>& unknown, TensorSpan known,
                                    TensorSpan residuals, TensorSpan x) {
  Primitive::SplitResult out;
  out.primitive = &primitive;
  out.params = std::move(params);
  std::vector<bool> there = unknown;
  there.flip();
  out.known = placed(there, known);
  for (std::size_t i = 0; i < unknown.size(); ++i)
    if (unknown[i]) out.results.push_back(static_cast<int>(i));
  for (const Tensor& t : residuals) out.operands.push_back({t});
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!x[i].has_value()) out.operands.push_back({{}, static_cast<int>(i)});
  return out;
}

}  // namespace postern::internal
