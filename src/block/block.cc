// The block primitive: one step that is its default, or an override, when it is lowered or run.
#include "block/block.h"

#include <postern/indexing.h>

#include <algorithm>

#include "control/control.h"
#include "core/cache.h"
#include "core/check.h"
#include "core/lists.h"
#include "custom/custom.h"
#include "transform/axis.h"
#include "transform/batch.h"
#include "transform/jvp.h"
#include "transform/simplify.h"
#include "transform/transpose.h"
#include "transform/walk.h"

namespace postern::internal::blocks {

FieldChain<10> BlockParams::fields(Fields sink) const {
  return sink
      .by([&](FieldSink& s) {
        s("block", named_text(config->name, config->attributes));
        s.identity("type", config->type);
        s.hidden("config", kinds_of(config->attributes));
      })
      .by([&](FieldSink& s) {
        for (const auto& [size, mapped, masked] : levels) {
          s("batch", size);
          s("mapped", mapped);
          if (masked) s.hidden("masked", "1");
        }
      })
      .field("body", body)
      .identity("rules", rules)
      // The same body may give an override other operands, and may be another derivative.
      .hidden("operands", operands)
      .hidden("results", results)
      .hidden("values", values)
      .hidden("order", order)
      .hidden("of_operand", of_operand)
      .hidden("of_result", of_result);
}

std::size_t BlockParams::leading() const {
  std::size_t n = operands.size();
  for (const Level& l : levels) n += l.masked;
  return n;
}

namespace {

/// Traces the program of `f`, simplified. What it captures, which a trace has for last inputs,
/// becomes operands and inputs in front of number `at`: (a, b, captured) to (a, captured, b).
ProgramPtr trace_closed(const std::string& name, std::size_t at, Tensors& operands,
                        const TensorFunction& f) {
  const Closed traced = trace_program(name, types_of(operands), f);
  Program program = *simplify(*traced.program);
  std::vector<ValueId>& inputs = program.inputs;
  std::rotate(nth(inputs, at), nth(inputs, operands.size()), inputs.end());
  operands.insert(nth(operands, at), traced.captures.begin(), traced.captures.end());
  return std::make_shared<const Program>(std::move(program));
}

std::vector<int> numbers_of(const std::vector<bool>& marked) {
  std::vector<int> out;
  for (std::size_t i = 0; i < marked.size(); ++i)
    if (marked[i]) out.push_back(static_cast<int>(i));
  return out;
}

Types block_type(const Params* params, TypeSpan operands) {
  ++met();
  const auto& p = as<BlockParams>(*params);
  return program_type(p.config->name.c_str(), *p.body, operands);
}

// The block's rule, if it has one. Else a block of the next order: operands and their tangents ->
// results and theirs. It is of the same config, so that an override with a derivative of its own
// finds it again in reverse mode (split_own); `of_operand` and `of_result` say whose the tangents
// are. What the body captures while it is differentiated becomes an operand behind its values.
Jvp block_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<BlockParams>();
  if (p.rules) return p.rules->jvp(p.config->object.get(), x, dx);
  const std::vector<bool> operand_moves = present(dx);
  Tensors operands = joined({x, kept(dx)});
  const std::size_t before = operands.size();
  std::vector<bool> result_moves;
  BlockParams pushed = p;
  pushed.body = trace_closed(p.config->name, p.values, operands, [&](TensorSpan in) {
    return packed_jvp(*p.body, in, operand_moves, result_moves);
  });
  pushed.values += operands.size() - before;
  pushed.order = p.order + 1;
  pushed.of_operand = numbers_of(operand_moves);
  pushed.of_result = numbers_of(result_moves);
  const Tensors both = bind_n(block_p, make_params(std::move(pushed)), operands);
  const std::size_t results = result_moves.size();
  return {head(both, results), placed(result_moves, std::span(both).subspan(results))};
}

Tensors block_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan) {
  const auto& p = op.as<BlockParams>();
  if (p.rules) {
    check(p.rules->transpose != nullptr, "reverse mode: block {} of a tangent is not linear in it",
          p.config->name);
    return p.rules->transpose(p.config->object.get(), ct, x);
  }
  return transpose_of(*p.body, x, ct);
}

