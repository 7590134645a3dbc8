// Shape: converting, broadcasting, reshaping, transposing, joining, slicing, padding, making.
#include "ops/shape.h"

#include <algorithm>
#include <numeric>

#include "ops/extents.h"
#include "ops/family.h"
#include "ops/reduce.h"

namespace postern {

namespace {

// --- convert
// -------------------------------------------------------------------------------------------------

struct ConvertParams {
  DType dtype;
  bool weak;
  void fields(FieldSink& sink) const { sink("dtype", dtype); }
};

Types convert_type(const Params* params, TypeSpan operands) {
  const auto& p = as<ConvertParams>(*params);
  return {Type{p.dtype, operands[0].dims, p.weak}};
}

// Between differentiable dtypes convert is linear; to or from integers nothing flows.
Tensors convert_transpose(const Op&, std::span<const Tensor> ct, std::span<const Tensor>,
                          TypeSpan types) {
  return {convert_to(ct[0], types[0].dtype)};
}

void convert_lower(Lowering& out, const Equation& e) {
  const DType from = out.operand_type(e, 0).dtype, to = out.result_type(e).dtype;
  if (to == DType::pred && from != DType::pred) {  // "is not zero", not a truncated bit
    const Ssa zero = out.constant(literal_text({}, from), out.operand_type(e, 0));
    const Type& t = out.operand_type(e, 0);
    return out.define(e, 0,
                      out.op("compare", {out.operand(e, 0), zero}, {&t, &t}, out.result_type(e),
                             comparison_text("NE", from)));
  }
  if (is_complex(from) && !is_complex(to)) {
    const Type real{real_dtype(from), out.operand_type(e, 0).dims};
    const Ssa part = out.op("real", {out.operand(e, 0)}, {&out.operand_type(e, 0)}, real);
    return out.define(e, 0, out.op("convert", {part}, {&real}, out.result_type(e)));
  }
  out.simple(e, "convert");
}

// --- broadcast
// -------------------------------------------------------------------------------------------------

struct BroadcastParams {
  Dims dims, axes;
  void fields(FieldSink& sink) const { sink("dims", dims), sink("axes", axes); }
};

Types broadcast_type(const Params* params, TypeSpan operands) {
  const auto& p = as<BroadcastParams>(*params);
  const Type& x = operands[0];
  check(p.axes.size() == x.dims.size(), "broadcast: {} axes are named for {}", p.axes.size(),
        to_string(x));  // broadcast_in_dim_c2
  for (std::size_t i = 0; i < p.axes.size(); ++i) {
    const std::int64_t to = p.dims.at(static_cast<std::size_t>(p.axes[i]));
    check(x.dims[i] == to || x.dims[i] == 1, "broadcast: {} does not stretch to {}", to_string(x),
          dims_to_string(p.dims));  // broadcast_in_dim_c5
  }
  return {Type{x.dtype, p.dims, x.weak}};
}

Tensors broadcast_transpose(const Op& op, std::span<const Tensor> ct, std::span<const Tensor>,
                            TypeSpan types) {
  const auto& p = op.as<BroadcastParams>();
  Dims summed;
  for (std::int64_t i = 0; i < ct[0].rank(); ++i) {
    const auto at = std::find(p.axes.begin(), p.axes.end(), i);
    const bool stretched =
        at != p.axes.end() && types[0].dims[static_cast<std::size_t>(at - p.axes.begin())] !=
                                  ct[0].dims()[static_cast<std::size_t>(i)];
    if (at == p.axes.end() || stretched) summed.push_back(i);
  }
  return {reshape(summed.empty() ? ct[0] : sum(ct[0], {.axes = summed}), types[0].dims)};
}

Batched broadcast_batch(const Op& op, std::span<const Tensor> x, std::span<const int> axes,
                        std::int64_t size, const Tensor&) {
  const auto& p = op.as<BroadcastParams>();
  BroadcastParams q{{size}, {0}};
  q.dims.insert(q.dims.end(), p.dims.begin(), p.dims.end());
  for (std::int64_t a : p.axes) q.axes.push_back(a + 1);
  return {{bind1(broadcast_p, make_params(q), {batch_front(x[0], axes[0], size)})}, {0}};
}

void broadcast_lower(Lowering& out, const Equation& e) {
  out.simple(e, "broadcast_in_dim",
             "broadcast_dimensions = " + array_text(as<BroadcastParams>(*e.params).axes));
}

// --- reshape, transpose, reverse
// ------------------------------------------------------------------------------------------

struct DimsParams {
  Dims dims;
  void fields(FieldSink& sink) const { sink("dims", dims); }
};

Types reshape_type(const Params* params, TypeSpan operands) {
  Type type{operands[0].dtype, as<DimsParams>(*params).dims, operands[0].weak};
  check(type.size() == operands[0].size(), "reshape: {} has {} elements, {} has {}",
        to_string(operands[0]), operands[0].size(), to_string(type), type.size());
  return {std::move(type)};
}
Tensors reshape_transpose(const Op&, std::span<const Tensor> ct, std::span<const Tensor>,
                          TypeSpan types) {
  return {reshape(ct[0], types[0].dims)};
}
Batched reshape_batch(const Op& op, std::span<const Tensor> x, std::span<const int> axes,
                      std::int64_t size, const Tensor&) {
  Dims dims = op.as<DimsParams>().dims;
  dims.insert(dims.begin(), size);
  return {{bind1(reshape_p, make_params(DimsParams{dims}), {batch_front(x[0], axes[0], size)})},
          {0}};
}

Types transpose_type(const Params* params, TypeSpan operands) {
  const Dims& order = as<DimsParams>(*params).dims;
  Dims sorted = order;
  std::sort(sorted.begin(), sorted.end());
  Dims every(operands[0].dims.size());
  std::iota(every.begin(), every.end(), 0);
  check(sorted == every, "transpose: order {} is not a permutation of the axes of {}",
        dims_to_string(order),
        to_string(operands[0]));  // transpose_c2
  Type type{operands[0].dtype, {}, operands[0].weak};
  for (std::int64_t a : order) type.dims.push_back(operands[0].dims[static_cast<std::size_t>(a)]);
  return {std::move(type)};
}
Tensors transpose_transpose(const Op& op, std::span<const Tensor> ct, std::span<const Tensor>,
                            TypeSpan) {
  const Dims& order = op.as<DimsParams>().dims;
  Dims inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return {transpose(ct[0], inverse)};
}
Batched transpose_batch(const Op& op, std::span<const Tensor> x, std::span<const int> axes,
                        std::int64_t size, const Tensor&) {
  Dims order{0};
  for (std::int64_t a : op.as<DimsParams>().dims) order.push_back(a + 1);
  return {{transpose(batch_front(x[0], axes[0], size), order)}, {0}};
}
void transpose_lower(Lowering& out, const Equation& e) {
  out.simple(e, "transpose", "permutation = " + array_text(as<DimsParams>(*e.params).dims));
}

Types reverse_type(const Params*, TypeSpan operands) { return {operands[0]}; }
Tensors reverse_transpose(const Op& op, std::span<const Tensor> ct, std::span<const Tensor>,
                          TypeSpan) {
  return {reverse(ct[0], op.as<DimsParams>().dims)};
}
Batched reverse_batch(const Op& op, std::span<const Tensor> x, std::span<const int> axes,
                      std::int64_t size, const Tensor&) {
  Dims moved = op.as<DimsParams>().dims;
  for (std::int64_t& a : moved) ++a;
  return {{reverse(batch_front(x[0], axes[0], size), moved)}, {0}};
}
void reverse_lower(Lowering& out, const Equation& e) {
  out.simple(e, "reverse", "dimensions = " + array_text(as<DimsParams>(*e.params).dims));
}

// --- concatenate
// -------------------------------------------------------------------------------------------------

struct AxisParams {
  std::int64_t axis;
  void fields(FieldSink& sink) const { sink("axis", axis); }
};

Types concatenate_type(const Params* params, TypeSpan operands) {
  const auto axis = static_cast<std::size_t>(as<AxisParams>(*params).axis);
  Type type = operands[0];
  for (std::size_t i = 1; i < operands.size(); ++i) {
    Dims other = operands[i].dims;
    check(operands[i].dtype == type.dtype && other.size() == type.dims.size(),
          "concatenate: {} and {} differ in dtype or rank", to_string(type),
          to_string(operands[i]));
    const std::int64_t extent = other[axis];
    other[axis] = type.dims[axis];
    check(other == type.dims, "concatenate: {} and {} differ off axis {}", to_string(operands[0]),
          to_string(operands[i]),
          axis);  // concatenate_c2
    type.dims[axis] = extent_sum(type.dims[axis], extent);
    type.weak = type.weak && operands[i].weak;
  }
  return {std::move(type)};
}
Tensors concatenate_transpose(const Op& op, std::span<const Tensor> ct, std::span<const Tensor> x,
                              TypeSpan types) {
  const std::int64_t axis = op.as<AxisParams>().axis;
  Tensors out(x.size());
  std::int64_t start = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::int64_t extent = types[i].dims[static_cast<std::size_t>(axis)];
    if (!x[i].has_value()) out[i] = slice_axis(ct[0], axis, start, start + extent);
    start += extent;
  }
  return out;
}
Batched concatenate_batch(const Op& op, std::span<const Tensor> x, std::span<const int> axes,
                          std::int64_t size, const Tensor&) {
  Tensors moved;
  for (std::size_t i = 0; i < x.size(); ++i) moved.push_back(batch_front(x[i], axes[i], size));
  return {{bind1(op.primitive, make_params(AxisParams{op.as<AxisParams>().axis + 1}), moved)}, {0}};
}
void concatenate_lower(Lowering& out, const Equation& e) {
  out.simple(e, "concatenate", fmt::format("dimension = {} : i64", as<AxisParams>(*e.params).axis));
}

// --- slice, pad
// -------------------------------------------------------------------------------------------------

struct SliceParams {
  Dims start, limit, strides;
  void fields(FieldSink& sink) const {
    sink("start", start), sink("limit", limit), sink("strides", strides);
  }
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
              p.strides[i] > 0,
          "slice: [{}:{}:{}] on axis {} does not fit {}", p.start[i], p.limit[i], p.strides[i], i,
          to_string(operands[0]));  // slice_c3
    type.dims[i] = p.limit[i] == p.start[i] ? 0 : (p.limit[i] - p.start[i] - 1) / p.strides[i] + 1;
  }
  return {std::move(type)};
}
Tensors slice_transpose(const Op& op, std::span<const Tensor> ct, std::span<const Tensor>,
                        TypeSpan types) {
  const auto& p = op.as<SliceParams>();
  Dims high, interior;
  for (std::size_t i = 0; i < p.start.size(); ++i) {
    const std::int64_t n = ct[0].dims()[i], covered = n == 0 ? 0 : (n - 1) * p.strides[i] + 1;
    high.push_back(types[0].dims[i] - p.start[i] - covered);
    interior.push_back(p.strides[i] - 1);
  }
  return {pad(ct[0], zeros_like_type({ct[0].dtype(), {}}), p.start, high, interior)};
}
Batched slice_batch(const Op& op, std::span<const Tensor> x, std::span<const int> axes,
                    std::int64_t size, const Tensor&) {
  SliceParams p = op.as<SliceParams>();
  p.start.insert(p.start.begin(), 0);
  p.limit.insert(p.limit.begin(), size);
  p.strides.insert(p.strides.begin(), 1);
  return {{bind1(op.primitive, make_params(p), {batch_front(x[0], axes[0], size)})}, {0}};
}
void slice_lower(Lowering& out, const Equation& e) {
  const auto& p = as<SliceParams>(*e.params);
  out.simple(e, "slice",
             fmt::format("start_indices = {}, limit_indices = {}, strides = {}",
                         array_text(p.start), array_text(p.limit), array_text(p.strides)));
}

