// gather and scatter: slices of a tensor read, or updated, at indices that are known when the
// program runs.
#include <postern/indexing.h>

#include "core/enum.h"
#include "ops/axes.h"
#include "ops/composed.h"
#include "ops/elements.h"
#include "ops/family.h"
#include "ops/index.h"
#include "ops/index_axes.h"
#include "ops/reduce.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

struct GatherParams {
  IndexAxes axes;
  Dims sizes;
  bool in_range;  // promised; else slices out of range are zero
};

struct ScatterParams {
  IndexAxes axes;
  bool unique, sorted, in_range;
};

Types gather_type(const Params* params, TypeSpan operands) {
  const auto& p = as<GatherParams>(*params);
  const Type &x = operands[0], &indices = operands[1];
  check_axes("gather", p.axes, x, indices);
  check(p.sizes.size() == x.dims.size(),  // gather_c11
        "gather: {} sizes are named for {}", p.sizes.size(), to_string(x));
  for (std::int64_t i = 0; i < x.rank(); ++i) {
    const bool is_dropped = contains(p.axes.dropped, i);
    const std::int64_t least = is_dropped ? 1 : 0;
    std::int64_t most = at(x.dims, i);
    if (is_dropped || contains(p.axes.batch_x, i)) most = std::min<std::int64_t>(most, 1);
    check(at(p.sizes, i) >= least && at(p.sizes, i) <= most,  // gather_c8, c12
          "gather: slices of sizes {} do not fit {}, or are not 1 on the dropped axes {}",
          dims_to_string(p.sizes), to_string(x), dims_to_string(p.axes.dropped));
  }
  const Dims kept = pick(p.sizes, window_axes(p.axes, x.rank()));
  return {Type{x.dtype, gathered_dims(p.axes, kept, indices), x.weak}};
}

Types scatter_type(const Params* params, TypeSpan operands) {
  const auto& p = as<ScatterParams>(*params);
  const Type &x = operands[0], &indices = operands[1], &updates = operands[2];
  check_axes("scatter", p.axes, x, indices);
  check(updates.dtype == x.dtype,  // scatter_c6
        "scatter: updates {} must have the dtype of {}", to_string(updates), to_string(x));
  check(updates.rank() == indices.rank() - 1 + std::ssize(p.axes.window),  // scatter_c2, c4
        "scatter: updates {} have not the axes of the indices {} and {} window axes",
        to_string(updates), to_string(indices), p.axes.window.size());
  const Dims sizes = slice_sizes(p.axes, x, updates.dims);
  const Dims kept = pick(sizes, window_axes(p.axes, x.rank()));
  check(gathered_dims(p.axes, kept, indices) == updates.dims,
        "scatter: updates {} do not fit indices {}", to_string(updates), to_string(indices));
  for (std::int64_t i = 0; i < x.rank(); ++i)
    check(at(sizes, i) <= at(x.dims, i) || updates.size() == 0,  // scatter_c3
          "scatter: updates {} do not fit {}", to_string(updates), to_string(x));
  return {Type{x.dtype, x.dims, x.weak}};
}

Tensor bind_gather(const Primitive& p, const Tensor& x, const Tensor& indices,
                   const GatherParams& params) {
  return bind1(p, make_params(params), {x, indices});
}
Tensor bind_scatter(const Primitive& p, const Tensor& x, const Tensor& indices,
                    const Tensor& updates, const ScatterParams& params) {
  return bind1(p, make_params(params), {x, indices, updates});
}

// --- indices out of range ---

/// Returns an index vector of the last starts at which slices lie within x.
Tensor last_starts(const Type& x, const Tensor& indices, const IndexAxes& axes, const Dims& sizes) {
  const Type one{indices.dtype(), {1}};
  Tensors parts;
  for (std::int64_t a : axes.indexed) parts.push_back(full(one, at(x.dims, a) - at(sizes, a)));
  if (parts.empty()) return zeros({indices.dtype(), {0}});
  return concatenate(parts, 0);
}

