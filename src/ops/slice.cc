// Joining tensors and cutting them: concatenate, slice, pad.
#include <algorithm>

#include "ops/axes.h"
#include "ops/extents.h"
#include "ops/family.h"
#include "ops/on_host.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

// --- concatenate ---

struct AxisParams {
  std::int64_t axis;
};

Types concatenate_type(const Params* params, TypeSpan operands) {
  const std::int64_t axis = as<AxisParams>(*params).axis;
  Type type = operands[0];
  const Dims off_axis = other_axes(type.rank(), {axis});
  for (std::size_t i = 1; i < operands.size(); ++i) {
    const Type& other = operands[i];
    check(other.dtype == type.dtype && other.rank() == type.rank(),
          "concatenate: {} and {} differ in dtype or rank", to_string(type), to_string(other));
    check(pick(other.dims, off_axis) == pick(type.dims, off_axis),  // concatenate_c2
          "concatenate: {} and {} differ off axis {}", to_string(operands[0]), to_string(other),
          axis);
    at(type.dims, axis) = extent_sum(at(type.dims, axis), at(other.dims, axis));
    type.weak = type.weak && other.weak;
  }
  return {std::move(type)};
}
Tensors concatenate_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types) {
  const std::int64_t axis = op.as<AxisParams>().axis;
  Tensors out(x.size());
  std::int64_t start = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::int64_t extent = at(types[i].dims, axis);
    if (!x[i].has_value()) out[i] = slice_axis(ct[0], axis, start, start + extent);
    start += extent;
  }
  return out;
}
Batched concatenate_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                          const Tensor& mask) {
  const AxisParams behind{op.as<AxisParams>().axis + 1};
  return front_batch({op.primitive, make_params(behind)}, x, axes, size, mask);
}
void concatenate_lower(Lowering& out, const Equation& e) {
  out.simple(e, "concatenate", fmt::format("dimension = {} : i64", as<AxisParams>(*e.params).axis));
}
bool concatenate_on_host(const Params* params, const HostArrays& a) {
  const std::int64_t axis = as<AxisParams>(*params).axis;
  const Dims to = on_host::row_major(a.results[0].dims);
  std::int64_t first = 0;  // of the result's elements, where the next operand goes
  for (std::size_t i = 0; i < a.types.size(); ++i) {
    const Dims& dims = a.types[i].dims;
    on_host::walk({.dims = dims, .from = on_host::row_major(dims), .to = to, .to_first = first},
                  byte_width(a.types[i].dtype), a.operands[i], a.to[0]);
    first += at(dims, axis) * at(to, axis);
  }
  return true;
}

// --- slice, pad ---

struct SliceParams {
  Dims start, limit, strides;
};

Types slice_type(const Params* params, TypeSpan operands) {
  const auto& p = as<SliceParams>(*params);
  Type type = operands[0];
  const std::size_t rank = type.dims.size();
  check(p.start.size() == rank && p.limit.size() == rank && p.strides.size() == rank,
        "slice: start, limit and strides must have one number for each axis of {}",
        to_string(type));
  for (std::size_t i = 0; i < rank; ++i) {
    check(0 <= p.start[i] && p.start[i] <= p.limit[i] && p.limit[i] <= type.dims[i] &&
              p.strides[i] > 0,  // slice_c3
          "slice: [{}:{}:{}] on axis {} does not fit {}", p.start[i], p.limit[i], p.strides[i], i,
          to_string(operands[0]));
    type.dims[i] = window_places(p.limit[i] - p.start[i], 1, p.strides[i]);
  }
  return {std::move(type)};
}
/// Puts zeros back in the place of all that the slice left out: in front, between and behind.
Tensors slice_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan types) {
  const auto& p = op.as<SliceParams>();
  Dims high, interior;
  for (std::size_t i = 0; i < p.start.size(); ++i) {
    high.push_back(types[0].dims[i] - p.start[i] - spread_extent(ct[0].dims()[i], p.strides[i]));
    interior.push_back(p.strides[i] - 1);
  }
  return {pad(ct[0], zeros_of({ct[0].dtype(), {}}), p.start, high, interior)};
}
Batched slice_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                    const Tensor& mask) {
  const auto& p = op.as<SliceParams>();
  const SliceParams batched{joined({0}, p.start), joined({size}, p.limit), joined({1}, p.strides)};
  return front_batch({op.primitive, make_params(batched)}, x, axes, size, mask);
}
void slice_lower(Lowering& out, const Equation& e) {
  const auto& p = as<SliceParams>(*e.params);
  out.simple(e, "slice",
             fmt::format("start_indices = {}, limit_indices = {}, strides = {}",
                         array_text(p.start), array_text(p.limit), array_text(p.strides)));
}
bool slice_on_host(const Params* params, const HostArrays& a) {
  const auto& p = as<SliceParams>(*params);
  Dims steps = on_host::row_major(a.types[0].dims);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    first += p.start[i] * steps[i];
    steps[i] *= p.strides[i];
  }
  return on_host::moved(a, steps, first);
}

