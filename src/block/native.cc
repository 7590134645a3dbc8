// What an override puts in the place of a block, and its own derivative.
#include "block/block.h"
#include "core/check.h"
#include "core/lists.h"
#include "core/mutex.h"
#include "custom/custom.h"
#include "transform/batch.h"
#include "transform/jvp.h"
#include "transform/simplify.h"
#include "transform/walk.h"

namespace postern::internal::blocks {

namespace {

void require_types(const std::string& what, TensorSpan y, const Types& types) {
  if (std::ranges::equal(y, types, is_of)) return;
  Types got;
  for (const Tensor& t : y) {
    got.emplace_back();
    if (t.has_value()) got.back() = t.type();
  }
  throw_type_error(
      fmt::format("{} gives {}, the default gives {}", what, to_string(got), to_string(types)));
}

std::string described(const BlockParams& p, const Override& o) {
  return fmt::format("block {}: its override, a {},", p.config->name, describe(o));
}

ProgramPtr without_captures(const std::string& what, const Closed& closed) {
  check(closed.captures.empty(),
        "{} captures a tensor; what it computes with must come in as an operand", what);
  return simplify(*closed.program);
}

/// Returns the target with the config's fields beside the attributes that the override gives.
FfiTarget full_target(const BlockParams& p, const FfiTarget& target) {
  FfiTarget full = target;
  for (const auto& [name, value] : p.config->attributes.items()) {
    check(!full.attributes.has(name),
          "block {}: attribute '{}' of target {} has the name of a field of the config",
          p.config->name, name, target.name);
    full.attributes.set(name, value);
  }
  return full;
}

Tensors run_as_it_is(const BlockParams& p, const Override& o, const Tensors& x,
                     const Types& results) {
  if (o.program) return o.program(p.config->object.get(), x);
  if (o.target) return detail::ffi_call(full_target(p, *o.target), results, x, o.batch);
  CallOptions options{.name = p.config->name, .vmap = o.batch.value_or(VmapMethod::sequential)};
  const std::size_t count = results.size();
  std::string structure = "*";
  if (count != 1) structure = fmt::format("({})", fmt::join(std::vector<char>(count, '*'), ","));
  return detail::call(options, results, structure, std::vector<std::string>(count),
                      o.kernel(p.config->object), x);
}

/// Writes the override, with conversions around it to and from the dtypes that it says.
Tensors run_override(const BlockParams& p, const Override& o, TensorSpan in) {
  if (o.operand_dtypes.empty() && o.result_dtypes.empty())
    return run_as_it_is(p, o, Tensors(in.begin(), in.end()), p.results);
  check_dtypes(described(p, o), o.operand_dtypes, p.operands, o.result_dtypes, p.results);
  return in_dtypes(o.operand_dtypes, in, p.results, [&](TensorSpan x) {
    const Types types = with_dtypes(p.results, o.result_dtypes);
    Tensors y = run_as_it_is(p, o, Tensors(x.begin(), x.end()), types);
    require_types(described(p, o), y, types);
    return y;
  });
}

}  // namespace

Question question(const BlockParams& p, const platforms::Platform* platform) {
  return {.config = *p.config,
          .operands = p.operands,
          .results = p.results,
          .batched = !p.levels.empty(),
          .platform = platform};
}

ProgramPtr batched(const Program& p, const Level& level) {
  Types types = p.input_types();
  const std::size_t inputs = types.size();
  std::vector<int> axes;
  for (std::size_t i = 0; i < inputs; ++i) {
    axes.push_back(axis_if(level.mapped[i]));
    if (level.mapped[i]) types[i].dims.insert(types[i].dims.begin(), level.size);
  }
  if (level.masked) types.push_back({DType::pred, {level.size}});
  const Closed closed = trace_program(p.name, types, [&](TensorSpan in) {
    const Tensor mask = at_if(level.masked, in, inputs);
    auto [y, from] = batch_of(p, in.first(inputs), axes, level.size, mask);
    move_to_front(y, from, level.size);
    return std::move(y);
  });
  return without_captures(p.name, closed);
}

std::optional<ShardingRule> sharding_of(const BlockParams& p, const Override& o) {
  std::string text = o.sharding;
  enters_users_code();
  if (o.sharding_of) text = o.sharding_of(p.config->object.get(), p.operands);
  if (text.empty()) return std::nullopt;
  return fitted(described(p, o), parse_sharding(described(p, o), text), p.operands, p.results);
}

ProgramPtr native_program(const BlockParams& p, const platforms::Platform* platform) {
  const OverridePtr o = choose(question(p, platform));
  if (!o) return nullptr;
  static_cast<void>(sharding_of(p, *o));  // one that does not fit is said wherever it runs
  return program_of(p, *o);
}

ProgramPtr program_of(const BlockParams& p, const Override& o) {
  const Closed closed = trace_program(p.config->name, p.operands, [&](TensorSpan in) {
    Tensors y = run_override(p, o, in);
    require_types(described(p, o), y, p.results);
    return y;
  });
  ProgramPtr native = without_captures(described(p, o), closed);
  for (const Level& level : p.levels) native = batched(*native, level);
  return native;
}

std::optional<Module> native_function(const Module::Kept& kept, const platforms::Platform& platform,
                                      std::size_t first_site) {
  const auto& p = as<BlockParams>(*kept.params);
  const ProgramPtr native = native_program(p, &platform);
  if (!native) return std::nullopt;
  LoweringOptions options;
  platforms::lower_for(options, &platform);
  options.first_site = first_site;
  Lowering out(options);
  out.function(kept.function, kept.inputs, kept.outputs, [&](std::span<const Ssa> in) {
    std::vector<Ssa> results = out.inlined(*native, in.first(p.leading()));
    if (results.size() == kept.outputs.size()) return results;
    std::vector<Ssa> all = out.called(default_of(kept.function), in, kept.inputs, kept.outputs);
    std::ranges::copy(results, all.begin());  // tangents and residuals are the default's
    return all;
  });
  return out.functions();
}

// --- an override's own derivative ---

namespace {

Types own_type(const Params* params, TypeSpan) {
  return as<OwnParams>(*params).push->output_types();
}

/// Returns the operands of `push`: the residuals in front are for `backward` alone.
TensorSpan pushed(const OwnParams& p, TensorSpan x) { return x.subspan(p.residuals); }

Jvp own_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<OwnParams>();
  return jvp_of(*p.push, pushed(p, x), dx.subspan(p.residuals));
}

/// Applies `backward`, which takes a cotangent of every result, zeros where `ct` has none. What it
/// gives are the cotangents of the last operands, the tangents.
Tensors own_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan) {
  const auto& p = op.as<OwnParams>();
  Tensors in = head(x, p.residuals);
  for (const Type& t : p.results) in.push_back(shown_tangent({}, t));
  for (std::size_t i = 0; i < ct.size(); ++i)
    if (ct[i].has_value()) in[p.residuals + at(p.of_result[i])] = ct[i];
  const Tensors of_tangents = internal::apply(*p.backward, in);
  Tensors out(x.size());
  std::ranges::copy(of_tangents, nth(out, x.size() - of_tangents.size()));
  return out;
}

