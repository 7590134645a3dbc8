// while_loop, and fori_loop where the number of steps is not known while tracing.
#include <postern/control.h>
#include <postern/transforms.h>

#include "control/residual_store.h"
#include "control/scan.h"
#include "core/lists.h"
#include "lower/collectives.h"

namespace postern::internal {

namespace {

TensorSpan carry_of(const WhileParams& p, TensorSpan x) {
  return x.subspan(p.condition_constants + p.body_constants);
}

Types while_type(const Params* params, TypeSpan operands) {
  const auto& p = as<WhileParams>(*params);
  const std::size_t constants = p.condition_constants + p.body_constants;
  auto require = [&](const Program& program, std::size_t first, std::size_t own) {
    check(program.inputs.size() == own + operands.size() - constants,
          "while: a program has {} inputs for {} operands", program.inputs.size(), operands.size());
    for (std::size_t i = 0; i < program.inputs.size(); ++i) {
      std::size_t operand = first + i;
      if (i >= own) operand = constants + i - own;
      const Type &type = program.type(program.inputs[i]), &got = operands[operand];
      check(alike(got, type), "while: an operand must be {}, got {}", to_string(type),
            to_string(got));
    }
  };
  require(*p.condition, 0, p.condition_constants);
  require(*p.body, p.condition_constants, p.body_constants);
  Types out = p.body->output_types();
  for (std::size_t i = 0; i < p.carries(); ++i)
    out[i].weak = out[i].weak && operands[constants + i].weak;
  if (!p.offloaded) return out;
  for (std::size_t i = 0; i < p.ys(); ++i)
    out[p.carries() + i] = handle_type(out[p.carries() + i], p.handle_ranks[i]);
  out.insert(nth(out, p.carries()), count_type());
  return out;
}

ParamsPtr while_with_programs(const Params* params, std::span<const ProgramPtr> programs) {
  WhileParams p = as<WhileParams>(*params);
  p.condition = programs[0];
  p.body = programs[1];
  return make_params(std::move(p));
}

}  // namespace

Tensors bind_while(WhileParams p, const Closed& condition, const Closed& body,
                   TensorSpan condition_constants, TensorSpan body_constants, TensorSpan carry) {
  Tensors operands = condition.captures;
  append(operands, condition_constants);
  p.condition_constants = operands.size();
  append(operands, body.captures);
  append(operands, body_constants);
  p.body_constants = operands.size() - p.condition_constants;
  p.condition = condition.program;
  p.body = body.program;
  append(operands, carry);
  const Primitive* primitive = &while_p;
  if (p.offloaded) primitive = &offloaded_while_p;
  return bind_n(*primitive, make_params(std::move(p)), operands);
}

namespace {

// Constants of the body may move; the condition sees values only. A part of the carry that starts
// without a tangent may get one in some step, so the body is traced until no step adds one.
// Afterwards the results are those of the loop, in its order: carry, and of one that is offloaded
// the number of its steps and its handles, each with the tangent of its own store. Throws what
// tracing the body does.
Jvp while_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<WhileParams>();
  const auto cc = x.first(p.condition_constants),
             bc = x.subspan(p.condition_constants, p.body_constants), carry = carry_of(p, x);
  const auto dbc = dx.subspan(p.condition_constants, p.body_constants), dcarry = carry_of(p, dx);
  const Tensors moving_constants = kept(dbc);
  std::vector<bool> moves = present(dcarry), y_moves;
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
    body = trace_inner("body", types, [&](TensorSpan in) {
      Tensors values(in.begin(), nth(in, bc.size())), d(bc.size());
      std::size_t next = bc.size();
      for (std::size_t i = 0; i < bc.size(); ++i)
        if (dbc[i].has_value()) d[i] = in[next++];
      append(values, in.subspan(next, carry.size()));
      next += carry.size();
      for (std::size_t i = 0; i < carry.size(); ++i) {
        d.emplace_back();
        if (moves[i]) d.back() = in[next++];
      }
      const auto [y, dy] = jvp_of(*p.body, values, d);
      Tensors out = head(y, carry.size());
      for (std::size_t i = 0; i < carry.size(); ++i) {
        again = again || (dy[i].has_value() && !moves[i]);
        moves[i] = moves[i] || dy[i].has_value();
        if (moves[i]) out.push_back(or_zeros_of(dy[i], y[i].type()));
      }
      const auto dys = std::span(dy).subspan(carry.size());
      y_moves = present(dys);
      append(out, std::span(y).subspan(carry.size()));
      append(out, kept(dys));
      return out;
    });
  }
  Tensors both(carry.begin(), carry.end());
  append(both, tangents);
  Types types = types_of(cc);
  append(types, types_of(both));
  const Closed condition = trace_inner("condition", types, [&](TensorSpan in) {
    return internal::apply(*p.condition, in.first(cc.size() + carry.size()));
  });
  WhileParams q = p;
  for (std::size_t i = 0; i < p.ys(); ++i)
    if (y_moves[i]) q.handle_ranks.push_back(p.handle_ranks[i]);
  const Tensors all = bind_while(q, condition, body, cc, all_constants, both);
  // carry, its tangents, number of steps, handles, handles of tangents
  const std::span results(all);
  Tensors y(all.begin(), nth(all, carry.size())), dy = placed(moves, results.subspan(carry.size()));
  if (p.offloaded) {
    const auto offloaded = results.subspan(carry.size() + count(moves));
    append(y, offloaded.first(1 + p.ys()));
    dy.emplace_back();
    append(dy, placed(y_moves, offloaded.subspan(1 + p.ys())));
  }
  return {std::move(y), std::move(dy)};
}