/// Returns pred of the gathered result's shape: whether the slice that an element is of lies within
/// x.
Tensor inside(const Type& x, const Tensor& indices, const IndexAxes& axes, const Dims& sizes) {
  const Tensor fits = (indices <= last_starts(x, indices, axes, sizes)) & (indices >= 0);
  const Tensor slice_fits = all(fits, {.axes = Dims{-1}});
  const Dims dims = gathered_dims(axes, pick(sizes, window_axes(axes, x.rank())), indices.type());
  const Dims axes_of_vectors = other_axes(std::ssize(dims), axes.window);
  return broadcast_in_dim(slice_fits, dims, axes_of_vectors);
}

Tensor clipped(const Type& x, const Tensor& indices, const IndexAxes& axes, const Dims& sizes) {
  return maximum(minimum(indices, last_starts(x, indices, axes, sizes)), 0);
}

// --- derivatives ---

extern const Primitive gather_p, gather_or_missing_p, scatter_p, scatter_add_p, scatter_multiply_p,
    scatter_min_p, scatter_max_p;

Tensors gather_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types) {
  const auto& p = op.as<GatherParams>();
  return {bind_scatter(scatter_add_p, zeros_of(types[0]), x[1], ct[0],
                       {.axes = p.axes, .unique = false, .sorted = false, .in_range = p.in_range}),
          Tensor()};
}

// What is missing has a tangent of 0, as gather_p gives it.
Jvp gather_or_missing_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const Tensor y = bind1(op.primitive, op.params, x);
  return {{y}, {bind1(gather_p, op.params, {dx[0], x[1]})}};
}

Tensors scatter_add_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types) {
  const auto& p = op.as<ScatterParams>();
  const Dims sizes = slice_sizes(p.axes, types[0], types[2].dims);
  const auto of_updates = [&] {
    return bind_gather(gather_p, ct[0], x[1],
                       {.axes = p.axes, .sizes = sizes, .in_range = p.in_range});
  };
  return {ct[0], Tensor(), cotangent_for(x[2], of_updates)};
}

/// Returns what z has where the scatter `op` writes its updates, in their shape. Of updates out of
/// range it is anything: callers scatter what they make of it by `op` again, which drops those.
Tensor gathered_back(const Op& op, const Tensor& z, const Tensor& indices, const Tensor& updates) {
  const IndexAxes& axes = op.as<ScatterParams>().axes;
  const Dims sizes = slice_sizes(axes, z.type(), updates.dims());
  return bind_gather(gather_p, z, indices, {.axes = axes, .sizes = sizes, .in_range = true});
}

// Of several updates of one element one wins. So each index vector gets a number, from 1 on, that
// is scattered like the updates themselves: an update has won where its number is found again.
// Elements of x with number 0 were not written to.
Jvp scatter_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<ScatterParams>();
  const Tensor z = bind1(op.primitive, op.params, x);
  const Dims vectors(x[1].dims().begin(), x[1].dims().end() - 1);
  const Tensor numbers = reshape(iota({DType::s32, {product(vectors)}}, 0) + 1, vectors);
  const Tensor own_number =
      broadcast_in_dim(numbers, x[2].dims(), other_axes(x[2].rank(), p.axes.window));
  const Tensor winner =
      bind1(scatter_p, op.params, {zeros({DType::s32, z.dims()}), x[1], own_number});
  Tensor dz;
  if (dx[0].has_value()) dz = where(equal(winner, 0), dx[0], zeros_of(dx[0].type()));
  if (dx[2].has_value()) {
    Tensor of_winners = dx[2];
    if (!p.unique)
      of_winners = where(equal(gathered_back(op, winner, x[1], x[2]), own_number), of_winners,
                         zeros_of(of_winners.type()));
    dz = bind1(scatter_add_p, op.params, {or_zeros_of(dz, z.type()), x[1], of_winners});
  }
  return {{z}, {dz}};
}

Jvp scatter_multiply_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const Tensor z = bind1(op.primitive, op.params, x);
  Tensor dz;
  if (dx[0].has_value())
    dz = dx[0] * bind1(scatter_multiply_p, op.params, {ones(z.type()), x[1], x[2]});
  if (dx[2].has_value()) {
    check(op.as<ScatterParams>().unique,
          "scatter: the derivative of a product by its updates needs unique indices: say so, or "
          "multiply by take(...) instead");
    const Tensor change = gathered_back(op, x[0], x[1], x[2]) * dx[2];
    dz = bind1(scatter_add_p, op.params, {or_zeros_of(dz, z.type()), x[1], change});
  }
  return {{z}, {dz}};
}