/// Batches what the equation computes, `push`, of all operands but the residuals, which `backward`
/// alone reads: what is transposed after this has push's derivative.
Batched own_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                  const Tensor& mask) {
  const auto& p = op.as<OwnParams>();
  return batch_of(*p.push, pushed(p, x), axes.subspan(p.residuals), size, mask);
}

void own_lower(Lowering& out, const Equation& e) {
  const auto& p = as<OwnParams>(*e.params);
  out.define_all(e, out.inlined(*p.push, out.operands(e, p.residuals)));
}

Tensors own_evaluate(const Op& op, TensorSpan x) {
  const auto& p = op.as<OwnParams>();
  return internal::apply(*p.push, pushed(p, x));
}

}  // namespace

constexpr Primitive own_p{.name = "block_tangent",
                          .type = own_type,
                          .jvp = own_jvp,
                          .transpose = own_transpose,
                          .linear = Linear::jointly,
                          .batch = own_batch,
                          .lower = own_lower,
                          .evaluate = own_evaluate};

namespace {

/// Traces the override's forward function: operands to results and residuals.
ProgramPtr forward_program(const BlockParams& p, const Override& o) {
  const Closed closed = trace_program(p.config->name, p.operands, [&](TensorSpan in) {
    auto [y, residuals] = o.vjp_forward(p.config->object.get(), in);
    require_types(described(p, o) + " in its vjp", y, p.results);
    append(y, residuals);
    return std::move(y);
  });
  return without_captures(described(p, o) + " in its vjp", closed);
}

/// Traces its backward function: residuals and cotangents to those of the operands `of_operand`.
ProgramPtr backward_program(const BlockParams& p, const Override& o, const Types& residuals) {
  Types types = residuals;
  for (const Type& t : p.results) types.push_back(tangent_type(t));
  const Closed closed = trace_program(p.config->name, types, [&](TensorSpan in) {
    const Tensors cotangents = o.vjp_backward(p.config->object.get(), in.first(residuals.size()),
                                              in.subspan(residuals.size()));
    check(cotangents.size() == p.operands.size(), "{} gives {} cotangents for {} operands",
          described(p, o), cotangents.size(), p.operands.size());
    Tensors out;
    for (const int i : p.of_operand) {
      const Type& type = p.operands[at(i)];
      out.push_back(or_zeros_of(cotangents[at(i)], type));
      check(alike(out.back().type(), type), "{} gives a cotangent {} for operand {}, which is {}",
            described(p, o), to_string(out.back().type()), i, to_string(type));
    }
    return out;
  });
  return without_captures(described(p, o) + " in its vjp", closed);
}

/// Batches `backward` for all levels; cotangents of operands that are the same for a whole batch
/// are summed over it.
ProgramPtr batched_backward(ProgramPtr backward, const BlockParams& p) {
  for (const Level& level : p.levels) {
    const ProgramPtr one =
        batched(*backward, {level.size, std::vector<bool>(backward->inputs.size(), true), false});
    const Closed closed = trace_program(one->name, one->input_types(), [&](TensorSpan in) {
      Tensors y = internal::apply(*one, in);
      for (std::size_t i = 0; i < y.size(); ++i)
        if (!level.mapped[at(p.of_operand[i])]) y[i] = sum(y[i], {.axes = Dims{0}});
      return y;
    });
    backward = closed.program;
  }
  return backward;
}

/// Returns the body with only the tangents for results.
ProgramPtr tangents_of(const BlockParams& p) {
  Program push = *p.body;
  push.outputs.erase(push.outputs.begin(), nth(push.outputs, p.results.size()));
  return simplify(push);
}

/// Moves the inputs that are unknown, whose operands are empty in `x`, behind the others.
ProgramPtr unknown_last(const Program& program, TensorSpan x) {
  Program out = program;
  out.inputs.clear();
  for (const bool known : {true, false})
    for (std::size_t i = 0; i < x.size(); ++i)
      if (x[i].has_value() == known) out.inputs.push_back(program.inputs[i]);
  return std::make_shared<const Program>(std::move(out));
}

/// Finds the unknown operands; none where they are not all the tangents of the block's operands, in
/// their order and batched as those are: they come where jvp and batching have put them.
std::optional<std::vector<std::size_t>> unknown_tangents(const BlockParams& p, TensorSpan x) {
  std::vector<std::size_t> unknown;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!x[i].has_value()) unknown.push_back(i);
  if (unknown.size() != p.of_operand.size()) return std::nullopt;
  for (std::size_t i = 0; i < unknown.size(); ++i) {
    const std::size_t operand = at(p.of_operand[i]);
    const Type& tangent = p.body->type(p.body->inputs[unknown[i]]);
    if (operand >= p.operands.size() || tangent.dims != x[operand].dims()) return std::nullopt;
  }
  return unknown;
}

}  // namespace