struct PadParams {
  Dims low, high, interior;
};

Types pad_type(const Params* params, TypeSpan operands) {
  const auto& p = as<PadParams>(*params);
  Type type = operands[0];
  check(operands[1].dims.empty() && operands[1].dtype == type.dtype,
        "pad: the value must be a scalar {}, got {}", to_string(type.dtype),
        to_string(operands[1]));
  const std::size_t rank = type.dims.size();
  check(p.low.size() == rank && p.high.size() == rank && p.interior.size() == rank,
        "pad: low, high and interior must have one number for each axis of {}", to_string(type));
  for (std::size_t i = 0; i < rank; ++i) {
    check(p.interior[i] >= 0, "pad: interior must be 0 or more, got {}",
          dims_to_string(p.interior));
    type.dims[i] = extent_sum(spread_extent(type.dims[i], extent_sum(p.interior[i], 1)),
                              extent_sum(p.low[i], p.high[i]));
    check(type.dims[i] >= 0, "pad: axis {} of {} is cut to a negative extent by low {} and high {}",
          i, to_string(operands[0]), p.low[i], p.high[i]);
  }
  return {std::move(type)};
}
/// Returns pred: which elements of x of these extents, padded, are x's.
Tensor inside(const Dims& dims, const PadParams& p) {
  return pad(ones({DType::pred, dims}), Tensor(false), p.low, p.high, p.interior);
}
/// Undoes the outer padding by one with the opposite signs, then picks every (interior + 1)th
/// element. The value's cotangent is the sum of all others, without what would have to cancel.
Tensors pad_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types) {
  const auto& p = op.as<PadParams>();
  Tensors out(2);
  Dims low, high, none(p.low.size(), 0), limit, step;
  for (std::size_t i = 0; i < p.low.size(); ++i) {
    low.push_back(-p.low[i]);
    high.push_back(-p.high[i]);
    step.push_back(p.interior[i] + 1);
    limit.push_back(spread_extent(types[0].dims[i], step[i]));
  }
  const Tensor zero = zeros_of({ct[0].dtype(), {}}), cut = pad(ct[0], zero, low, high, none);
  const Tensor inner = slice(cut, none, limit, step);
  if (!x[0].has_value()) out[0] = inner;
  if (!x[1].has_value()) out[1] = sum(where(inside(types[0].dims, p), zero, ct[0]));
  return out;
}
Batched pad_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                  const Tensor&) {
  const auto& one = op.as<PadParams>();
  const PadParams p{joined({0}, one.low), joined({0}, one.high), joined({0}, one.interior)};
  const Tensor moved = batch_front(x[0], axes[0], size);
  if (axes[1] < 0) return {{bind1(op.primitive, make_params(p), {moved, x[1]})}, {0}};
  // A padding value of its own for each element of the batch: pads a mask, and chooses by it.
  const Tensor zero = zeros_of({moved.dtype(), {}});
  const Tensor padded = pad(moved, zero, p.low, p.high, p.interior);
  return {{where(inside(moved.dims(), p), padded, broadcast_in_dim(x[1], padded.dims(), {0}))},
          {0}};
}
void pad_lower(Lowering& out, const Equation& e) {
  const auto& p = as<PadParams>(*e.params);
  out.simple(e, "pad",
             fmt::format("edge_padding_low = {}, edge_padding_high = {}, interior_padding = {}",
                         array_text(p.low), array_text(p.high), array_text(p.interior)));
}