// Of min and max: the element of x and the updates that equal the result share the derivative.
Jvp scatter_choice_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const Tensor z = bind1(op.primitive, op.params, x);
  const DType work = sum_dtype(z.dtype());  // f16 does not count far
  // 1 where an element of x, or of the updates, is the result; else 0.
  const Tensor x_chosen = convert_to(equal(x[0], z), work);
  const Tensor chosen = convert_to(equal(gathered_back(op, z, x[1], x[2]), x[2]), work);
  const Tensor count = bind1(scatter_add_p, op.params, {x_chosen, x[1], chosen});
  Tensor dz;
  if (dx[0].has_value()) dz = convert_to(dx[0], work) * x_chosen;
  if (dx[2].has_value()) {
    const Tensor change = convert_to(dx[2], work) * chosen;
    dz = bind1(scatter_add_p, op.params, {or_zeros_of(dz, count.type()), x[1], change});
  }
  return {{z}, {convert_to(dz / count, z.dtype(), z.type().weak)}};
}

// --- batching ---

Batched gather_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                     const Tensor&) {
  GatherParams p = op.as<GatherParams>();
  const bool of_x = axes[0] >= 0, of_indices = axes[1] >= 0;
  p.axes = with_batch(p.axes, of_x, of_indices);
  if (of_x) {  // a slice has the whole batch, or its own element
    std::int64_t extent = size;
    if (of_indices) extent = std::min<std::int64_t>(extent, 1);
    p.sizes.insert(p.sizes.begin(), extent);
  }
  return {
      {bind1(op.primitive, make_params(p),
             {batch_front(x[0], axes[0], size, false), batch_front(x[1], axes[1], size, false)})},
      {0}};
}

Batched scatter_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                      const Tensor&) {
  ScatterParams p = op.as<ScatterParams>();
  p.axes = with_batch(p.axes, true, axes[1] >= 0);
  // The result has the batch, and so must x and the updates; indices may be shared.
  const Tensor to = batch_front(x[0], axes[0], size);
  const Tensor indices = batch_front(x[1], axes[1], size, /*force=*/false);
  return {{bind1(op.primitive, make_params(p), {to, indices, batch_front(x[2], axes[2], size)})},
          {0}};
}

// --- lowering ---

void plain_gather_lower(Lowering& out, const Equation& e, const GatherParams& p) {
  if (const DType dtype = out.result_type(e).dtype; is_packed(dtype))  // see convert_lower
    return lower_as(out, e, [&](TensorSpan x) {
      return Tensors{convert_to(bind_gather(gather_p, unpacked(x[0]), x[1], p), dtype)};
    });
  out.simple(e, "gather",
             fmt::format("dimension_numbers = #stablehlo.gather<offset_dims = {}, "
                         "collapsed_slice_dims = {}, operand_batching_dims = {}, "
                         "start_indices_batching_dims = {}, start_index_map = {}, index_vector_dim "
                         "= {}>, slice_sizes = {}, indices_are_sorted = false",
                         dims_to_string(p.axes.window), dims_to_string(p.axes.dropped),
                         dims_to_string(p.axes.batch_x), dims_to_string(p.axes.batch_indices),
                         dims_to_string(p.axes.indexed), out.operand_type(e, 1).rank() - 1,
                         array_text(p.sizes)));
}

/// Gathers as StableHLO does, which moves slices into range, and replaces those that were out of
/// it.
void checked_gather_lower(Lowering& out, const Equation& e, const GatherParams& p,
                          Tensor (*replacement)(DType)) {
  lower_as(out, e, [&](TensorSpan x) {
    const Tensor slices =
        bind_gather(gather_p, x[0], x[1], {.axes = p.axes, .sizes = p.sizes, .in_range = true});
    const Tensor fits = inside(x[0].type(), x[1], p.axes, p.sizes);
    return Tensors{where(fits, slices, replacement(slices.dtype()))};
  });
}

