// Offloaded loops expanded into while loops with calls of the host.
#include "control/residual_store.h"

#include <postern/ops.h>

#include <algorithm>
#include <map>

#include "analysis/rewrite.h"
#include "control/scan.h"
#include "core/lists.h"
#include "ops/index.h"
#include "transform/flatten.h"
#include "transform/simplify.h"

namespace postern::internal {

Type handle_type(const Type& step, int rank) {
  check(rank <= step.rank(), "a store of {} has handles of {} axes", to_string(step), rank);
  return {DType::f64, {step.dims.begin(), step.dims.begin() + rank}};
}

Tensors no_handles(const Types& steps, const std::vector<int>& ranks) {
  Tensors out;
  for (std::size_t i = 0; i < steps.size(); ++i)
    out.push_back(zeros_of(handle_type(steps[i], ranks[i])));
  return out;
}

namespace {

Tensors with(const Tensor& first, TensorSpan more) { return joined({list_of(first), more}); }

/// Returns how many steps share one call of the host, since a call costs as much as several small
/// steps. Meanwhile their values are in blocks: see Blocked. The host knows single steps, so that a
/// store need not be read in blocks of the size in which it was written. 1 where a step calls or
/// has loops: it is not small, and the run should notice at each such step that it is to stop.
std::int64_t steps_at_once(const Types& stored, std::initializer_list<ProgramPtr> programs) {
  constexpr std::int64_t most = 64, block_bytes = 16'384;
  const auto takes_long = [](const Equation& e) {
    const Primitive& p = *e.primitive;
    return p.site || p.may_call || p.loops();
  };
  if (stored.empty()) return 1;
  for (const ProgramPtr& p : programs)
    if (any_equation(*p, takes_long)) return 1;
  std::int64_t bytes_of_step = 1;  // not 0, to divide by it
  for (const Type& type : stored) {
    if (is_packed(type.dtype)) return 1;
    bytes_of_step += static_cast<std::int64_t>(type.byte_size());
  }
  return std::clamp<std::int64_t>(block_bytes / bytes_of_step, 1, most);
}

/// One kind of value in stores, and blocks of the values of several steps. A block has an axis of
/// steps behind the axes of the handle, which are those of a batch: of f32[8,3] with a handle of
/// rank 1 the block of 64 steps is f32[8,64,3].
struct Blocked {
  Type step;
  int rank;  // of its handle

