// while_loop, and fori_loop where the number of steps is not known while tracing.
#include <postern/control.h>

#include "control/control.h"
#include "lower/meet.h"
#include "transform/split.h"

namespace postern {

namespace {

std::span<const Tensor> carry_of(const WhileParams& p, std::span<const Tensor> x) {
  return x.subspan(p.condition_constants + p.body_constants);
}

Types while_type(const Params* params, TypeSpan operands) {
  const auto& p = as<WhileParams>(*params);
  const std::size_t constants = p.condition_constants + p.body_constants;
  auto require = [&](const Program& program, std::size_t first, std::size_t own) {
    check(program.inputs.size() == own + operands.size() - constants,
          "while: a program has {} inputs for {} operands", program.inputs.size(), operands.size());
    for (std::size_t i = 0; i < program.inputs.size(); ++i) {
      const Type &type = program.type(program.inputs[i]),
                 &got = operands[i < own ? first + i : constants + i - own];
      check(got.dtype == type.dtype && got.dims == type.dims,
            "while: an operand must be {}, got {}", to_string(type), to_string(got));
    }
  };
  require(*p.condition, 0, p.condition_constants);
  require(*p.body, p.condition_constants, p.body_constants);
  Types out = p.body->output_types();
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i].weak = out[i].weak && operands[constants + i].weak;
  return out;
}

ParamsPtr while_with_programs(const Params* params, std::span<const ProgramPtr> programs) {
  WhileParams p = as<WhileParams>(*params);
  p.condition = programs[0];
  p.body = programs[1];
  return make_params(std::move(p));
}

/// Programs that take (constants, carry), with what they captured before; `constants` of the old
/// ones come first in the new.
Tensors bind_while(const Closed& condition, const Closed& body,
                   std::span<const Tensor> condition_constants,
                   std::span<const Tensor> body_constants, std::span<const Tensor> carry) {
  Tensors operands = condition.captures;
  append(operands, condition_constants);
  const std::size_t first = operands.size();
  append(operands, body.captures);
  append(operands, body_constants);
  WhileParams p{condition.program, body.program, first, operands.size() - first};
  append(operands, carry);
  return bind_n(while_p, make_params(std::move(p)), operands);
}

Types joined_types(std::span<const Tensor> a, std::span<const Tensor> b) {
  Types out = types_of(a);
  append(out, types_of(b));
  return out;
}

// Constants of the body may move; the condition sees values only.
Jvp while_jvp(const Op& op, std::span<const Tensor> x, std::span<const Tensor> dx) {
  const auto& p = op.as<WhileParams>();
  const auto cc = x.first(p.condition_constants),
             bc = x.subspan(p.condition_constants, p.body_constants), carry = carry_of(p, x);
  const auto dbc = dx.subspan(p.condition_constants, p.body_constants), dcarry = carry_of(p, dx);
  const Tensors moving_constants = kept(dbc);
  std::vector<bool> moves = present(dcarry);
  Closed body;
  Tensors all_constants(bc.begin(), bc.end()), tangents;
  append(all_constants, moving_constants);
  for (bool again = true; again;) {
    tangents.clear();
    for (std::size_t i = 0; i < carry.size(); ++i)
      if (moves[i]) tangents.push_back(or_zeros_of(dcarry[i], carry[i].type()));
    Types types = types_of(all_constants);
    append(types, joined_types(carry, tangents));
    again = false;
    body = trace_inner("body", types, [&](std::span<const Tensor> in) {
      Tensors values(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(bc.size())), d(bc.size());
      std::size_t next = bc.size();
      for (std::size_t i = 0; i < bc.size(); ++i)
        if (dbc[i].has_value()) d[i] = in[next++];
      append(values, in.subspan(next, carry.size()));
      next += carry.size();
      for (std::size_t i = 0; i < carry.size(); ++i) d.push_back(moves[i] ? in[next++] : Tensor());
      auto [y, dy] = jvp_of(*p.body, values, d);
      for (std::size_t i = 0; i < carry.size(); ++i) {
        again = again || (dy[i].has_value() && !moves[i]);
        moves[i] = moves[i] || dy[i].has_value();
        if (moves[i]) y.push_back(or_zeros_of(dy[i], y[i].type()));
      }
      return std::move(y);
    });
  }
  Tensors both(carry.begin(), carry.end());
  append(both, tangents);
  Types types = types_of(cc);
  append(types, types_of(both));
  const Closed condition = trace_inner("condition", types, [&](std::span<const Tensor> in) {
    return postern::apply(*p.condition, in.first(cc.size() + carry.size()));
  });
  Tensors y = bind_while(condition, body, cc, all_constants, both);
  Tensors dy = placed(moves, std::span(y).subspan(carry.size()));
  y.resize(carry.size());
  return {std::move(y), std::move(dy)};
}

constexpr const char* no_reverse =
    "while_loop has no derivative in reverse mode, because the number of its steps is not known "
    "while tracing: use scan, fori_loop with a "
    "known number of steps, "
    "forward mode (jvp, jacfwd), or custom_vjp";

Tensors while_transpose(const Op&, std::span<const Tensor>, std::span<const Tensor>, TypeSpan) {
  throw_type_error(no_reverse);
}

/// The values in a loop of their own, then the whole loop once more for each use of the linear map.
Primitive::SplitResult while_split(const Op& op, std::span<const Tensor> x,
                                   const std::vector<bool>&) {
  const auto& p = op.as<WhileParams>();
  check(effect_of(*p.condition) == Effect::pure && effect_of(*p.body) == Effect::pure,
        "{}; here it cannot be linearized either, for its effects would be repeated", no_reverse);
  const auto cc = x.first(p.condition_constants),
             bc = x.subspan(p.condition_constants, p.body_constants), carry = carry_of(p, x);
  std::vector<bool> unknown = present(carry);
  unknown.flip();
  Halves halves;
  for (bool again = true; again;) {
    std::vector<bool> inputs = present(bc);
    inputs.flip();
    inputs.insert(inputs.end(), unknown.begin(), unknown.end());
    halves = split(*p.body, inputs, unknown);
    again = halves.unknown_outputs != unknown;
    unknown = halves.unknown_outputs;
  }
  Primitive::SplitResult out;
  out.known.resize(carry.size());
  std::vector<bool> condition_unknown = present(cc);
  condition_unknown.flip();
  condition_unknown.insert(condition_unknown.end(), unknown.begin(), unknown.end());
  const Halves condition = split(*p.condition, condition_unknown);
  if (!condition.unknown_outputs[0] && count(unknown) < carry.size()) {
    Program body = *halves.known;
    body.outputs.resize(body.outputs.size() - halves.residuals);
    const Closed known_body{std::make_shared<const Program>(std::move(body)), {}},
        known_condition{condition.known, {}};
    const Tensors y = bind_while(known_condition, known_body, kept(cc), kept(bc),
                                 where_marked(carry, unknown, false));
    for (std::size_t i = 0, next = 0; i < carry.size(); ++i)
      if (!unknown[i]) out.known[i] = y[next++];
  }
  out.primitive = &while_p;
  out.params = op.params;
  for (std::size_t i = 0; i < x.size(); ++i)
    out.operands.push_back({x[i], x[i].has_value() ? -1 : static_cast<int>(i)});
  for (std::size_t i = 0; i < carry.size(); ++i)
    out.results.push_back(out.known[i].has_value() ? -1 : static_cast<int>(i));
  return out;
}

// --- batching
// -------------------------------------------------------------------------------------------------

void refuse_ordered(const Program& condition) {
  for (const Equation& e : condition.equations) {
    if (e.primitive->site) {
      const SiteSpec& s = *e.primitive->site(e.params.get());
      PlaceScope::Replace at(s.place);
      check(s.kind == SiteSpec::Kind::tap || s.effect != Effect::ordered,
            "vmap: call '{}' with an ordered effect decides when a while_loop ends, and under vmap "
            "each element ends at its own time: no "
            "order would be right. Make "
            "the call unordered, or batch inside of the loop",
            s.name);
    }
    if (e.params)
      for (const ProgramPtr& p : programs_of(*e.params)) refuse_ordered(*p);
  }
}

/// A while_loop under vmap: its parts with their axes, and the trace of one step.
///
/// A part of the carry has a batch axis from the start if any step gives it one, so the body is
/// traced until no more of them does. If the condition then says one thing for the whole batch, the
/// loop stays a loop of the batched body. If it says another for each element, it goes on while any
/// element does, and those that are done keep their carry and call nothing (masked).
class BatchedWhile {
 public:
  BatchedWhile(const WhileParams& p, std::span<const Tensor> x, std::span<const int> axes,
               std::int64_t size, const Tensor& mask)
      : p_(p),
        cc_(x.first(p.condition_constants)),
        bc_(x.subspan(p.condition_constants, p.body_constants)),
        cc_axes_(axes.first(cc_.size())),
        bc_axes_(axes.subspan(cc_.size(), bc_.size())),
        size_(size),
        mask_(mask) {
    for (std::size_t i = cc_.size() + bc_.size(); i < x.size(); ++i) {
      carry_.push_back(x[i]);
      mapped_.push_back(axes[i] >= 0);
      if (axes[i] >= 0) carry_.back() = move_batch(x[i], axes[i], 0, size);
    }
  }