/// Leaves the whole equation, of so many results, to the unknown half.
Primitive::SplitResult defer(const Op& op, TensorSpan x, std::size_t results) {
  Primitive::SplitResult out;
  out.known.resize(results);
  out.primitive = &op.primitive;
  out.params = op.params;
  for (std::size_t i = 0; i < x.size(); ++i) out.operands.push_back({x[i], static_cast<int>(i)});
  for (std::size_t i = 0; i < results; ++i) out.results.push_back(static_cast<int>(i));
  return out;
}

/// Makes an equation of the unknown half of a split body. `known`: known results, then residuals.
Primitive::SplitResult with_rest(const Halves& halves, TensorSpan known, TensorSpan x) {
  return split_result(part_p, make_params(PartParams{halves.unknown}), halves.unknown_outputs,
                      known, known.subspan(known.size() - halves.residuals), x);
}

/// Splits the body: what is known stays a block, which gives the residuals too. A block whose own
/// results, which an override might make, are not all known is deferred as a whole.
Primitive::SplitResult block_split(const Op& op, TensorSpan x, const std::vector<bool>& wanted) {
  const auto& p = op.as<BlockParams>();
  const auto leading = x.first(p.leading());
  if (p.rules || !has_all(leading)) return defer(op, x, wanted.size());
  Primitive::SplitResult out;
  if (split_own(p, x, out)) return out;
  const Halves halves = split(*p.body, missing(x));
  for (std::size_t i = 0; i < p.results.size(); ++i)
    if (halves.unknown_outputs[i]) return defer(op, x, wanted.size());
  BlockParams known = p;
  known.body = halves.known;
  known.values = kept(x.first(p.values)).size();
  known.order = BlockParams::changed;  // its results are no longer a derivative's
  return with_rest(halves, bind_n(block_p, make_params(std::move(known)), kept(x)), x);
}

/// Dead elements work on unit matrices: none of them fails, or takes long.
Batched rules_batch(const BlockParams& p, TensorSpan x, std::span<const int> axes,
                    std::int64_t size, const Tensor& mask) {
  const bool mapped = any_mapped(axes);
  Tensors moved;
  for (std::size_t i = 0; i < x.size(); ++i)
    moved.push_back(batch_front(x[i], axes[i], size, mapped));
  if (mapped && mask.has_value() && !p.rules->dead_as_they_are) {
    const Dims& dims = moved[0].dims();
    moved[0] =
        select_elements(mask, moved[0], eye(moved[0].dtype(), dims[dims.size() - 2], dims.back()));
  }
  Tensors y = bind_cached(*p.config, *p.rules, moved);
  std::vector<int> out(y.size(), axis_if(mapped));
  return {std::move(y), std::move(out)};
}

// Binds a block of one more level: what is mapped has the batch axis in front, the mask comes
// behind the operands and earlier masks. Where only tangents are mapped there is no such level: the
// block's own results are the same for all elements, and an override makes them once.
Batched block_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                    const Tensor& mask) {
  const auto& p = op.as<BlockParams>();
  if (p.rules) return rules_batch(p, x, axes, size, mask);
  const std::size_t leading = p.leading();
  const bool masked = mask.has_value();
  const bool adds_level = masked || any_mapped(axes.first(p.values));
  Tensors operands;
  std::vector<int> in_front;  // where the batch axes are then: 0, or -1 for none
  for (std::size_t i = 0; i < x.size(); ++i) {
    operands.push_back(batch_front(x[i], axes[i], size, false));
    in_front.push_back(axis_if(axes[i] >= 0));
  }
  if (masked) operands.insert(nth(operands, leading), mask);

  std::vector<int> out_axes(p.body->outputs.size(), 0);
  BlockParams batched = p;
  batched.values += masked;
  const std::size_t before = operands.size();
  batched.body = trace_closed(p.config->name, batched.values, operands, [&](TensorSpan in) {
    Tensors inputs(in.begin(), in.end());
    if (masked) inputs.erase(nth(inputs, leading));
    const Tensor alive = at_if(masked, in, leading);
    auto [y, from] = batch_of(*p.body, inputs, in_front, size, alive);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const bool is_shared = !adds_level && i < p.results.size();
      if (is_shared) {
        out_axes[i] = -1;
        if (from[i] >= 0) y[i] = dynamic_index(y[i], 0, from[i]);  // all elements have the same
      } else {
        y[i] = move_batch(y[i], from[i], 0, size, alive);
      }
    }
    return std::move(y);
  });
  batched.values += operands.size() - before;
  if (adds_level) {
    Level level{.size = size, .mapped = {}, .masked = masked};
    for (std::size_t i = 0; i < leading; ++i) level.mapped.push_back(axes[i] >= 0);
    batched.levels.push_back(std::move(level));
  }
  return {bind_n(block_p, make_params(std::move(batched)), operands), std::move(out_axes)};
}