// Splits the block of a derivative (order 1: operands, then their tangents) by the forward and
// backward functions of the override that this platform chooses. False, with `out` untouched, where
// that cannot be: the batch is masked, something else than the tangents is unknown, or the override
// has no derivative of its own.
//
// Otherwise the forward function is applied here, and `out` holds the results and, as the rest, an
// equation of own_p. It is given what the forward function kept, the known operands and the
// tangents, and makes the tangents of the results: by the block's own tangents, or, transposed, by
// the backward function. Throws a TypeError where an override's function gives other types.
bool split_own(const BlockParams& p, TensorSpan x, Primitive::SplitResult& out) {
  if (p.order != 1 || std::ranges::any_of(p.levels, &Level::masked)) return false;
  const auto unknown = unknown_tangents(p, x);
  if (!unknown) return false;
  OverridePtr o = choose(question(p, &platforms::current()));
  if (!o || !o->vjp_forward) return false;
  const std::size_t results = p.results.size();
  ProgramPtr forward = forward_program(p, *o);
  const Types residual_types = tail(forward->output_types(), results);
  OwnParams own{.push = unknown_last(*tangents_of(p), x),
                .backward = batched_backward(backward_program(p, *o, residual_types), p),
                .residuals = residual_types.size(),
                .of_result = p.of_result,
                .results = {}};
  for (const Level& level : p.levels) forward = batched(*forward, level);
  const Tensors y = internal::apply(*forward, x.first(p.operands.size()));
  out.known = head(y, results);
  for (const Tensor& t : out.known) own.results.push_back(t.type());

  for (const Tensor& residual : tail(y, results)) out.operands.push_back({residual});
  for (const Tensor& known : kept(x)) out.operands.push_back({known});
  for (const std::size_t i : *unknown) out.operands.push_back({{}, static_cast<int>(i)});
  out.known.resize(results + p.of_result.size());  // the tangents come with the rest
  for (std::size_t i = 0; i < p.of_result.size(); ++i)
    out.results.push_back(static_cast<int>(results + i));
  out.primitive = &own_p;
  out.params = make_params(std::move(own));
  return true;
}

}  // namespace postern::internal::blocks
