// while_loop, and fori_loop where the number of steps is not known while tracing.
#include <postern/control.h>
#include <postern/transforms.h>

#include "control/residual_store.h"
#include "control/scan.h"
#include "core/lists.h"
#include "lower/collectives.h"

namespace postern::internal {

Tensors bind_while(WhileParams p, const Closed& condition, const Closed& body,
                   TensorSpan condition_constants, TensorSpan body_constants, TensorSpan carry) {
  const Tensors operands =
      joined({condition.captures, condition_constants, body.captures, body_constants, carry});
  p.condition_constants = condition.captures.size() + condition_constants.size();
  p.body_constants = body.captures.size() + body_constants.size();
  p.condition = condition.program;
  p.body = body.program;
  const Primitive* primitive = &while_p;
  if (p.offloaded) primitive = &offloaded_while_p;
  return bind_n(*primitive, make_params(std::move(p)), operands);
}

namespace {

Types while_type(const Params* params, TypeSpan operands) {
  const auto& p = as<WhileParams>(*params);
  const std::size_t constants = p.condition_constants + p.body_constants;
  // A program takes `own` operands from the `first` on, its constants, then the carry.
  auto require = [&](const Program& program, std::size_t first, std::size_t own) {
    check(program.inputs.size() == own + operands.size() - constants,
          "while: a program has {} inputs for {} operands", program.inputs.size(), operands.size());
    for (std::size_t i = 0; i < program.inputs.size(); ++i) {
      const std::size_t operand = i < own ? first + i : constants + i - own;
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
  // Between the carry and the handles.
  out.insert(nth(out, p.carries()), count_type());
  return out;
}

ParamsPtr while_with_programs(const Params* params, std::span<const ProgramPtr> programs) {
  WhileParams p = as<WhileParams>(*params);
  p.condition = programs[0];
  p.body = programs[1];
  return make_params(std::move(p));
}

// Constants of the body may move; the condition sees values only. The results are those of the
// loop, in its order: carry, and of one that is offloaded the number of its steps and its handles,
// each with the tangent of its own store. Throws what tracing the body does.
Jvp while_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<WhileParams>();
  const WhileParts of(p, x), tangent(p, dx);
  const std::size_t carries = p.carries();
  const StepJvp step = step_jvp(scan_of_body(p), {of.body_constants, of.carry, {}},
                                {tangent.body_constants, tangent.carry, {}});
  const Closed condition = trace_inner(
      "condition", joined_types(of.condition_constants, step.carry), [&](TensorSpan in) {
        return internal::apply(*p.condition, in.first(p.condition_constants + carries));
      });
  WhileParams with_tangents = p;
  append(with_tangents.handle_ranks, where_marked(p.handle_ranks, step.ys_move));
  const Tensors all = bind_while(with_tangents, condition, step.body, of.condition_constants,
                                 step.constants, step.carry);

  // These are: the carry, its tangents, the number of steps, handles, handles of tangents.
  const std::span results(all);
  Tensors y = head(all, carries), dy = placed(step.carry_moves, results.subspan(carries));
  if (p.offloaded) {
    const auto offloaded = results.subspan(step.carry.size());
    append(y, offloaded.first(1 + p.ys()));
    dy.emplace_back();  // of the number of steps
    append(dy, placed(step.ys_move, offloaded.subspan(1 + p.ys())));
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
             watches = out.leaves_zeros() && (!p.bounded || !axes.empty());  // for a failed run
  const bool ahead = watches || effect_of(*p.condition) != Effect::pure;
  const std::vector<Ssa> operands = out.operands(e);
  const std::size_t constants = p.condition_constants + p.body_constants;
  const std::vector<Ssa> condition_constants = head(operands, p.condition_constants),
                         body_constants = between(operands, p.condition_constants, constants);
  std::vector<Ssa> carry = tail(operands, constants);
  auto inlined = [&](const ProgramPtr& program, std::vector<Ssa> in, std::span<const Ssa> values) {
    in.insert(in.end(), values.begin(), values.end());
    return out.inlined(*program, in);
  };
  // Writes the condition. Its taps may hand values on, of which `values` are the latest then.
  auto decide = [&](std::span<Ssa> values) {
    const Ssa condition = inlined(p.condition, condition_constants, values)[0];
    for (Ssa& v : values) v = out.latest(v);
    return condition;
  };
  // Gives the condition and that no failure spoilt it. An answer of the step's own calls is enough
  // where no devices meet; else they have to agree on one that is asked behind the condition.
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
  const auto goes_on_with = [&](std::span<const Ssa> arguments) {
    if (ordered) out.set_token(arguments.back());
    if (ahead) return arguments[at(e.results)];
    return inlined(p.condition, condition_constants, arguments.first(at(e.results)))[0];
  };
  const auto step = [&](std::span<const Ssa> arguments) {
    if (ordered) out.set_token(arguments.back());
    std::vector<Ssa> values;
    Ssa condition;
    const Ssa answer = out.asking([&] {
      values = inlined(p.body, body_constants, arguments.first(at(e.results)));
      if (ahead) condition = decide(values);
    });
    if (ahead) values.push_back(go_if(condition, answer));
    if (ordered) values.push_back(out.token());
    return values;
  };
  const std::vector<Ssa> results = out.while_loop(carry, types, goes_on_with, step);
  out.define_all(e, results);
  if (ordered) out.set_token(results.back());
}

bool goes_on(const WhileParams& p, const WhileParts& of, const Tensors& carry) {
  return evaluator.program(p.condition, joined({of.condition_constants, carry}))[0].item<bool>();
}

Tensors while_evaluate(const Op& op, TensorSpan x) {
  const auto& p = op.as<WhileParams>();
  const WhileParts of(p, x);
  Tensors carry(of.carry.begin(), of.carry.end());
  while (goes_on(p, of, carry))
    carry = evaluator.program(p.body, joined({of.body_constants, carry}));
  return carry;
}

Tensors offloaded_while_evaluate(const Op& op, TensorSpan x) {
  const auto& p = op.as<WhileParams>();
  const WhileParts of(p, x);
  Tensors carry(of.carry.begin(), of.carry.end());
  Tensors handles = no_handles(tail(p.body->output_types(), p.carries()), p.handle_ranks);
  std::int64_t steps = 0;
  for (; goes_on(p, of, carry); ++steps) {
    carry = evaluator.program(p.body, joined({of.body_constants, carry}));
    residual_access.write_now(steps, handles, std::span(carry).subspan(p.carries()), p.residuals);
    carry.resize(p.carries());
  }
  carry.push_back(step_number(steps));
  append(carry, handles);
  return carry;
}

/// Binds the loop as a loop of segments, loops of at most `every` steps, of which a derivative
/// keeps what each begins with and does the steps again. The first leaf of the carry says whether
/// to go on, so that the condition is evaluated once a step. Two stores at a time share the limit:
/// that of the kept carries, and that of the segment through which the derivative goes back.
Tensors in_segments(WhileParams p, const Closed& test, const Closed& step, const Tensors& init,
                    int every, const Place& place) {
  WhileParams of_segment = p;
  of_segment.residuals.of_segment = true;
  p.residuals.keep_every = every;
  auto run = [](const Closed& closed, TensorSpan carry) {
    return internal::apply(*closed.program, joined({closed.captures, carry}));
  };
  auto number = [](std::int64_t n) { return integer_of(n, DType::s32); };
  // A segment's carry: the number of its steps, whether to go on, the loop's carry.
  auto segment = [&](TensorSpan go_and_carry) {
    PlaceScope at_place(place);
    const Tensors carry = joined({Tensors{number(0)}, go_and_carry});
    const auto more = [&](TensorSpan in) { return logical_and(in[1], less(in[0], number(every))); };
    const auto body = [&](TensorSpan in) {
      const Tensors next = run(step, in.subspan(2)), done{add(in[0], number(1))};
      return joined({done, run(test, next), next});
    };
    return tail(trace_while(of_segment, carry, more, body), 1);
  };
  const Tensors carry = joined({run(test, init), init});
  const auto body = [&](TensorSpan in) {
    return detail::checkpoint(segment, {}, Tensors(in.begin(), in.end()), place);
  };
  return tail(trace_while(
                  p, carry, [](TensorSpan in) { return in[0]; }, body),
              1);
}

}  // namespace

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
  } while (settle_carry("while_loop", carry, step.program->output_types(), paths));
  const Closed test = trace_user_inner("condition", types_of(carry), condition);
  const Types gives = test.program->output_types();
  std::string given = fmt::format("{} leaves", gives.size());
  if (gives.size() == 1) given = to_string(gives[0]);
  check(gives.size() == 1 && gives[0].dtype == DType::pred && gives[0].dims.empty(),
        "while_loop: the condition must give pred[], got {}", given);
  WhileParams p;
  p.residuals = {static_cast<std::int64_t>(std::min<std::size_t>(options.memory, PTRDIFF_MAX)),
                 options.file};
  const bool may_run_again =
      effect_of(*test.program) == Effect::pure && effect_of(*step.program) == Effect::pure;
  if (options.keep_every > 1 && may_run_again)
    return in_segments(p, test, step, carry, options.keep_every, place);
  return bind_while(p, test, step, {}, {}, carry);
}

}  // namespace postern