  Batched run() {
    const Closed body = settle();
    bool masks = false;
    const Closed test = trace_inner("condition", with_carry(cc_), [&](std::span<const Tensor> in) {
      const auto [go, from] = batch_condition(in, mask_);
      masks = from >= 0;
      return Tensors{mask_.has_value() && !masks ? logical_and(go, any(mask_)) : go};
    });
    if (masks) return masked();
    Tensors y = bind_while(test, body, cc_, bc_, carry_);
    std::vector<int> out;
    for (const bool m : mapped_) out.push_back(m ? 0 : -1);
    return {std::move(y), std::move(out)};
  }

 private:
  std::vector<int> axes_with_carry(std::span<const int> constants) const {
    std::vector<int> out(constants.begin(), constants.end());
    for (const bool m : mapped_) out.push_back(m ? 0 : -1);
    return out;
  }
  Types with_carry(std::span<const Tensor> constants) const {
    return joined_types(constants, carry_);
  }

  void map(std::size_t i) {
    if (!mapped_[i]) carry_[i] = move_batch(carry_[i], -1, 0, size_);
    mapped_[i] = true;
  }

  /// Finds which parts of the carry get a batch axis on the way; the body for them.
  Closed settle() {
    Closed body;
    for (bool again = true; again;) {
      std::vector<bool> gets;
      body = trace_inner("body", with_carry(bc_), [&](std::span<const Tensor> in) {
        auto [y, from] = batched_step(in, mask_);
        for (const int a : from) gets.push_back(a >= 0);
        return std::move(y);
      });
      again = false;
      for (std::size_t i = 0; i < gets.size(); ++i)
        if (gets[i] && !mapped_[i]) {
          map(i);
          again = true;
        }
    }
    return body;
  }