constexpr Primitive concatenate_p =
    with_on_host(linear("concatenate", "concatenate", concatenate_type, concatenate_transpose,
                        concatenate_batch, concatenate_lower),
                 concatenate_on_host);
constexpr Primitive slice_p = with_on_host(
    linear("slice", "slice", slice_type, slice_transpose, slice_batch, slice_lower), slice_on_host);
constexpr Primitive pad_p = linear("pad", "pad", pad_type, pad_transpose, pad_batch, pad_lower);
constexpr const Primitive* slice_family[] = {&concatenate_p, &slice_p, &pad_p};
static_assert(complete(slice_family));

}  // namespace

Tensor concatenate(TensorSpan parts, std::int64_t axis, Place place) {
  PlaceScope at(place);
  check(!parts.empty(), "concatenate: at least one tensor is needed");
  Type type = parts[0].type();
  check(type.rank() > 0, "concatenate: tensors of rank 1 or more are needed, got {}",
        to_string(type));
  for (const Tensor& t : parts) type = promote("concatenate", type, t.type());
  axis = normal_axis("concatenate", axis, parts[0].rank());
  if (parts.size() == 1) return parts[0];
  Tensors converted;
  DType work = type.dtype;
  if (bit_width(work) == 2) work = unpacked_dtype(work);
  for (const Tensor& t : parts)
    converted.push_back(convert_to(convert_to(t, type.dtype, type.weak), work));
  return convert_to(bind1(concatenate_p, make_params(AxisParams{axis}), converted), type.dtype);
}

Tensor slice(const Operand& operand, const Dims& start, const Dims& limit, const Dims& strides) {
  PlaceScope at(operand.place());
  const Tensor& x = operand.tensor();
  const std::size_t rank = x.dims().size();
  const Dims step = or_each(strides, start.size(), 1);
  if (limit == x.dims() && start == Dims(rank, 0) && step == Dims(rank, 1)) return x;
  return bind1(slice_p, make_params(SliceParams{start, limit, step}), {x});
}

Tensor slice_axis(const Operand& operand, std::int64_t axis, std::int64_t start, std::int64_t limit,
                  std::int64_t stride) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  const std::int64_t normal = normal_axis("slice_axis", axis, x.rank());
  const std::int64_t extent = at(x.dims(), normal), first = from_front(start, extent),
                     end = from_front(limit, extent);
  check(0 <= first && first <= end && end <= extent && stride > 0,
        "slice_axis: [{}:{}:{}] on axis {} does not fit {}", start, limit, stride, axis,
        to_string(x.type()));
  Dims starts(x.dims().size(), 0), limits = x.dims(), strides(x.dims().size(), 1);
  at(starts, normal) = first;
  at(limits, normal) = end;
  at(strides, normal) = stride;
  return slice(operand, starts, limits, strides);
}

Tensor pad(const Operand& operand, const Operand& value, const Dims& low, const Dims& high,
           const Dims& interior) {
  PlaceScope at(operand.place());
  const Tensor& x = operand.tensor();
  const Dims between = or_each(interior, x.dims().size(), 0);
  const Dims none(x.dims().size(), 0);
  if (low == none && high == none && between == none) return x;
  return bind1(pad_p, make_params(PadParams{low, high, between}),
               {x, fit_within("pad", "the value", value.tensor(), {x.dtype(), {}})});
}

}  // namespace postern