struct PadParams {
  Dims low, high, interior;
  void fields(FieldSink& sink) const {
    sink("low", low), sink("high", high), sink("interior", interior);
  }
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
Tensors pad_transpose(const Op& op, std::span<const Tensor> ct, std::span<const Tensor> x,
                      TypeSpan types) {
  const auto& p = op.as<PadParams>();
  Tensors out(2);
  // Undo the outer padding with the opposite signs, then pick every (interior + 1)th element.
  Dims low, high, none(p.low.size(), 0), step;
  for (std::size_t i = 0; i < p.low.size(); ++i)
    low.push_back(-p.low[i]), high.push_back(-p.high[i]), step.push_back(p.interior[i] + 1);
  const Tensor inner = slice(
      pad(ct[0], zeros_like_type({ct[0].dtype(), {}}), low, high, none), none,
      [&] {
        Dims limit;
        for (std::size_t i = 0; i < p.low.size(); ++i) {
          const std::int64_t n = types[0].dims[i];
          limit.push_back(n == 0 ? 0 : (n - 1) * step[i] + 1);
        }
        return limit;
      }(),
      step);
  if (!x[0].has_value()) out[0] = inner;
  if (!x[1].has_value()) out[1] = sum(ct[0]) - sum(inner);
  return out;
}
Batched pad_batch(const Op& op, std::span<const Tensor> x, std::span<const int> axes,
                  std::int64_t size, const Tensor&) {
  PadParams p = op.as<PadParams>();
  p.low.insert(p.low.begin(), 0);
  p.high.insert(p.high.begin(), 0);
  p.interior.insert(p.interior.begin(), 0);
  const Tensor moved = batch_front(x[0], axes[0], size);
  if (axes[1] < 0) return {{bind1(op.primitive, make_params(p), {moved, x[1]})}, {0}};
  // A padding value of its own for each element: pad a mask, and choose.
  const Tensor zero = zeros_like_type({moved.dtype(), {}});
  const Tensor inside =
      pad(ones({DType::pred, moved.dims()}), Tensor(false), p.low, p.high, p.interior);
  const Tensor padded = pad(moved, zero, p.low, p.high, p.interior);
  return {{where(inside, padded, broadcast_in_dim(x[1], padded.dims(), {0}))}, {0}};
}
void pad_lower(Lowering& out, const Equation& e) {
  const auto& p = as<PadParams>(*e.params);
  out.simple(e, "pad",
             fmt::format("edge_padding_low = {}, edge_padding_high = {}, interior_padding = {}",
                         array_text(p.low), array_text(p.high), array_text(p.interior)));
}

// --- iota
// -------------------------------------------------------------------------------------------------

struct IotaParams {
  Type type;
  std::int64_t axis;
  void fields(FieldSink& sink) const { sink("type", type), sink("axis", axis); }
};
Types iota_type(const Params* params, TypeSpan) {
  const auto& p = as<IotaParams>(*params);
  check(numeric(p.type.dtype), "iota: the dtype must be a number, got {}", to_string(p.type.dtype));
  return {p.type};
}
Batched iota_batch(const Op& op, std::span<const Tensor>, std::span<const int>, std::int64_t,
                   const Tensor&) {
  return {bind_n(op.primitive, op.params, {}), {-1}};
}
void iota_lower(Lowering& out, const Equation& e) {
  out.simple(e, "iota", fmt::format("iota_dimension = {} : i64", as<IotaParams>(*e.params).axis));
}

constexpr Primitive reverse_p =
    linear("reverse", "reverse", reverse_type, reverse_transpose, reverse_batch, reverse_lower);
constexpr Primitive concatenate_p =
    linear("concatenate", "concatenate", concatenate_type, concatenate_transpose, concatenate_batch,
           concatenate_lower);
constexpr Primitive slice_p =
    linear("slice", "slice", slice_type, slice_transpose, slice_batch, slice_lower);
constexpr Primitive pad_p = linear("pad", "pad", pad_type, pad_transpose, pad_batch, pad_lower);
constexpr Primitive iota_p{.name = "iota",
                           .hlo = "iota",
                           .type = iota_type,
                           .no_derivative = true,
                           .batch = iota_batch,
                           .lower = iota_lower};

}  // namespace