  std::pair<Tensor, int> batch_condition(std::span<const Tensor> in, const Tensor& mask) const {
    auto [y, from] = batch_of(*p_.condition, in, axes_with_carry(cc_axes_), size_,
                              calls_back(*p_.condition) ? mask : Tensor());
    return {y[0], from[0]};
  }

  /// One step: (constants, carry) -> carry and where its batch axes came from; calls for the
  /// elements of `alive`.
  std::pair<Tensors, std::vector<int>> batched_step(std::span<const Tensor> in,
                                                    const Tensor& alive) const {
    auto [y, from] = batch_of(*p_.body, in, axes_with_carry(bc_axes_), size_,
                              calls_back(*p_.body) ? alive : Tensor());
    for (std::size_t i = 0; i < y.size(); ++i)
      if (mapped_[i]) y[i] = move_batch(y[i], from[i], 0, size_);
    return {std::move(y), std::move(from)};
  }

  Tensors joined(std::span<const Tensor> constants, std::span<const Tensor> carry) const {
    Tensors out(constants.begin(), constants.end());
    append(out, carry);
    return out;
  }

  /// Each element has its own end: the carry says first which are alive, and only those move on.
  Batched masked() {
    refuse_ordered(*p_.condition);
    for (std::size_t i = 0; i < carry_.size(); ++i) map(i);
    Tensor alive = batch_condition(joined(cc_, carry_), mask_).first;
    if (mask_.has_value()) alive = logical_and(alive, mask_);
    Tensors carry{alive};
    append(carry, carry_);
    const Closed test = trace_inner("condition", types_of(carry),
                                    [](std::span<const Tensor> in) { return Tensors{any(in[0])}; });
    const Tensors constants = joined(cc_, bc_);
    const Closed body =
        trace_inner("body", joined_types(constants, carry), [&](std::span<const Tensor> in) {
          const auto cc = in.first(cc_.size()), bc = in.subspan(cc_.size(), bc_.size()),
                     old = in.subspan(constants.size() + 1);
          const Tensor now = in[constants.size()];
          Tensors next = batched_step(joined(bc, old), now).first;
          for (std::size_t i = 0; i < next.size(); ++i)
            next[i] = select_elements(now, next[i], old[i]);
          next.insert(next.begin(), logical_and(now, batch_condition(joined(cc, next), now).first));
          return next;
        });
    Tensors y = bind_while(test, body, {}, constants, carry);
    y.erase(y.begin());
    const std::size_t results = y.size();
    return {std::move(y), std::vector<int>(results, 0)};
  }

