// checkpoint: a function whose known half is computed again where a derivative needs it. Split
// keeps only the results of calls with an effect and what the user's policy names; the rest of the
// known half moves into the equation of the unknown half.
#include <postern/transforms.h>

#include "analysis/rewrite.h"
#include "core/lists.h"
#include "custom/custom.h"
#include "transform/simplify.h"
#include "transform/split.h"

namespace postern {
using namespace internal;

namespace {

struct CheckpointParams {
  static constexpr const char* what = "checkpoint";
  ProgramPtr body;
  std::shared_ptr<const RecomputeOptions> options;
  bool again =
      false;  // holds computations that were done before: XLA must not merge them with those
  auto fields(Fields sink) const {
    return sink.field("body", body).field("again", again).identity("options", options.get());
  }
};

ParamsPtr params_of(const CheckpointParams& p, ProgramPtr body, bool again) {
  return make_params(CheckpointParams{std::move(body), p.options, again || p.again});
}

Tensors bind_body(const Op& op, const Closed& body, TensorSpan x, bool again) {
  return bind_n(op.primitive, params_of(op.as<CheckpointParams>(), body.program, again),
                joined({body.captures, x}));
}

Jvp checkpoint_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  return body_jvp("checkpoint", op, *op.as<CheckpointParams>().body, x, dx, bind_body);
}
Tensors checkpoint_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan) {
  return body_transpose("checkpoint", op, *op.as<CheckpointParams>().body, ct, x, bind_body);
}

// --- split ---

bool has_effectful_call(const Equation& equation) {
  return any_equation(equation, [](const Equation& e) {
    const SiteSpec* s = site_of(e);
    return s && !s->is_tap() && s->effect != Effect::pure;
  });
}

/// Asks the user's policy whether to keep the equation's results; of a call or tap it sees the
/// name.
bool saved_by(const RecomputeOptions& options, const Program& program, const Equation& e) {
  if (!options.save) return false;
  std::vector<Type> results(program.types.begin() + e.first,
                            program.types.begin() + e.first + e.results);
  CheckpointStep step{e.primitive->name, "", results};
  if (const SiteSpec* site = site_of(e)) {
    step.name = site->name;
    if (site->is_tap()) step.operation = "tap";
  }
  return options.save(step);
}

/// Returns the equation's parameters with all taps, in its programs too, marked as recomputed.
ParamsPtr marked(const Equation& e) {
  if (const SiteSpec* const site = site_of(e); site && site->is_tap()) {
    SiteSpec s = *site;
    s.tap.recomputed = true;
    return params_of_own(std::move(s));
  }
  if (effect_of(e) == Effect::pure) return e.params;
  return with_each(e, [](const ProgramPtr& p) {
    return rewrite(*p, [](Program& out, Equation inner) {
      inner.params = marked(inner);
      out.equations.push_back(std::move(inner));
    });
  });
}

/// Which equations of the known half are not done again.
std::vector<bool> saved_equations(const Program& known, const RecomputeOptions& options) {
  std::vector<bool> saved;
  for (const Equation& e : known.equations)
    saved.push_back(has_effectful_call(e) || saved_by(options, known, e));
  return saved;
}

/// Writes the known half for its first `outputs` and, behind them, the saved equations' results.
Tensors run_known(const Program& known, const std::vector<bool>& saved, TensorSpan x,
                  std::size_t outputs) {
  Program first = known;
  first.outputs.resize(outputs);
  for (std::size_t i = 0; i < saved.size(); ++i)
    for (int r = 0; saved[i] && r < known.equations[i].results; ++r)
      first.outputs.push_back(known.equations[i].first + r);
  return internal::apply(*simplify(first), x);
}