constexpr Primitive convert_p =
    linear("convert", "convert", convert_type, convert_transpose, elementwise_batch, convert_lower);
constexpr Primitive broadcast_p = linear("broadcast", "broadcast_in_dim", broadcast_type,
                                         broadcast_transpose, broadcast_batch, broadcast_lower);
constexpr Primitive reshape_p =
    linear("reshape", "reshape", reshape_type, reshape_transpose, reshape_batch);
constexpr Primitive transpose_p = linear("transpose", "transpose", transpose_type,
                                         transpose_transpose, transpose_batch, transpose_lower);

constexpr const Primitive* shape_family[] = {&convert_p,   &broadcast_p, &reshape_p,
                                             &transpose_p, &reverse_p,   &concatenate_p,
                                             &slice_p,     &pad_p,       &iota_p};
static_assert(complete(shape_family));

Tensor convert_to(const Tensor& x, DType dtype, bool weak) {
  return x.dtype() == dtype ? x : bind1(convert_p, make_params(ConvertParams{dtype, weak}), {x});
}

Tensor broadcast_in_dim(const Tensor& x, const Dims& dims, const Dims& axes) {
  return bind1(broadcast_p, make_params(BroadcastParams{dims, axes}), {x});
}

Tensor broadcast_to_dims(const Tensor& x, const Dims& dims) {
  if (x.dims() == dims) return x;
  check(dims.size() >= x.dims().size(), "broadcast_to: {} has more axes than {}",
        to_string(x.type()), dims_to_string(dims));
  Dims axes(x.dims().size());
  std::iota(axes.begin(), axes.end(), static_cast<std::int64_t>(dims.size() - axes.size()));
  return broadcast_in_dim(x, dims, axes);
}

