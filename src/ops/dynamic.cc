// dynamic_slice and dynamic_update_slice: one slice whose start is known when the program runs.
#include <postern/indexing.h>

#include "core/lists.h"
#include "ops/axes.h"
#include "ops/family.h"
#include "ops/index.h"
#include "ops/shape.h"

namespace postern::internal {

namespace {

struct SizesParams {
  Dims sizes;
};

void check_starts(const char* op, const Type& x, TypeSpan operands, std::size_t first) {
  check(operands.size() - first == x.dims.size(),  // dynamic_slice_c2
        "{}: {} starts are given for {}", op, operands.size() - first, to_string(x));
  for (std::size_t i = first; i < operands.size(); ++i)
    check(operands[i].rank() == 0 && is_integer(operands[i].dtype) &&
              operands[i].dtype == operands[first].dtype,  // dynamic_slice_c3
          "{}: starts must be integer scalars of one dtype, got {}", op, to_string(operands[i]));
}

Types dynamic_slice_type(const Params* params, TypeSpan operands) {
  const Dims& sizes = as<SizesParams>(*params).sizes;
  const Type& x = operands[0];
  check_starts("dynamic_slice", x, operands, 1);
  check(sizes.size() == x.dims.size(), "dynamic_slice: {} sizes are given for {}", sizes.size(),
        to_string(x));
  for (std::size_t i = 0; i < sizes.size(); ++i)
    check(sizes[i] >= 0 && sizes[i] <= x.dims[i],  // dynamic_slice_c4
          "dynamic_slice: sizes {} do not fit {}", dims_to_string(sizes), to_string(x));
  return {Type{x.dtype, sizes, x.weak}};
}

Types update_type(const Params*, TypeSpan operands) {
  const Type &x = operands[0], &update = operands[1];
  check_starts("dynamic_update_slice", x, operands, 2);
  check(update.dtype == x.dtype && update.rank() == x.rank(),  // dynamic_update_slice_c2, c3
        "dynamic_update_slice: the update must have dtype and rank of {}, got {}", to_string(x),
        to_string(update));
  for (std::size_t i = 0; i < x.dims.size(); ++i)
    check(update.dims[i] <= x.dims[i],  // dynamic_update_slice_c6
          "dynamic_update_slice: {} does not fit {}", to_string(update), to_string(x));
  return {Type{x.dtype, x.dims, x.weak && update.weak}};
}

// --- derivatives ---

Tensors dynamic_slice_transpose(const Op&, TensorSpan ct, TensorSpan x, TypeSpan types) {
  Tensors out(x.size());
  out[0] = update_from(zeros_of(types[0]), ct[0], x.subspan(1));
  return out;
}

Tensors update_transpose(const Op&, TensorSpan ct, TensorSpan x, TypeSpan types) {
  Tensors out(x.size());
  if (!x[0].has_value()) out[0] = update_from(ct[0], zeros_of(types[1]), x.subspan(2));
  if (!x[1].has_value()) out[1] = slice_from(ct[0], x.subspan(2), types[1].dims);
  return out;
}

// --- batching ---

/// Returns the starts, of their own for each element of the batch, as index vectors [size, axes];
/// their dtype holds every index already.
Tensor start_vectors(TensorSpan starts, std::span<const int> axes, std::int64_t size) {
  Tensors columns;
  for (std::size_t i = 0; i < starts.size(); ++i)
    columns.push_back(reshape(batch_front(starts[i], axes[i], size), {size, 1}));
  if (columns.empty()) return zeros({DType::s32, {size, 0}});
  return concatenate(columns, 1);
}

/// Returns how a gather or scatter takes one slice for each element of the batch: all axes of the
/// slice, of this rank, stand in the result behind the batch axis. When x is mapped too, both batch
/// axes, 0, go together.
IndexAxes one_slice_each(std::int64_t rank, bool x_is_mapped) {
  IndexAxes axes;
  axes.window = range(1, rank + 1);
  axes.indexed = x_is_mapped ? axes.window : range(0, rank);
  if (x_is_mapped) axes.batch_x = axes.batch_indices = {0};
  return axes;
}

/// Puts a start of 0, for the batch axis in front, before the others.
Tensors with_zero(const Tensor& like, TensorSpan starts) {
  Tensors out{zeros({like.dtype(), {}})};
  out.insert(out.end(), starts.begin(), starts.end());
  return out;
}

Batched dynamic_slice_batch(const Op& op, TensorSpan x, std::span<const int> axes,
                            std::int64_t size, const Tensor&) {
  Dims sizes = op.as<SizesParams>().sizes;
  const IndexAxes each = one_slice_each(std::ssize(sizes), axes[0] >= 0);
  const Tensor from = batch_front(x[0], axes[0], size, false);
  if (!any_mapped(axes.subspan(1))) {
    sizes.insert(sizes.begin(), size);
    return {{slice_from(from, with_zero(x[1], x.subspan(1)), sizes)}, {0}};
  }
  if (axes[0] >= 0) sizes.insert(sizes.begin(), std::min<std::int64_t>(size, 1));
  const Tensor vectors = start_vectors(x.subspan(1), axes.subspan(1), size);
  return {{gather(from, vectors, each, sizes, OutOfRange::clip)}, {0}};
}

Batched update_batch(const Op&, TensorSpan x, std::span<const int> axes, std::int64_t size,
                     const Tensor&) {
  const Tensor to = batch_front(x[0], axes[0], size);
  const Tensor update = batch_front(x[1], axes[1], size);
  if (!any_mapped(axes.subspan(2)))
    return {{update_from(to, update, with_zero(x[2], x.subspan(2)))}, {0}};
  const Tensor vectors = start_vectors(x.subspan(2), axes.subspan(2), size);
  const IndexAxes each = one_slice_each(to.rank() - 1, true);
  return {
      {scatter(Update::set, to, vectors, update, each, {.mode = OutOfRange::clip, .unique = true})},
      {0}};
}

// --- the family ---

void dynamic_slice_lower(Lowering& out, const Equation& e) {
  out.simple(e, "dynamic_slice", "slice_sizes = " + array_text(as<SizesParams>(*e.params).sizes));
}

constexpr Primitive dynamic_slice_p =
    linear("dynamic_slice", nullptr, dynamic_slice_type, dynamic_slice_transpose,
           dynamic_slice_batch, dynamic_slice_lower);
constexpr Primitive dynamic_update_slice_p = linear("dynamic_update_slice", "dynamic_update_slice",
                                                    update_type, update_transpose, update_batch);

constexpr const Primitive* dynamic_family[] = {&dynamic_slice_p, &dynamic_update_slice_p};
static_assert(complete(dynamic_family));

/// Returns an integer scalar in `dtype`, counted from the end of `extent` when negative; a number
/// of C++ at once, so that it stays a constant.
Tensor normal_start(const Tensor& start, std::int64_t extent, DType dtype) {
  if (const detail::HostValue* host = host_scalar(start)) {
    const Number given = read_number(host->type.dtype, host->data.get());
    std::int64_t first = given.integer;  // fits, also of u64: normal_starts sees to it
    if (given.kind == Number::Kind::integer) first = from_front(first, extent);
    return full_of(integer_number(first), {dtype, {}});
  }
  const Tensor converted = convert_to(start, dtype);
  if (!is_signed(start.dtype())) return converted;
  return where(converted < 0, converted + extent, converted);
}

/// Returns starts in one dtype, s32 if that is what all of them are, and counted from the front.
Tensors normal_starts(const char* op, const Tensor& x, const std::vector<Operand>& starts) {
  check(starts.size() == x.dims().size(), "{}: {} starts are given for {}", op, starts.size(),
        to_string(x.type()));
  Tensors out;
  DType dtype = DType::s32;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const Tensor& start = starts[i].tensor();
    check(start.rank() == 0, "{}: starts must be integer scalars, got {}", op,
          to_string(start.type()));
    Tensor wide = wide_indices(op, start, x.dims()[i]);
    if (wide.dtype() != DType::s32) dtype = DType::s64;
    if (wide.dtype() == DType::u64) wide = minimum(wide, x.dims()[i]);  // so that it fits s64
    out.push_back(wide);
  }
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = normal_start(out[i], x.dims()[i], dtype);
  return out;
}

}  // namespace