Tensors while_transpose(const Op&, TensorSpan, TensorSpan, TypeSpan) {
  throw_type_error(
      "while_loop cannot be transposed by itself: use scan, or fori_loop with a known number of "
      "steps, in what is linear");
}

// --- running ---

// Constants are seen from inside the regions; only the carry goes round. A condition with ordered
// effects takes the token and gives none: the loop itself keeps its steps in order. XLA drops what
// a condition does besides deciding when it knows the number of steps beforehand. So a condition
// with effects is evaluated before the loop and at the end of the body, and the carry says whether
// to go on. The same where a failure leaves zeros: a loop might never end, and devices that meet in
// it might go different ways, so those that meet agree that no failure has spoilt the decision.
void while_lower(Lowering& out, const Equation& e) {
  const auto& p = as<WhileParams>(*e.params);
  const std::vector<std::string> axes = axes_met(out, programs_of(*e.params));
  const bool ordered = effect_of(e) == Effect::ordered,
             watches = out.leaves_zeros() && (!p.bounded || !axes.empty());
  const bool ahead = watches || effect_of(*p.condition) != Effect::pure;
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
  auto go_if = [&](Ssa condition, Ssa answer) {
    if (!watches) return condition;
    const Type flag{DType::pred, {}};
    if (answer.id < 0 || !axes.empty()) answer = ask_run(out, {condition, "tensor<i1>"});
    return out.op("and", {condition, everywhere(out, answer, axes)}, {&flag, &flag}, flag);
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
  out.write("    {}\"stablehlo.while\"({}) (", Lowering::assigned(results), Lowering::list(carry));
  out.region(types, [&](std::span<const Ssa> arguments) {
    if (ordered) out.set_token(arguments.back());
    Ssa go;
    if (ahead)
      go = arguments[at(e.results)];
    else
      go = inlined(p.condition, cc, arguments.first(at(e.results)))[0];
    return std::vector<Lowering::Typed>{{go, "tensor<i1>"}};
  });
  out.write(", ");
  out.region(types, [&](std::span<const Ssa> arguments) {
    if (ordered) out.set_token(arguments.back());
    std::vector<Ssa> values;
    Ssa condition;
    const Ssa answer = out.asking([&] {
      values = inlined(p.body, bc, arguments.first(at(e.results)));
      if (ahead) condition = decide(values);
    });
    if (ahead) values.push_back(go_if(condition, answer));
    if (ordered) values.push_back(out.token());
    std::vector<Lowering::Typed> typed;
    for (std::size_t i = 0; i < values.size(); ++i) typed.push_back({values[i], types[i]});
    return typed;
  });
  out.write(") : ({0}) -> ({0})\n", fmt::join(types, ", "));
  out.define_all(e, results);
  if (ordered) out.set_token(results.back());
}

Tensors while_evaluate(const Op& op, TensorSpan x) {
  const auto& p = op.as<WhileParams>();
  const auto cc = x.first(p.condition_constants),
             bc = x.subspan(p.condition_constants, p.body_constants);
  Tensors carry(carry_of(p, x).begin(), carry_of(p, x).end());
  auto with = [&](TensorSpan constants) {
    Tensors in(constants.begin(), constants.end());
    append(in, carry);
    return in;
  };
  while (evaluator.program(p.condition, with(cc))[0].item<bool>())
    carry = evaluator.program(p.body, with(bc));
  return carry;
}

}  // namespace