Tensor convert(const Operand& x, DType dtype) {
  PlaceScope at(x.place());
  return fit(x.tensor(), {dtype, x.tensor().dims()});
}

Tensor broadcast_to(const Operand& x, const Dims& dims) {
  PlaceScope at(x.place());
  check(broadcast_dims("broadcast_to", x.tensor().dims(), dims) == dims,
        "broadcast_to: {} does not stretch to {}", to_string(x.tensor().type()),
        dims_to_string(dims));
  return broadcast_to_dims(x.tensor(), dims);
}

Tensor reshape(const Operand& operand, const Dims& dims) {
  PlaceScope at(operand.place());
  const Tensor& x = operand.tensor();
  if (x.dims() == dims) return x;
  Dims full = dims;
  std::int64_t known = 1, open = -1;
  for (std::size_t i = 0; i < full.size(); ++i) {
    check(full[i] >= -1 && (full[i] >= 0 || open < 0),
          "reshape: extents must be 0 or more, one may be -1, got {}", dims_to_string(dims));
    if (full[i] < 0)
      open = static_cast<std::int64_t>(i);
    else
      known *= full[i];
  }
  if (open >= 0) {
    check(known > 0 && x.size() % known == 0, "reshape: {} does not divide into {}",
          to_string(x.type()), dims_to_string(dims));
    full[static_cast<std::size_t>(open)] = x.size() / known;
  }
  return bind1(reshape_p, make_params(DimsParams{full}), {x});
}