/// Writes what the platform's override puts in the block's place, else the default. A text that is
/// for no platform keeps the block as a function, to be replaced where it is loaded, unless the
/// program is partitioned or the default has sites.
void block_lower(Lowering& out, const Equation& e) {
  const auto& p = as<BlockParams>(*e.params);
  const platforms::Platform* platform = platforms::lowered_for(out);
  const bool can_be_kept = !platform && !out.partitioned() && !has_site(*p.body);
  if (can_be_kept) return out.define_all(e, out.kept(e.params, *p.body, out.operands(e)));
  const ProgramPtr native = native_program(p, platform);
  if (!native) return body_lower<BlockParams>(out, e);

  // Tangents and residuals are the default's. It defines all results, of which those of the
  // override then replace the block's own.
  const auto own = static_cast<int>(p.results.size());
  if (e.results > own) body_lower<BlockParams>(out, e);
  std::vector<Ssa> inputs;
  for (std::size_t i = 0; i < p.leading(); ++i) inputs.push_back(out.operand(e, i));
  const std::vector<Ssa> results = out.inlined(*native, inputs);
  for (int i = 0; i < own; ++i) out.define(e, i, results[at(i)]);
}

/// Returns whether it is to be compiled with its operands' shardings, for an override on parts:
/// what an override does of each element is cut along the batch, whether or not it has a rule.
bool runs_on_parts(const BlockParams& p, TensorSpan x) {
  if (std::ranges::none_of(x, [](const Tensor& t) {
        return detail::Access::value(t)->kind == detail::Value::Kind::sharded;
      }))
    return false;
  const OverridePtr override = choose(question(p, &platforms::current()));
  return override && (!p.levels.empty() || sharding_of(p, *override));
}

Tensors block_evaluate(const Op& op, TensorSpan x) {
  const auto& p = op.as<BlockParams>();
  if (runs_on_parts(p, x)) {
    const Closed closed = trace_program(p.config->name, types_of(x), [&](TensorSpan in) {
      return bind_n(op.primitive, op.params, in);
    });
    return bind_n(part_p, make_params(PartParams{closed.program}), x);
  }
  const ProgramPtr native = native_program(p, &platforms::current());
  if (!native) return bind_n(part_p, make_params(PartParams{p.body}), x);
  Tensors own = internal::apply(*native, x.first(p.leading()));
  if (p.body->outputs.size() == own.size()) return own;
  Tensors all = bind_n(part_p, make_params(PartParams{p.body}), x);  // for tangents and residuals
  std::ranges::move(own, all.begin());
  return all;
}

std::string block_remark(const Params* params, const std::string& platform) {
  const auto& on = platforms::named(platform, "text");
  std::string path = "default";
  try {
    if (const OverridePtr o = choose(question(as<BlockParams>(*params), &on))) path = describe(*o);
  } catch (const PluginError&) {  // who prints a program need not be able to run it
    path = "kernels that are missing";
  }
  return fmt::format("-> {} on {}", path, platform);
}

ParamsPtr block_with_programs(const Params* params, std::span<const ProgramPtr> programs) {
  BlockParams p = as<BlockParams>(*params);
  p.body = programs[0];
  p.order = BlockParams::changed;
  return make_params(std::move(p));
}

// --- a program as one equation ---