Tensor slice_from(const Tensor& x, TensorSpan starts, const Dims& sizes) {
  if (x.rank() == 0 && sizes.empty()) return x;
  Tensors operands{x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return bind1(dynamic_slice_p, make_params(SizesParams{sizes}), operands);
}

Tensor update_from(const Tensor& x, const Tensor& update, TensorSpan starts) {
  if (x.rank() == 0 && update.rank() == 0) return update;
  Tensors operands{x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return bind1(dynamic_update_slice_p, nullptr, operands);
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

Tensor dynamic_slice(const Operand& operand, const std::vector<Operand>& starts,
                     const Dims& sizes) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  return slice_from(x, normal_starts("dynamic_slice", x, starts), sizes);
}

Tensor dynamic_update_slice(const Operand& operand, const Operand& update,
                            const std::vector<Operand>& starts) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  const Tensor fitted = fit_within("dynamic_update_slice", "the update", update.tensor(),
                                   {x.dtype(), update.tensor().dims()});
  return update_from(x, fitted, normal_starts("dynamic_update_slice", x, starts));
}

Tensor dynamic_index(const Operand& operand, const Operand& index, std::int64_t axis) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  axis = normal_axis("dynamic_index", axis, x.rank());
  std::vector<Operand> starts(x.dims().size(), Operand(0));
  starts[size_of(axis)] = index;
  return squeeze(dynamic_slice(operand, starts, kept_dims(x.dims(), {axis})), {axis});
}

}  // namespace postern