Tensor transpose(const Operand& operand, const Dims& order) {
  PlaceScope at(operand.place());
  const Tensor& x = operand.tensor();
  Dims normal;
  for (std::int64_t a : order) normal.push_back(normal_axis("transpose", a, x.rank()));
  if (std::is_sorted(normal.begin(), normal.end()) && normal.size() == x.dims().size() &&
      std::adjacent_find(normal.begin(), normal.end()) == normal.end())
    return x;
  return bind1(transpose_p, make_params(DimsParams{normal}), {x});
}

Tensor transpose(const Operand& x) {
  Dims order(x.tensor().dims().size());
  std::iota(order.rbegin(), order.rend(), 0);
  return transpose(x, order);
}

Tensor expand_dims(const Operand& operand, std::int64_t axis) {
  PlaceScope at(operand.place());
  Dims dims = operand.tensor().dims();
  dims.insert(dims.begin() + normal_axis("expand_dims", axis, operand.tensor().rank() + 1), 1);
  return reshape(operand, dims);
}

Tensor squeeze(const Operand& operand, const Dims& axes) {
  PlaceScope at(operand.place());
  const Tensor& x = operand.tensor();
  const Dims drop = normal_axes("squeeze", axes, x.rank());
  Dims dims;
  for (std::int64_t i = 0; i < x.rank(); ++i) {
    const bool dropped = std::binary_search(drop.begin(), drop.end(), i);
    check(!dropped || x.dims()[static_cast<std::size_t>(i)] == 1, "squeeze: axis {} of {} is not 1",
          i, to_string(x.type()));
    if (!dropped) dims.push_back(x.dims()[static_cast<std::size_t>(i)]);
  }
  return reshape(operand, dims);
}