Jvp part_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  return jvp_of(*op.as<PartParams>().body, x, dx);
}
Tensors part_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan) {
  return transpose_of(*op.as<PartParams>().body, x, ct);
}
Primitive::SplitResult part_split(const Op& op, TensorSpan x, const std::vector<bool>&) {
  const Halves halves = split(*op.as<PartParams>().body, missing(x));
  return with_rest(halves, internal::apply(*halves.known, kept(x)), x);
}
Batched part_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                   const Tensor& mask) {
  return batch_of(*op.as<PartParams>().body, x, axes, size, mask);
}

bool block_has_rules(const Params* params) { return as<BlockParams>(*params).rules != nullptr; }

}  // namespace

// Both rules for derivatives: a block of values has tangents, a block of tangents is linear.
constexpr Primitive block_p{.name = "block",
                            .type = block_type,
                            .jvp = block_jvp,
                            .transpose = block_transpose,
                            .linear = Linear::jointly,
                            .split = block_split,
                            .with_programs = block_with_programs,
                            .batch = block_batch,
                            .lower = block_lower,
                            .evaluate = block_evaluate,
                            .may_call = true,
                            .has_rules = block_has_rules,
                            .remark = block_remark};

constexpr Primitive part_p{.name = "part",
                           .type = body_type<PartParams>,
                           .jvp = part_jvp,
                           .transpose = part_transpose,
                           .linear = Linear::jointly,
                           .split = part_split,
                           .with_programs = body_with_programs<PartParams>,
                           .transparent = true,
                           .batch = part_batch,
                           .lower = body_lower<PartParams>};

/// Binds a block of the first `own` of these operands; what is behind is what its body captured.
static Tensors bind_block(const detail::BlockConfig& config, ProgramPtr body, const Rules* rules,
                          TensorSpan x, std::size_t own) {
  BlockParams p;
  p.config = std::make_shared<const detail::BlockConfig>(config);
  p.operands = types_of(x.first(own));
  p.results = body->output_types();
  for (Types* types : {&p.operands, &p.results})
    for (Type& t : *types) t.weak = false;
  p.values = x.size();
  p.body = std::move(body);
  p.rules = rules;
  return bind_n(block_p, make_params(std::move(p)), x);
}

Tensors bind_cached(const detail::BlockConfig& config, const Rules* rules,
                    const TensorFunction& by_default, TensorSpan x) {
  constexpr std::size_t defaults_kept = 1024;
  static auto* const cache = new Cache<const Program>(defaults_kept);
  Types types = types_of(x);
  for (Type& t : types) t.weak = false;
  const std::string key = config.name + to_string(config.attributes) + to_string(types);
  const ProgramPtr body = cache->find(key, [&] {
    PlaceScope::Replace none{Place{}};
    return simplify(*trace_program(config.name, types, by_default).program);
  });
  note_used(config);
  return bind_block(config, body, rules, x, x.size());
}

Tensors bind_cached(const detail::BlockConfig& config, const Rules& rules, TensorSpan x) {
  return bind_cached(
      config, &rules, [&](TensorSpan in) { return rules.by_default(config, in); }, x);
}

}  // namespace postern::internal::blocks

namespace postern::detail {
using namespace internal;

Tensors block(const BlockConfig& config, const TensorFunction& default_fn, const Tensors& operands,
              const std::vector<Type>* declared) {
  for (const Tensor& t : operands)
    check(t.has_value(),
          "block {}: an operand is an empty Tensor, one that was never given a value", config.name);
  Tensors x = operands;
  const ProgramPtr body =
      internal::blocks::trace_closed(config.name, x.size(), x, [&](TensorSpan in) {
        PlaceScope::Replace none{Place{}};
        const NoAxes alone;  // an override could not take its place
        return default_fn(in);
      });
  if (declared) {
    const Types gives = body->output_types();
    check(std::ranges::equal(gives, *declared, alike),
          "block {}: declared is {}, the default gives {}", config.name, to_string(*declared),
          to_string(gives));
  }
  internal::blocks::note_used(config);
  return internal::blocks::bind_block(config, body, nullptr, x, operands.size());
}

}  // namespace postern::detail