/// Writes the known half again for its residuals, which come behind its first `outputs`, without
/// the saved equations. `in`: its inputs, then the saved results.
Tensors run_again(const Program& known, const std::vector<bool>& saved, TensorSpan in,
                  std::size_t outputs) {
  Env env(known);
  env.set(known.inputs, in.first(known.inputs.size()));
  std::size_t next = known.inputs.size();
  for (std::size_t i = 0; i < known.equations.size(); ++i) {
    const Equation& e = known.equations[i];
    PlaceScope::Replace place(e.place);
    if (saved[i])
      for (int r = 0; r < e.results; ++r) env[e.first + r] = in[next++];
    else
      env.set(e, bind_n(*e.primitive, marked(e), env.get(e.operands)));
  }
  Tensors out = env.get(known.outputs);
  out.erase(out.begin(), nth(out, outputs));
  return out;
}

Primitive::SplitResult checkpoint_split(const Op& op, TensorSpan x, const std::vector<bool>&) {
  const auto& p = op.as<CheckpointParams>();
  const std::vector<bool> unknown = missing(x);
  const Halves halves = split(*p.body, unknown);
  const std::size_t outputs = halves.known->outputs.size() - halves.residuals;
  const std::vector<bool> saved = saved_equations(*halves.known, *p.options);

  Tensors again = kept(x);
  Tensors known = run_known(*halves.known, saved, again, outputs);
  append(again, std::span(known).subspan(outputs));
  Types types = types_of(again);
  append(types, where_marked(p.body->input_types(), unknown));
  const Closed rest = trace_inner("checkpoint", types, [&](TensorSpan in) {
    Tensors inputs = run_again(*halves.known, saved, in.first(again.size()), outputs);
    append(inputs, in.subspan(again.size()));
    return internal::apply(*halves.unknown, inputs);
  });
  check(rest.captures.empty(), "checkpoint: a rule uses a tensor from outside of the program");

  return split_result(op.primitive, params_of(p, rest.program, true), halves.unknown_outputs, known,
                      again, x);
}

// --- the other rules ---

Batched checkpoint_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                         const Tensor& mask) {
  return body_batch("checkpoint", op, *op.as<CheckpointParams>().body, x, axes, size, mask,
                    bind_body);
}

/// Writes the body, behind a barrier if it computes again what was computed before: XLA would merge
/// the two, and keep the results all the same.
void checkpoint_lower(Lowering& out, const Equation& e) {
  const auto& p = as<CheckpointParams>(*e.params);
  if (!p.again || e.operands.empty()) return body_lower<CheckpointParams>(out, e);
  const std::vector<Ssa> inputs = out.fresh(e.operands.size()), operands = out.operands(e);
  std::vector<std::string> types;
  for (std::size_t i = 0; i < e.operands.size(); ++i)
    types.push_back(Lowering::type(out.operand_type(e, i)));
  const std::string all_types = fmt::format("{}", fmt::join(types, ", "));
  out.write("    {}\"stablehlo.optimization_barrier\"({}) : ({}) -> ({})\n",
            Lowering::assigned(inputs), Lowering::list(operands), all_types, all_types);
  out.define_all(e, out.inlined(*p.body, inputs));
}

constexpr Primitive checkpoint_p{.name = "checkpoint",
                                 .type = body_type<CheckpointParams>,
                                 .jvp = checkpoint_jvp,
                                 .transpose = checkpoint_transpose,
                                 .linear = Linear::jointly,
                                 .split = checkpoint_split,
                                 .with_programs = body_with_programs<CheckpointParams>,
                                 .transparent = true,
                                 .batch = checkpoint_batch,
                                 .lower = checkpoint_lower,
                                 .evaluate = body_evaluate<CheckpointParams>};

}  // namespace

detail::Tensors detail::checkpoint(const TensorFunction& f, const RecomputeOptions& options,
                                   const Tensors& x, const Place& place) {
  PlaceScope at(place);
  const Closed body = trace_user_inner("checkpoint", types_of(x), f);
  CheckpointParams p{body.program, std::make_shared<const RecomputeOptions>(options)};
  return bind_n(checkpoint_p, make_params(std::move(p)), joined({body.captures, x}));
}

}  // namespace postern