  const WhileParams& p_;
  std::span<const Tensor> cc_, bc_;
  std::span<const int> cc_axes_, bc_axes_;
  std::int64_t size_;
  Tensor mask_;
  Tensors carry_;
  std::vector<bool> mapped_;
};

Batched while_batch(const Op& op, std::span<const Tensor> x, std::span<const int> axes,
                    std::int64_t size, const Tensor& mask) {
  return BatchedWhile(op.as<WhileParams>(), x, axes, size, mask).run();
}

// --- running
// -------------------------------------------------------------------------------------------------

// Constants are seen from inside the regions; only the carry goes round. A condition with ordered
// effects takes the token and gives none: the loop itself keeps its steps in order. XLA drops what
// a condition does besides deciding when it knows the number of steps beforehand. So a condition
// with effects is evaluated before the loop and at the end of the body, and the carry says whether
// to go on. The same where a failure leaves zeros: a loop might never end, and devices that meet in
// it might go different ways, so those that meet agree that no failure has spoilt the decision.
void while_lower(Lowering& out, const Equation& e) {
  const auto& p = as<WhileParams>(*e.params);
  const bool ordered = effect_of(e) == Effect::ordered, watches = out.leaves_zeros();
  const bool ahead = watches || effect_of(*p.condition) != Effect::pure;
  const std::vector<std::string> axes = axes_met(out, programs_of(*e.params));
  std::vector<Ssa> cc, bc, carry, results;
  for (std::size_t i = 0; i < e.operands.size(); ++i) {
    const Ssa x = out.operand(e, i);
    if (i < p.condition_constants) {
      cc.push_back(x);
    } else if (i < p.condition_constants + p.body_constants) {
      bc.push_back(x);
    } else {
      carry.push_back(x);
    }
  }
  auto inlined = [&](const ProgramPtr& program, std::vector<Ssa> in, std::span<const Ssa> values) {
    in.insert(in.end(), values.begin(), values.end());
    return out.inlined(*program, in);
  };
  /// The condition for these values, after which they may have been handed on.
  auto decide = [&](std::span<Ssa> values) {
    const Ssa condition = inlined(p.condition, cc, values)[0];
    for (Ssa& v : values) v = out.latest(v);
    return condition;
  };
  auto go_if = [&](Ssa condition, Ssa told) {
    if (!watches) return condition;
    const Type flag{DType::pred, {}};
    if (told.id < 0 || !axes.empty()) told = goes_on(out, {condition, "tensor<i1>"});
    return out.op("and", {condition, everywhere(out, told, axes)}, {&flag, &flag}, flag);
  };
  std::vector<std::string> types;
  for (int i = 0; i < e.results; ++i) types.push_back(Lowering::type(out.result_type(e, i)));
  if (ahead) {
    carry.push_back(go_if(decide(carry), {}));
    types.emplace_back("tensor<i1>");
  }
  if (ordered) {
    carry.push_back(out.token());
    types.push_back(Lowering::token_type);
  }
  for (std::size_t i = 0; i < types.size(); ++i) results.push_back(out.fresh());
  out.write("    {}{}\"stablehlo.while\"({}) (", ssa_list(results), results.empty() ? "" : " = ",
            ssa_list(carry));
  out.region(types, [&](std::span<const Ssa> arguments) {
    if (ordered) out.set_token(arguments.back());
    const Ssa go = ahead ? arguments[at(e.results)]
                         : inlined(p.condition, cc, arguments.first(at(e.results)))[0];
    return std::vector<Lowering::Typed>{{go, "tensor<i1>"}};
  });
  out.write(", ");
  out.region(types, [&](std::span<const Ssa> arguments) {
    if (ordered) out.set_token(arguments.back());
    std::vector<Ssa> values;
    Ssa condition;
    const Ssa told = out.asking([&] {
      values = inlined(p.body, bc, arguments.first(at(e.results)));
      if (ahead) condition = decide(values);
    });
    if (ahead) values.push_back(go_if(condition, told));
    if (ordered) values.push_back(out.token());
    std::vector<Lowering::Typed> typed;
    for (std::size_t i = 0; i < values.size(); ++i) typed.push_back({values[i], types[i]});
    return typed;
  });
  out.write(") : ({0}) -> ({0})\n", fmt::join(types, ", "));
  for (int i = 0; i < e.results; ++i) out.define(e, i, results[at(i)]);
  if (ordered) out.set_token(results.back());
}

Tensors while_evaluate(const Op& op, std::span<const Tensor> x) {
  const auto& p = op.as<WhileParams>();
  const auto cc = x.first(p.condition_constants),
             bc = x.subspan(p.condition_constants, p.body_constants);
  Tensors carry(carry_of(p, x).begin(), carry_of(p, x).end());
  auto with = [&](std::span<const Tensor> constants) {
    Tensors in(constants.begin(), constants.end());
    append(in, carry);
    return in;
  };
  while (evaluate_program(p.condition, with(cc))[0].item<bool>())
    carry = evaluate_program(p.body, with(bc));
  return carry;
}

}  // namespace

constexpr Primitive while_p{.name = "while",
                            .type = while_type,
                            .jvp = while_jvp,
                            .transpose = while_transpose,
                            .linear = Linear::jointly,
                            .split = while_split,
                            .with_programs = while_with_programs,
                            .batch = while_batch,
                            .lower = while_lower,
                            .evaluate = while_evaluate};

detail::Tensors detail::while_loop(const TensorFunction& condition, const TensorFunction& body,
                                   const Tensors& init, const std::vector<std::string>& paths,
                                   const Place& place) {
  PlaceScope at_place(place);
  Tensors carry = init;
  Closed step;
  do {
    step = trace_user_inner("body", types_of(carry), body);
    if (settle_carry("while_loop", carry, step.program->output_types(), paths))
      step.program = nullptr;
  } while (!step.program);
  const Closed test = trace_user_inner("condition", types_of(carry), condition);
  const Types gives = test.program->output_types();
  check(gives.size() == 1 && gives[0].dtype == DType::pred && gives[0].dims.empty(),
        "while_loop: the condition must give pred[], got {}",
        gives.size() == 1 ? to_string(gives[0]) : fmt::format("{} leaves", gives.size()));
  return bind_while(test, step, {}, {}, carry);
}

}  // namespace postern
