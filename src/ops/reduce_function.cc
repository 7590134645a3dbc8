// Reductions and scans with the user's own function.
#include <postern/arrange.h>
#include <postern/reduce.h>

#include "core/lists.h"
#include "core/site_spec.h"
#include "ops/axes.h"
#include "ops/family.h"
#include "ops/reduce.h"
#include "ops/shape.h"

namespace postern::internal {

void refuse_effects(const char* op, const Program& program) {
  for (const Equation& e : program.equations) {
    if (const SiteSpec* site = site_of(e))
      throw_type_error(fmt::format(
          "{}: the function must be free of calls, taps, hooks and prints, which would have no "
          "order there; it has {} '{}' at {}",
          op, text_of(site->kind), site->name, to_string(e.place)));
    if (e.primitive->calls)
      throw_type_error(
          fmt::format("{}: the function must be free of calls; at {} it calls a compiled function "
                      "on another device",
                      op, to_string(e.place)));
    if (!e.params) continue;
    for (const ProgramPtr& p : programs_of(*e.params)) refuse_effects(op, *p);
  }
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

namespace {

// --- reduce ---

struct FoldParams {
  Dims axes;  // sorted
  ProgramPtr function;
};

// Operands: the tensors, then as many initial values.
Types fold_type(const Params* params, TypeSpan operands) {
  const Dims& axes = as<FoldParams>(*params).axes;
  const std::size_t count = operands.size() / 2;
  Types results;
  for (std::size_t i = 0; i < count; ++i) {
    const Type &x = operands[i], &start = operands[count + i];
    check(x.dims == operands[0].dims,  // reduce_c1
          "reduce: tensors must have one shape, got {} and {}", to_string(operands[0]),
          to_string(x));
    check(start.rank() == 0 && start.dtype == x.dtype,  // reduce_c2, c3
          "reduce: the initial value for {} must be a scalar {}, got {}", to_string(x),
          to_string(x.dtype), to_string(start));
    results.push_back({x.dtype, pick(x.dims, other_axes(x.rank(), axes))});
  }
  return results;
}

Jvp fold_jvp(const Op&, TensorSpan, TensorSpan) {
  throw_type_error(
      "reduce: a reduction by a function of the user's has no derivative; use sum, prod, max, min "
      "or associative_scan");
}

/// Makes one reduction for each element of the batch, in front: XLA takes one initial value only.
Batched fold_rows(const Op& op, const Tensors& tensors, TensorSpan starts,
                  std::span<const int> start_axes, std::int64_t size) {
  const std::size_t count = tensors.size();
  const auto row = [](const Tensor& t, std::int64_t b) {
    return squeeze(slice_axis(t, 0, b, b + 1), {0});
  };
  std::vector<Tensors> rows(count);  // by result
  for (std::int64_t b = 0; b < size; ++b) {
    Tensors one;
    for (const Tensor& t : tensors) one.push_back(row(t, b));
    for (std::size_t i = 0; i < count; ++i)  // a mapped scalar has its batch axis alone, 0
      one.push_back(start_axes[i] >= 0 ? row(starts[i], b) : starts[i]);
    const Tensors results = bind_n(op.primitive, op.params, one);
    for (std::size_t i = 0; i < count; ++i) rows[i].push_back(results[i]);
  }
  Tensors out;
  for (std::size_t i = 0; i < count; ++i) {
    const Dims& dims = tensors[i].dims();
    const Dims kept = other_axes(std::ssize(dims), shifted(op.as<FoldParams>().axes, 1));
    out.push_back(size > 0 ? stack(rows[i]) : zeros({tensors[i].dtype(), pick(dims, kept)}));
  }
  return {out, std::vector<int>(count, 0)};
}

Batched fold_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                   const Tensor&) {
  const auto& p = op.as<FoldParams>();
  const std::size_t count = x.size() / 2;
  Tensors operands;
  for (std::size_t i = 0; i < count; ++i) operands.push_back(batch_front(x[i], axes[i], size));
  const TensorSpan starts = x.subspan(count);
  const auto start_axes = axes.subspan(count);
  if (any_mapped(start_axes)) return fold_rows(op, operands, starts, start_axes, size);
  operands.insert(operands.end(), starts.begin(), starts.end());
  const FoldParams behind{shifted(p.axes, 1), p.function};
  return {bind_n(op.primitive, make_params(behind), operands), std::vector<int>(count, 0)};
}

void fold_lower(Lowering& out, const Equation& e) {
  const auto& p = as<FoldParams>(*e.params);
  std::vector<std::string> in_types, out_types, elements;
  for (std::size_t i = 0; i < e.operands.size(); ++i) {
    in_types.push_back(Lowering::type(out.operand_type(e, i)));
    elements.push_back(Lowering::type({out.operand_type(e, i).dtype, {}}));
  }
  for (int i = 0; i < e.results; ++i) out_types.push_back(Lowering::type(out.result_type(e, i)));
  const std::vector<Ssa> ins = out.operands(e), results = out.fresh(out_types.size());
  out.define_all(e, results);
  out.write("    {}\"stablehlo.reduce\"({}) (", Lowering::assigned(results), Lowering::list(ins));
  out.region(elements, [&](std::span<const Ssa> a) {
    return Lowering::typed(out.inlined(*p.function, a), elements);
  });
  out.write(") {{dimensions = {}}} : ({}) -> ({})\n", array_text(p.axes), fmt::join(in_types, ", "),
            fmt::join(out_types, ", "));
}

ParamsPtr fold_with_programs(const Params* params, std::span<const ProgramPtr> programs) {
  FoldParams p = as<FoldParams>(*params);
  p.function = programs[0];
  return make_params(std::move(p));
}

constexpr Primitive fold_p{.name = "reduce",
                           .type = fold_type,
                           .jvp = fold_jvp,
                           .with_programs = fold_with_programs,
                           .batch = fold_batch,
                           .lower = fold_lower};

static_assert(complete(fold_p));

/// Traces the user's function on scalars: twice the types in, the types out. Refuses one that uses
/// something from outside or has effects.
ProgramPtr reducer_of(const CombineFunction& function, const Types& elements) {
  Types arguments = elements;
  arguments.insert(arguments.end(), elements.begin(), elements.end());
  const std::size_t count = elements.size();
  const Closed closed = trace_program(
      "reduce", arguments, [&](TensorSpan a) { return function(head(a, count), tail(a, count)); });
  refuse_effects("reduce", *closed.program);
  if (!closed.captures.empty())
    throw_type_error(fmt::format(
        "reduce: the function may use its arguments and plain numbers only; it uses a {} from "
        "outside",
        to_string(closed.captures[0].type())));
  const Types results = closed.program->output_types();
  check(results.size() == elements.size(), "reduce: the function must return {} tensors, got {}",
        elements.size(), results.size());
  for (std::size_t i = 0; i < results.size(); ++i)
    check(results[i].dtype == elements[i].dtype && results[i].dims.empty(),  // reduce_c6
          "reduce: result {} of the function must be {}, got {}", i, to_string(elements[i]),
          to_string(results[i]));
  return closed.program;
}

// --- associative scan ---

/// Returns even[0], odd[0], even[1], odd[1], ... along the axis; `even` may have one more.
Tensor interleaved(const Tensor& even, const Tensor& odd, std::int64_t axis) {
  const std::int64_t pairs = at(odd.dims(), axis), evens = at(even.dims(), axis);
  Dims dims = odd.dims();
  at(dims, axis) = 2 * pairs;
  const Tensor both = reshape(stack({slice_axis(even, axis, 0, pairs), odd}, axis + 1), dims);
  if (evens == pairs) return both;
  return concatenate({both, slice_axis(even, axis, pairs, evens)}, axis);
}

/// Slices all tensors alike.
Tensors parts(const Tensors& x, std::int64_t axis, std::int64_t start, std::int64_t stop,
              std::int64_t stride) {
  Tensors out;
  for (const Tensor& t : x)
    out.push_back(slice_axis(t, axis, start, std::max(start, stop), stride));
  return out;
}

/// Combines neighbours and scans these pairs: that gives the results at 1, 3, 5 ... The result at
/// an even place is the one before it combined with the element there; the first is the first
/// element.
Tensors scanned(const CombineFunction& combine, const Tensors& x, std::int64_t axis) {
  const std::int64_t n = at(x[0].dims(), axis), pairs = n / 2;
  if (n < 2) return x;
  const Tensors odd = scanned(
      combine, combine(parts(x, axis, 0, 2 * pairs, 2), parts(x, axis, 1, 2 * pairs, 2)), axis);
  const std::int64_t evens = (n + 1) / 2;
  Tensors even = parts(x, axis, 0, 1, 1), out;
  if (evens > 1) {
    const Tensors later = combine(parts(odd, axis, 0, evens - 1, 1), parts(x, axis, 2, n, 2));
    for (std::size_t i = 0; i < x.size(); ++i) even[i] = concatenate({even[i], later[i]}, axis);
  }
  for (std::size_t i = 0; i < x.size(); ++i) out.push_back(interleaved(even[i], odd[i], axis));
  return out;
}

}  // namespace

std::vector<Tensor> reduce(const CombineFunction& function, const std::vector<Tensor>& x,
                           const std::vector<Operand>& initial, const ReduceOptions& options,
                           Place place) {
  PlaceScope scope(place);
  check(!x.empty() && x.size() == initial.size(),
        "reduce: each of {} tensors needs an initial value, got {}", x.size(), initial.size());
  Types elements;
  Tensors operands = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    elements.push_back({x[i].dtype(), {}});
    check(initial[i].tensor().rank() == 0, "reduce: initial values must be scalars, got {}",
          to_string(initial[i].tensor().type()));
    operands.push_back(fit_within("reduce", "the initial value", initial[i].tensor(), elements[i]));
  }
  const Dims axes = axes_or_all("reduce", options.axes, x[0].rank());
  Tensors y =
      bind_n(fold_p, make_params(FoldParams{axes, reducer_of(function, elements)}), operands);
  if (!options.keep_dims) return y;
  for (Tensor& t : y) t = reshape(t, kept_dims(x[0].dims(), axes));
  return y;
}