static Tensors offloaded_while_evaluate(const Op& op, TensorSpan x) {
  const auto& p = op.as<WhileParams>();
  const std::size_t constants = p.condition_constants + p.body_constants;
  Tensors carry(carry_of(p, x).begin(), carry_of(p, x).end()), in;
  const Types all = p.body->output_types();
  Tensors handles = no_handles(tail(all, p.carries()), p.handle_ranks);
  std::int64_t steps = 0;
  for (;; ++steps) {
    in = head(x, p.condition_constants);
    append(in, carry);
    if (!evaluator.program(p.condition, in)[0].item<bool>()) break;
    in = between(x, p.condition_constants, constants);
    append(in, carry);
    carry = evaluator.program(p.body, in);
    residual_access.write_now(steps, handles, std::span(carry).subspan(p.carries()), p.residuals);
    carry.resize(p.carries());
  }
  carry.push_back(step_number(steps));
  append(carry, handles);
  return carry;
}

constexpr Primitive while_p{.name = "while",
                            .type = while_type,
                            .jvp = while_jvp,
                            .transpose = while_transpose,
                            .linear = Linear::jointly,
                            .split = while_split,
                            .with_programs = while_with_programs,
                            .control = ControlFlow::while_loop,
                            .batch = while_batch,
                            .lower = while_lower,
                            .evaluate = while_evaluate};

constexpr Primitive offloaded_while_p = offloaded(while_p, offloaded_while_evaluate);

}  // namespace postern::internal

namespace postern {
using namespace internal;

namespace {

/// The loop in segments of `every` steps, each of which is done again where the derivative needs
/// it. The carry says first whether to go on, so that the condition is evaluated once a step. Two
/// stores at a time share the limit: that of the kept carries, and of the segment taken back.
Tensors in_segments(WhileParams p, const Closed& test, const Closed& step, const Tensors& init,
                    int every, const Place& place) {
  WhileParams of_segment = p;
  of_segment.residuals.of_segment = true;
  p.residuals.keep_every = every;
  auto run = [](const Closed& closed, TensorSpan carry) {
    Tensors in = closed.captures;
    append(in, carry);
    return internal::apply(*closed.program, in);
  };
  const Type counter{DType::s32, {}};
  auto number = [&](std::int64_t n) {
    return full_of({Number::Kind::integer, n, static_cast<double>(n), 0}, counter);
  };
  auto segment = [&](TensorSpan go_and_carry) {
    PlaceScope at_place(place);
    Tensors carry{number(0)};
    append(carry, go_and_carry);
    const Closed more = trace_inner("condition", types_of(carry), [&](TensorSpan in) {
      return Tensors{logical_and(in[1], less(in[0], number(every)))};
    });
    const Closed body = trace_inner("body", types_of(carry), [&](TensorSpan in) {
      const Tensors next = run(step, in.subspan(2));
      Tensors out{add(in[0], number(1)), run(test, next)[0]};
      append(out, next);
      return out;
    });
    Tensors y = bind_while(of_segment, more, body, {}, {}, carry);
    y.erase(y.begin());
    return y;
  };
  Tensors carry = run(test, init);
  append(carry, init);
  const Closed more =
      trace_inner("condition", types_of(carry), [](TensorSpan in) { return Tensors{in[0]}; });
  const Closed body = trace_inner("body", types_of(carry), [&](TensorSpan in) {
    return detail::checkpoint(segment, {}, Tensors(in.begin(), in.end()), place);
  });
  Tensors y = bind_while(p, more, body, {}, {}, carry);
  y.erase(y.begin());
  return y;
}

}  // namespace

detail::Tensors detail::while_loop(const TensorFunction& condition, const TensorFunction& body,
                                   const Tensors& init, const std::vector<std::string>& paths,
                                   const WhileOptions& options, const Place& place) {
  PlaceScope at_place(place);
  check(options.keep_every >= 1, "while_loop: keep_every must be 1 or more, got {}",
        options.keep_every);
  check(options.file.empty() || options.memory > 0,
        "while_loop: a file is for what is over the limit, and there is no limit; give memory");
  Tensors carry = init;
  Closed step;
  do {
    step = trace_user_inner("body", types_of(carry), body);
    if (settle_carry("while_loop", carry, step.program->output_types(), paths))
      step.program = nullptr;
  } while (!step.program);
  const Closed test = trace_user_inner("condition", types_of(carry), condition);
  const Types gives = test.program->output_types();
  std::string given = fmt::format("{} leaves", gives.size());
  if (gives.size() == 1) given = to_string(gives[0]);
  check(gives.size() == 1 && gives[0].dtype == DType::pred && gives[0].dims.empty(),
        "while_loop: the condition must give pred[], got {}", given);
  WhileParams p;
  p.residuals = {static_cast<std::int64_t>(options.memory), options.file};
  const bool again =
      effect_of(*test.program) == Effect::pure && effect_of(*step.program) == Effect::pure;
  if (options.keep_every > 1 && again)
    return in_segments(p, test, step, carry, options.keep_every, place);
  return bind_while(p, test, step, {}, {}, carry);
}

}  // namespace postern