Tensor concatenate(std::span<const Tensor> parts, std::int64_t axis, Place place) {
  PlaceScope at(place);
  check(!parts.empty(), "concatenate: at least one tensor is needed");
  Type type = parts[0].type();
  check(type.rank() > 0, "concatenate: tensors of rank 1 or more are needed, got {}",
        to_string(type));
  for (const Tensor& t : parts) type = promote("concatenate", type, t.type());
  axis = normal_axis("concatenate", axis, parts[0].rank());
  if (parts.size() == 1) return parts[0];
  Tensors converted;
  for (const Tensor& t : parts) converted.push_back(convert_to(t, type.dtype, type.weak));
  return bind1(concatenate_p, make_params(AxisParams{axis}), converted);
}

Tensor slice(const Operand& operand, const Dims& start, const Dims& limit, const Dims& strides) {
  PlaceScope at(operand.place());
  const Tensor& x = operand.tensor();
  const Dims step = strides.empty() ? Dims(start.size(), 1) : strides;
  if (limit == x.dims() && start == Dims(start.size(), 0) && step == Dims(start.size(), 1))
    return x;
  return bind1(slice_p, make_params(SliceParams{start, limit, step}), {x});
}

Tensor slice_axis(const Operand& operand, std::int64_t axis, std::int64_t start, std::int64_t limit,
                  std::int64_t stride) {
  PlaceScope at(operand.place());
  const Tensor& x = operand.tensor();
  const auto a = static_cast<std::size_t>(normal_axis("slice_axis", axis, x.rank()));
  SliceParams p{Dims(x.dims().size(), 0), x.dims(), Dims(x.dims().size(), 1)};
  const std::int64_t extent = x.dims()[a];
  p.start[a] = start < 0 ? start + extent : start;
  p.limit[a] = limit < 0 ? limit + extent : limit;
  p.strides[a] = stride;
  return slice(operand, p.start, p.limit, p.strides);
}

Tensor pad(const Operand& operand, const Operand& value, const Dims& low, const Dims& high,
           const Dims& interior) {
  PlaceScope at(operand.place());
  const Tensor& x = operand.tensor();
  const Dims between = interior.empty() ? Dims(x.dims().size(), 0) : interior;
  const Dims none(x.dims().size(), 0);
  if (low == none && high == none && between == none) return x;
  return bind1(pad_p, make_params(PadParams{low, high, between}),
               {x, fit(value.tensor(), {x.dtype(), {}})});
}

Tensor reverse(const Operand& operand, const Dims& axes) {
  PlaceScope at(operand.place());
  return bind1(reverse_p,
               make_params(DimsParams{normal_axes("reverse", axes, operand.tensor().rank())}),
               {operand.tensor()});
}

Tensor full(const Type& type, const Operand& number) {
  PlaceScope at(number.place());
  check(number.tensor().rank() == 0, "full: the value must be a scalar, got {}",
        to_string(number.tensor().type()));
  make_type(type.dtype, type.dims);
  if (!Trace::current())
    if (const detail::HostValue* host = host_scalar(number.tensor()))
      return full_of(read_number(host->type.dtype, host->data.get()), type);
  return fit(number.tensor(), type);
}

Tensor zeros(const Type& type, Place place) { return full(type, Operand(0, place)); }
Tensor ones(const Type& type, Place place) { return full(type, Operand(1, place)); }
Tensor zeros_like(const Operand& x) { return zeros(x.tensor().type(), x.place()); }
Tensor ones_like(const Operand& x) { return ones(x.tensor().type(), x.place()); }

Tensor iota(const Type& type, std::int64_t axis, Place place) {
  PlaceScope at(place);
  make_type(type.dtype, type.dims);
  return bind1(iota_p, make_params(IotaParams{type, normal_axis("iota", axis, type.rank())}), {});
}

Tensor eye(DType dtype, std::int64_t rows, std::int64_t columns, Place place) {
  PlaceScope at(place);
  const Type index{DType::s32, {rows, columns}};
  return convert_to(equal(iota(index, 0), iota(index, 1)), dtype);
}

}  // namespace postern