Tensor zero(DType dtype) { return zeros_of({dtype, {}}); }
/// Returns what OutOfRange::fill promises: NaN or, where a dtype has none, an extreme number.
Tensor missing(DType dtype) {
  if (dtype == DType::pred) return full({dtype, {}}, true);
  if (dtype == DType::f4e2m1fn) return zero(dtype);  // has no NaN
  if (is_signed(dtype)) return full_of(lowest_of(dtype), {dtype, {}});
  if (is_unsigned(dtype)) return full_of(highest_of(dtype), {dtype, {}});
  return full({dtype, {}}, std::numeric_limits<double>::quiet_NaN());
}

void gather_lower(Lowering& out, const Equation& e) {
  const auto& p = as<GatherParams>(*e.params);
  if (p.in_range) return plain_gather_lower(out, e, p);
  checked_gather_lower(out, e, p, zero);
}
void gather_or_missing_lower(Lowering& out, const Equation& e) {
  checked_gather_lower(out, e, as<GatherParams>(*e.params), missing);
}

/// Writes the larger or smaller one, or NaN, which XLA:CPU's own maximum of floats may drop here.
Ssa extremum(const Elements& to, bool largest, Ssa old, Ssa update) {
  if (!is_float(to.type().dtype)) return to.two(largest ? "maximum" : "minimum", old, update);
  const Ssa wins = to.compare(largest ? "GE" : "LE", old, update);
  const Ssa is_nan = to.is_nan(old);
  return to.select(to.either(wins, is_nan), old, update);
}

/// Writes what becomes of an old element that meets an update.
Ssa updated(const Elements& to, Update how, Ssa old, Ssa update) {
  switch (how) {
    case Update::add: return to.two("add", old, update);
    case Update::multiply: return to.two("multiply", old, update);
    case Update::min: return extremum(to, false, old, update);
    case Update::max: return extremum(to, true, old, update);
    default: return update;
  }
}

/// Returns how many updates may meet in one element: one for each index vector of a batch.
std::int64_t updates_of_one(const ScatterParams& p, const Type& indices) {
  std::int64_t count = 1;
  for (std::int64_t axis = 0; axis + 1 < indices.rank(); ++axis)  // the last has the vectors
    if (!contains(p.axes.batch_indices, axis)) count *= at(indices.dims, axis);
  return count;
}

template <Update how>
void scatter_lower(Lowering& out, const Equation& e) {
  const auto& p = as<ScatterParams>(*e.params);
  const Type element{out.result_type(e).dtype, {}};
  const DType work = sum_dtype(element.dtype);
  const bool may_meet = !p.unique && updates_of_one(p, out.operand_type(e, 1)) > 1;
  const bool accumulates = how == Update::add || how == Update::multiply;
  // Short floats do not count far; where each element is updated once they need not.
  if (accumulates && work != element.dtype && may_meet)
    return lower_as(out, e, [&](TensorSpan x) {
      const Tensor wide =
          bind_scatter(*e.primitive, convert_to(x[0], work), x[1], convert_to(x[2], work), p);
      return Tensors{convert_to(wide, element.dtype)};
    });
  const Ssa result = out.fresh();
  const std::string text = Lowering::type(element);
  out.write("    %{} = \"stablehlo.scatter\"(%{}, %{}, %{}) (", result.id, out.operand(e, 0).id,
            out.operand(e, 1).id, out.operand(e, 2).id);
  out.region({text, text}, [&](std::span<const Ssa> old_and_new) -> std::vector<Lowering::Typed> {
    return {{updated({out, element}, how, old_and_new[0], old_and_new[1]), text}};
  });
  out.write(
      ") {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {}, "
      "inserted_window_dims = {}, input_batching_dims = {}, scatter_indices_batching_dims = {}, "
      "scatter_dims_to_operand_dims = {}, index_vector_dim = {}>, unique_indices = {}, "
      "indices_are_sorted = {}}} : ({}, {}, {}) -> {}\n",
      dims_to_string(p.axes.window), dims_to_string(p.axes.dropped), dims_to_string(p.axes.batch_x),
      dims_to_string(p.axes.batch_indices), dims_to_string(p.axes.indexed),
      out.operand_type(e, 1).rank() - 1, p.unique, p.sorted, Lowering::type(out.operand_type(e, 0)),
      Lowering::type(out.operand_type(e, 1)), Lowering::type(out.operand_type(e, 2)),
      Lowering::type(out.result_type(e)));
  out.define(e, 0, result);
}