  Type block_type(std::int64_t steps) const {
    Type out = step;
    out.dims.insert(nth(out.dims, at(rank)), steps);
    return out;
  }
  /// Computes where step k begins in a block, by axis.
  Tensors starts(const Tensor& k) const {
    Tensors out(step.dims.size() + 1, step_number(0));
    out[at(rank)] = k;
    return out;
  }
  Tensor read(const Tensor& block, const Tensor& k) const {
    return reshape(slice_from(block, starts(k), block_type(1).dims), step.dims);
  }
  Tensor written(const Tensor& block, const Tensor& value, const Tensor& k) const {
    return update_from(block, reshape(value, block_type(1).dims), starts(k));
  }
};

std::vector<Blocked> blocked(const Types& steps, const std::vector<int>& ranks) {
  std::vector<Blocked> out;
  for (std::size_t i = 0; i < steps.size(); ++i) out.push_back({steps[i], ranks[i]});
  return out;
}
Types block_types(const std::vector<Blocked>& kinds, std::int64_t steps) {
  Types out;
  for (const Blocked& kind : kinds) out.push_back(kind.block_type(steps));
  return out;
}

/// Returns the parameters of a while of which no derivative asks anything.
WhileParams plain_while(bool bounded) {
  WhileParams p;
  p.bounded = bounded;
  return p;
}

/// Writes an offloaded while as a while that calls the host after each step, or after each block of
/// steps, which is a loop in the loop.
///
/// Carry: the step's number, whether to go on, the loop's carry, the handles. Inside a block: the
/// number in the block, whether to go on, the loop's carry, the blocks.
Tensors expanded_while(const WhileParams& p, TensorSpan x) {
  const std::size_t carries = p.carries();
  const std::size_t first_handle = 2 + carries;
  const WhileParts of(p, x);
  const Types stored = tail(p.body->output_types(), carries);
  const std::vector<Blocked> kinds = blocked(stored, p.handle_ranks);
  const std::int64_t at_once = steps_at_once(stored, {p.condition, p.body});
  const auto goes_on = [&](TensorSpan carry) {
    return internal::apply(*p.condition, joined({of.condition_constants, carry}))[0];
  };
  // Gives the carry after a step, with the step's values in the place of handles or blocks.
  const auto step = [&](TensorSpan in) {
    const Tensors y = internal::apply(*p.body, joined({of.body_constants, in.subspan(2, carries)}));
    const Tensor number = add(in[0], step_number(1));
    return joined({Tensors{number, goes_on(std::span(y).first(carries))}, y});
  };
  const auto one_step = [&](TensorSpan in) {
    const Tensors after = step(in);
    const Tensors handles = residual_access.write({in[0]}, in.subspan(first_handle),
                                                  tail(after, first_handle), p.residuals);
    return joined({std::span(after).first(first_handle), handles});
  };
  const auto block_of_steps = [&](TensorSpan in) {
    Tensors carry = with(step_number(0), in.subspan(1, 1 + carries));
    for (const Type& type : block_types(kinds, at_once)) carry.push_back(zeros_of(type));
    carry = trace_while(
        plain_while(true), carry,
        [&](TensorSpan inner) {
          return logical_and(inner[1], less(inner[0], step_number(at_once)));
        },
        [&](TensorSpan inner) {
          Tensors out = step(inner);
          for (std::size_t i = first_handle; i < out.size(); ++i)
            out[i] = kinds[i - first_handle].written(inner[i], out[i], inner[0]);
          return out;
        });

    const Tensor count = carry[0];
    const Tensors blocks = tail(carry, first_handle);
    const Tensors handles = residual_access.write({in[0], count, at_once}, in.subspan(first_handle),
                                                  blocks, p.residuals);
    return joined({Tensors{add(in[0], count)}, std::span(carry).subspan(1, 1 + carries), handles});
  };
  const Tensors start{step_number(0), goes_on(of.carry)};
  const Tensors y = trace_while(
      plain_while(false), joined({start, of.carry, no_handles(stored, p.handle_ranks)}),
      [](TensorSpan in) { return in[1]; },
      [&](TensorSpan in) { return at_once > 1 ? block_of_steps(in) : one_step(in); });
  // The results are the loop's carry, the number of steps, the handles.
  const TensorSpan results(y);
  return joined({results.subspan(2, carries), results.first(1), results.subspan(first_handle)});
}

/// Writes an offloaded scan as a while that asks the host for the step's xs and gives it the ys, or
/// for those of a block of steps, as expanded_while does.
///
/// Carry: how many steps are done, the loop's carry, the handles of the ys. Inside a block: how
/// many of the block are done, the loop's carry, the blocks of the ys.
Tensors expanded_scan(const ScanParams& p, TensorSpan x) {
  const ScanParts of(p, x);
  const Tensor steps = x[0];
  const Types takes = p.x_types();
  const Types gives = p.y_types();
  std::vector<int> x_ranks;
  for (const Tensor& handles : of.xs) x_ranks.push_back(static_cast<int>(handles.rank()));
  const std::vector<Blocked> xs = blocked(takes, x_ranks), ys = blocked(gives, p.handle_ranks);
  Types stored = takes;
  append(stored, gives);
  const std::int64_t at_once = steps_at_once(stored, {p.body});
  // Gives the slot in the stores, or in a block, that a step reads and writes.
  const auto slot = [&](const Tensor& done, const Tensor& of_so_many) {
    if (!p.reverse) return done;
    return subtract(subtract(of_so_many, step_number(1)), done);
  };
  const auto step = [&](const Tensor& k, TensorSpan carry, TensorSpan slices) {
    Tensors in(of.constants.begin(), of.constants.end());
    if (p.counted) in.push_back(convert(add(k, step_number(p.start)), p.index));
    append(in, carry);
    append(in, slices);
    return internal::apply(*p.body, in);
  };
  const auto one_step = [&](TensorSpan in) {
    const Tensor k = slot(in[0], steps);
    const Tensors y =
        step(k, in.subspan(1, p.carries), residual_access.read({k}, of.xs, takes, p.residuals));
    Tensors out = with(add(in[0], step_number(1)), std::span(y).first(p.carries));
    append(out, residual_access.write({k}, in.subspan(1 + p.carries),
                                      std::span(y).subspan(p.carries), p.residuals));
    return out;
  };
  const auto block_of_steps = [&](TensorSpan in) {
    const Tensor count = minimum(subtract(steps, in[0]), step_number(at_once));
    Tensor first = in[0];  // slot of the block; in reverse its steps come from the end of the store
    if (p.reverse) first = subtract(subtract(steps, in[0]), count);
    const Tensors blocks =
        residual_access.read({first, count, at_once}, of.xs, block_types(xs, at_once), p.residuals);

    Tensors carry = with(step_number(0), in.subspan(1, p.carries));
    for (const Type& type : block_types(ys, at_once)) carry.push_back(zeros_of(type));
    carry = trace_while(
        plain_while(true), carry, [&](TensorSpan inner) { return less(inner[0], count); },
        [&](TensorSpan inner) {
          const Tensor k = slot(inner[0], count);
          Tensors slices;
          for (std::size_t i = 0; i < xs.size(); ++i) slices.push_back(xs[i].read(blocks[i], k));
          const Tensors y = step(add(first, k), inner.subspan(1, p.carries), slices);
          Tensors out = with(add(inner[0], step_number(1)), std::span(y).first(p.carries));
          for (std::size_t i = 0; i < ys.size(); ++i)
            out.push_back(ys[i].written(inner[1 + p.carries + i], y[p.carries + i], k));
          return out;
        });

    Tensors out = with(add(in[0], count), std::span(carry).subspan(1, p.carries));
    append(out, residual_access.write({first, count, at_once}, in.subspan(1 + p.carries),
                                      std::span(carry).subspan(1 + p.carries), p.residuals));
    return out;
  };
  Tensors carry = with(step_number(0), of.carry);
  append(carry, no_handles(gives, p.handle_ranks));
  const Tensors y = trace_while(
      plain_while(true), carry, [&](TensorSpan in) { return less(in[0], steps); },
      [&](TensorSpan in) { return at_once > 1 ? block_of_steps(in) : one_step(in); });
  const Tensors freed = where_marked(of.xs, p.frees);
  if (!freed.empty()) residual_access.free(y[0], freed, p.residuals);
  return tail(y, 1);
}

/// By value: how many levels of stores may be freed behind its last reader, since nothing else
/// leads to them. 1 for a handle, or a stack of handles, that a loop of its program has made; 2
/// where what is in that store are handles of which the same holds; 0 for all else.
using Levels = std::vector<int>;

/// Counts, by value, how often equations and outputs read it.
std::vector<int> uses_of(const Program& program) {
  std::vector<int> uses(program.types.size());
  for (const Equation& e : program.equations)
    for (const ValueId v : e.operands) ++uses[at(v)];
  for (const ValueId v : program.outputs) ++uses[at(v)];
  return uses;
}

/// Remembers the levels of programs, which outlive it.
using KnownLevels = std::map<const Program*, Levels>;

/// Finds the levels of what the loops of a program give: of each y one more than inside of the body
/// where the loop is offloaded, and none from inside where the body reads the handle itself.
const Levels& levels_of(const Program& program, KnownLevels& known) {
  const auto [found, is_new] = known.try_emplace(&program, program.types.size());
  Levels& levels = found->second;
  if (!is_new) return levels;
  for (const Equation& e : program.equations) {
    if (!e.primitive->loops()) continue;
    const Loop loop = loop_of(e);
    const Levels& inside = levels_of(*loop.body, known);
    const std::vector<int> uses = uses_of(*loop.body);
    const std::vector<ValueId> ys = tail(loop.body->outputs, loop.carries);
    std::size_t result = at(e.first) + at(e.results) - ys.size();  // ys are the last results
    for (const ValueId v : ys) {
      const bool only_given = uses[at(v)] == 1;
      levels[result++] = (only_given ? inside[at(v)] : 0) + loop.offloaded;
    }
  }
  return levels;
}

/// Has the scans of a program, and of the programs in it, free the stores that only they read: of
/// two readers XLA may choose which comes first, so neither may free. A scan that is not offloaded
/// hands the right to free on to its body, for the handles in a stack of them. `inputs`: the levels
/// of the first inputs.
ProgramPtr freeing(const Program& program, const Levels& inputs, KnownLevels& known) {
  Program out = program;
  Levels levels = levels_of(program, known);
  for (std::size_t i = 0; i < inputs.size(); ++i) levels[at(out.inputs[i])] = inputs[i];
  const std::vector<int> uses = uses_of(out);
  for (Equation& e : out.equations) {
    if (!any_equation(e, is_offloaded)) continue;
    if (e.primitive->control != ControlFlow::scan) {
      e.params = with_each(e, [&](const ProgramPtr& p) { return freeing(*p, {}, known); });
      continue;
    }
    ScanParams p = as<ScanParams>(*e.params);
    const std::size_t first_x = p.first_operand() + p.constants + p.carries;
    Levels given(p.body->inputs.size());
    if (p.offloaded) p.frees.assign(p.xs(), false);
    for (std::size_t i = 0; i < p.xs(); ++i) {
      const std::size_t handles = at(e.operands[first_x + i]);
      if (uses[handles] != 1 || levels[handles] == 0) continue;
      if (p.offloaded) p.frees[i] = true;
      given[p.first_x() + i] = levels[handles] - p.offloaded;
    }
    p.body = freeing(*p.body, given, known);
    e.params = make_params(std::move(p));
  }
  return std::make_shared<const Program>(std::move(out));
}

/// What stands for an offloaded loop until it is flattened into its program.
struct ExpandedParams {
  ProgramPtr body;
};
constexpr Primitive expanded_p{.name = "expanded", .transparent = true};

/// Traces the while loop that an offloaded loop becomes, for operands of these types.
ProgramPtr expansion(const Equation& e, std::span<const Type> operands) {
  PlaceScope::Replace place(e.place);
  const Closed closed = trace_program("taped", operands, [&](TensorSpan x) {
    if (e.primitive->control == ControlFlow::while_loop)
      return expanded_while(as<WhileParams>(*e.params), x);
    return expanded_scan(as<ScanParams>(*e.params), x);
  });
  check(closed.captures.empty(), "an offloaded loop uses a tensor from outside of its program");
  return simplify(*closed.program);
}

ProgramPtr expanded(const ProgramPtr& program) {
  if (!any_equation(*program, is_offloaded)) return program;
  Program out = *program;
  for (Equation& e : out.equations) {
    e.params = with_each(e, expanded);
    if (!is_offloaded(e)) continue;
    Types types;
    for (const ValueId v : e.operands) types.push_back(out.type(v));
    e.params = make_params(ExpandedParams{expansion(e, types)});
    e.primitive = &expanded_p;
  }
  return std::make_shared<const Program>(
      flattened(out, [](const Equation& e) { return e.primitive == &expanded_p; }));
}

}  // namespace

void lower_offloaded(Lowering& out, const Equation& e) {
  Types types;
  for (std::size_t i = 0; i < e.operands.size(); ++i) types.push_back(out.operand_type(e, i));
  out.define_all(e, out.inlined(*expansion(e, types), out.operands(e)));
}

ProgramPtr with_offloaded_expanded(const ProgramPtr& program) {
  if (!any_equation(*program, is_offloaded)) return program;
  KnownLevels known;
  return expanded(freeing(*program, {}, known));
}

}  // namespace postern::internal