Tensor reduce(const std::function<Tensor(Tensor, Tensor)>& function, const Operand& x,
              const Operand& initial, const ReduceOptions& options) {
  return reduce([&](const Tensors& a, const Tensors& b) { return Tensors{function(a[0], b[0])}; },
                {x.tensor()}, {initial}, options, x.place())[0];
}

std::vector<Tensor> associative_scan(const CombineFunction& function, const std::vector<Tensor>& x,
                                     std::int64_t axis, bool backwards, Place place) {
  PlaceScope scope(place);
  check(!x.empty(), "associative_scan: at least one tensor is needed");
  axis = normal_axis("associative_scan", axis, x[0].rank());
  for (const Tensor& t : x)
    check(t.rank() == x[0].rank() && at(t.dims(), axis) == at(x[0].dims(), axis),
          "associative_scan: {} and {} differ on axis {}", to_string(x[0].type()),
          to_string(t.type()), axis);
  const CombineFunction checked = [&](const Tensors& a, const Tensors& b) {
    Tensors y = function(a, b);
    check(y.size() == x.size(), "associative_scan: the function must return {}, it returned {}",
          plural(x.size(), "tensor"), y.size());
    return y;
  };
  if (!backwards) return scanned(checked, x, axis);
  Tensors flipped;
  for (const Tensor& t : x) flipped.push_back(flip(t, axis));
  Tensors y = scanned(checked, flipped, axis);
  for (Tensor& t : y) t = flip(t, axis);
  return y;
}

}  // namespace postern