// --- the family ---

using JvpRule = Jvp (*)(const Op&, TensorSpan, TensorSpan);
template <Update how>
constexpr Primitive updating(const char* name, JvpRule jvp) {
  return {.name = name,
          .type = scatter_type,
          .jvp = jvp,
          .batch = scatter_batch,
          .lower = scatter_lower<how>};
}

constexpr Primitive gather_p =
    linear("gather", nullptr, gather_type, gather_transpose, gather_batch, gather_lower);
constexpr Primitive gather_or_missing_p{.name = "gather_or_missing",
                                        .type = gather_type,
                                        .jvp = gather_or_missing_jvp,
                                        .transpose = gather_transpose,
                                        .linear = Linear::first,
                                        .batch = gather_batch,
                                        .lower = gather_or_missing_lower};
constexpr Primitive scatter_add_p =
    linear("scatter_add", nullptr, scatter_type, scatter_add_transpose, scatter_batch,
           scatter_lower<Update::add>);
constexpr Primitive scatter_p = updating<Update::set>("scatter", scatter_jvp);
constexpr Primitive scatter_multiply_p =
    updating<Update::multiply>("scatter_multiply", scatter_multiply_jvp);
constexpr Primitive scatter_min_p = updating<Update::min>("scatter_min", scatter_choice_jvp);
constexpr Primitive scatter_max_p = updating<Update::max>("scatter_max", scatter_choice_jvp);

constexpr const Primitive* gather_family[] = {&gather_p,     &gather_or_missing_p, &scatter_add_p,
                                              &scatter_p,    &scatter_multiply_p,  &scatter_min_p,
                                              &scatter_max_p};
static_assert(complete(gather_family));

const Primitive& primitive_of(Update how) {
  switch (how) {
    case Update::set: return scatter_p;
    case Update::add: return scatter_add_p;
    case Update::multiply: return scatter_multiply_p;
    case Update::min: return scatter_min_p;
    case Update::max: return scatter_max_p;
  }
  check_enum("scatter: Update", how, Update::max);
  return scatter_p;
}

std::int64_t largest_extent(const Type& x) {
  if (x.dims.empty()) return 0;
  return *std::ranges::max_element(x.dims);
}

}  // namespace

Tensor gather(const Operand& operand, const Operand& indices, const IndexAxes& axes,
              const Dims& sizes, OutOfRange mode) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  const Tensor wide = wide_indices("gather", indices.tensor(), largest_extent(x.type()));
  check_enum("gather: OutOfRange", mode, OutOfRange::promise);
  const GatherParams params{.axes = axes, .sizes = sizes, .in_range = mode != OutOfRange::fill};
  if (mode == OutOfRange::fill) return bind_gather(gather_or_missing_p, x, wide, params);
  if (mode == OutOfRange::promise) return bind_gather(gather_p, x, wide, params);
  const Type* types[] = {&x.type(), &wide.type()};
  gather_type(make_params(params).get(), {types, 2});  // refuses axes that `clipped` would look at
  return bind_gather(gather_p, x, clipped(x.type(), wide, axes, sizes), params);
}

Tensor scatter(Update how, const Operand& operand, const Operand& indices, const Operand& given,
               const IndexAxes& axes, const ScatterOptions& options) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  const Tensor updates =
      fit_within("scatter", "updates", given.tensor(), {x.dtype(), given.tensor().dims()});
  Tensor wide = wide_indices("scatter", indices.tensor(), largest_extent(x.type()));
  check_enum("scatter: OutOfRange", options.mode, OutOfRange::promise);
  const ScatterParams params{.axes = axes,
                             .unique = options.unique,
                             .sorted = options.sorted,
                             .in_range = options.mode != OutOfRange::fill};
  const Type* types[] = {&x.type(), &wide.type(), &updates.type()};
  scatter_type(make_params(params).get(), {types, 3});  // as in gather, before `clipped`
  if (options.mode == OutOfRange::clip)
    wide = clipped(x.type(), wide, axes, slice_sizes(axes, x.type(), updates.dims()));
  return bind_scatter(primitive_of(how), x, wide, updates, params);
}

}  // namespace postern
