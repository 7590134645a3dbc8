// Walking a linear program backwards.
#include "transform/transpose.h"

#include <postern/ops.h>

#include "core/check.h"
#include "core/site_spec.h"
#include "transform/jvp.h"
#include "transform/walk.h"

namespace postern::internal {

namespace {

std::string described(const Equation& e) {
  if (e.primitive->site) return fmt::format("call '{}'", e.primitive->site(e.params.get())->name);
  return e.primitive->name;
}

class Backward {
 public:
  Backward(const Program& program, TensorSpan known)
      : program_(program), env_(program), cotangents_(program), linear_(program.types.size()) {
    for (std::size_t i = 0; i < known.size(); ++i) {
      env_[program.inputs[i]] = known[i];
      linear_[at(program.inputs[i])] = !known[i].has_value();
    }
  }

  Tensors operator()(TensorSpan cotangents) {
    for (const Equation& e : program_.equations) forward(e);
    for (std::size_t i = 0; i < program_.outputs.size(); ++i)
      if (linear_[at(program_.outputs[i])]) accumulate(program_.outputs[i], cotangents[i]);
    for (std::size_t i = program_.equations.size(); i-- > 0;) backward(program_.equations[i]);
    return cotangents_.get(program_.inputs);
  }

 private:
  void forward(const Equation& e) {
    if (moves(e)) {
      for (int i = 0; i < e.results; ++i) linear_[at(e.first + i)] = true;
      return;
    }
    PlaceScope::Replace place(e.place);
    env_.get(e.operands, operands_);
    env_.set(e, bind_n(*e.primitive, e.params, operands_));
  }

  void backward(const Equation& e) {
    if (!moves(e)) return;
    Tensors ct(at(e.results));
    for (int i = 0; i < e.results; ++i)
      ct[at(i)] = std::exchange(cotangents_[e.first + i], Tensor());
    if (!has_any(ct) && effect_of(e) == Effect::pure) return;  // a tap shows zeros too
    PlaceScope::Replace place(e.place);
    require_linear(e);
    env_.get(e.operands, operands_);
    std::vector<const Type*> types;
    for (ValueId v : e.operands) types.push_back(&program_.type(v));
    const Tensors into = e.primitive->transpose({*e.primitive, e.params}, ct, operands_,
                                                {types.data(), types.size()});
    for (std::size_t i = 0; i < e.operands.size(); ++i)
      if (linear_[at(e.operands[i])]) accumulate(e.operands[i], into[i]);
  }

  bool moves(const Equation& e) const {
    return std::ranges::any_of(e.operands, [&](ValueId v) { return linear_[at(v)]; });
  }

  void require_linear(const Equation& e) const {
    const auto linear =
        std::ranges::count_if(e.operands, [&](ValueId v) { return linear_[at(v)]; });
    check(e.primitive->transpose != nullptr,
          "reverse mode: {} is applied to a tangent, but is not linear or has no transpose; a rule "
          "given to custom_jvp must be linear in the tangents, and a linear call needs linear_call",
          described(e));
    check(e.primitive->linear != Linear::separately || linear == 1,
          "reverse mode: {} of two tangents is not linear in them", e.primitive->name);
    check(e.primitive->linear != Linear::first || (linear == 1 && linear_[at(e.operands[0])]),
          "reverse mode: {} is linear in its first operand only, and another depends on a tangent",
          e.primitive->name);
  }

  void accumulate(ValueId v, const Tensor& ct) {
    if (!ct.has_value()) return;
    Tensor& sum = cotangents_[v];
    if (sum.has_value())
      sum = add(sum, ct);
    else
      sum = ct;
  }

  const Program& program_;
  Env env_, cotangents_;
  std::vector<bool> linear_;
  Tensors operands_;
};

}  // namespace

Tensors transpose_of(const Program& program, TensorSpan known, TensorSpan cotangents) {
  return Backward(program, known)(cotangents);
}

Tensors packed_transpose(const Program& program, TensorSpan in, const std::vector<bool>& known,
                         const std::vector<bool>& arrives, std::vector<bool>& gets) {
  const TensorSpan inputs = in.first(count(known)), cotangents = in.subspan(inputs.size());
  const Tensors into = transpose_of(program, placed(known, inputs), placed(arrives, cotangents));
  gets = present(into);
  return kept(into);
}

Tensors self_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan) {
  return bind_n(op.primitive, op.params, ct);
}

}  // namespace postern::internal
