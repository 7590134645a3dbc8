// Shape: converting, broadcasting, reshaping, transposing, reversing, making.
#include "ops/shape.h"

#include <algorithm>
#include <numeric>

#include "core/value.h"
#include "ops/axes.h"
#include "ops/composed.h"
#include "ops/extents.h"
#include "ops/family.h"
#include "ops/moved_axes.h"
#include "ops/on_host.h"
#include "ops/reduce.h"

namespace postern::internal {

namespace {

// --- convert ---

struct ConvertParams {
  DType dtype;
  bool weak;
  auto fields(Fields sink) const { return sink.field("dtype", dtype).hidden("weak", weak); }
};

Types convert_type(const Params* params, TypeSpan operands) {
  const auto& p = as<ConvertParams>(*params);
  return {Type{p.dtype, operands[0].dims, p.weak}};
}

// Between differentiable dtypes convert is linear; to or from integers nothing flows.
Tensors convert_transpose(const Op&, TensorSpan ct, TensorSpan, TypeSpan types) {
  return {convert_to(ct[0], types[0].dtype)};
}

// XLA lays an array out anew by strides in bytes, and reads what is no number where elements are
// smaller. The barrier ends what layout the bytes had: packed arrays have the usual one.
void converted_to_result(Lowering& out, const Equation& e, Ssa x, const Type& from) {
  const Type& to = out.result_type(e);
  if (is_packed(to.dtype) && !is_packed(from.dtype) && to.rank() > 1)
    x = out.op("optimization_barrier", {x}, {&from}, from);
  out.define(e, 0, out.op("convert", {x}, {&from}, to));
}

void convert_lower(Lowering& out, const Equation& e) {
  const Type& x = out.operand_type(e, 0);
  const DType from = x.dtype, to = out.result_type(e).dtype;
  if (to == DType::pred && from != DType::pred) {  // "is not zero", not a truncated bit
    const Ssa zero = out.constant(literal_text({}, from), x);
    return out.define(e, 0,
                      out.op("compare", {out.operand(e, 0), zero}, {&x, &x}, out.result_type(e),
                             comparison_text("NE", from)));
  }
  if (is_complex(from) && !is_complex(to)) {
    const Type real{real_dtype(from), x.dims};
    return converted_to_result(out, e, out.op("real", {out.operand(e, 0)}, {&x}, real), real);
  }
  // XLA takes the greatest numbers of f4e2m1fn for infinities.
  if (is_float(from) && bit_width(from) <= 8 && is_integer(to)) {
    const Type wide{DType::f32, x.dims};
    return converted_to_result(out, e, out.op("convert", {out.operand(e, 0)}, {&x}, wide), wide);
  }
  converted_to_result(out, e, out.operand(e, 0), x);
}

/// From f64 XLA may go to small floats by f32; small ones it computes with as f32.
template <class X, class Z>
bool elements_converted(const HostArrays& a) {
  constexpr bool whole = std::is_integral_v<Z> && !std::is_same_v<Z, bool>;
  if constexpr (!std::is_arithmetic_v<Z> && sizeof(X) > 2 && !std::is_same_v<X, float>)
    return false;
  bool fits = true;
  const bool usual = on_host::each<Z, X>(a, a.types[0].size(), [&](auto x) {
    if constexpr (std::is_same_v<Z, bool>) {
      return x != 0;
    } else if constexpr (whole && std::is_floating_point_v<decltype(x)>) {
      const double cut = std::trunc(static_cast<double>(x));
      const bool inside = cut >= static_cast<double>(std::numeric_limits<Z>::min()) &&
                          cut < std::ldexp(1.0, std::numeric_limits<Z>::digits);
      fits &= inside;
      return inside ? static_cast<Z>(cut) : Z();
    } else {
      return static_cast<std::conditional_t<std::is_arithmetic_v<Z>, Z, float>>(x);
    }
  });
  return usual && fits;
}
bool convert_on_host(const Params*, const HostArrays& a) {
  return on_host::with_element(a.types[0].dtype, [&]<class X>(X) {
    return on_host::with_element(a.results[0].dtype,
                                 [&]<class Z>(Z) { return elements_converted<X, Z>(a); });
  });
}

// --- broadcast ---

struct BroadcastParams {
  Dims dims, axes;
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

Tensors broadcast_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan types) {
  const auto& p = op.as<BroadcastParams>();
  Dims summed;
  for (std::int64_t i = 0; i < ct[0].rank(); ++i) {
    const auto at = std::find(p.axes.begin(), p.axes.end(), i);
    const bool stretched =
        at != p.axes.end() && types[0].dims[static_cast<std::size_t>(at - p.axes.begin())] !=
                                  ct[0].dims()[static_cast<std::size_t>(i)];
    if (at == p.axes.end() || stretched) summed.push_back(i);
  }
  Tensor of_x = ct[0];
  if (!summed.empty()) of_x = sum(of_x, {.axes = summed});
  return {reshape(of_x, types[0].dims)};
}

Batched broadcast_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                        const Tensor&) {
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

bool broadcast_on_host(const Params* params, const HostArrays& a) {
  const auto& p = as<BroadcastParams>(*params);
  const Dims &dims = a.types[0].dims, own = on_host::row_major(dims);
  Dims steps(p.dims.size(), 0);
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != 1) at(steps, p.axes[i]) = own[i];
  return on_host::moved(a, steps);
}

// --- reshape, transpose, reverse ---

struct DimsParams {
  Dims dims;
};

Types reshape_type(const Params* params, TypeSpan operands) {
  Type type{operands[0].dtype, as<DimsParams>(*params).dims, operands[0].weak};
  check(type.size() == operands[0].size(), "reshape: {} has {} elements, {} has {}",
        to_string(operands[0]), operands[0].size(), to_string(type), type.size());
  return {std::move(type)};
}
Tensors reshape_transpose(const Op&, TensorSpan ct, TensorSpan, TypeSpan types) {
  return {reshape(ct[0], types[0].dims)};
}
Batched reshape_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                      const Tensor&) {
  Dims dims = op.as<DimsParams>().dims;
  dims.insert(dims.begin(), size);
  return {{bind1(reshape_p, make_params(DimsParams{dims}), {batch_front(x[0], axes[0], size)})},
          {0}};
}
bool reshape_on_host(const Params*, const HostArrays& a) {
  return on_host::moved(a, on_host::row_major(a.results[0].dims));
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
Tensors transpose_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan) {
  const Dims& order = op.as<DimsParams>().dims;
  Dims inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return {transpose(ct[0], inverse)};
}
Batched transpose_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                        const Tensor&) {
  Dims order{0};
  for (std::int64_t a : op.as<DimsParams>().dims) order.push_back(a + 1);
  return {{transpose(batch_front(x[0], axes[0], size), order)}, {0}};
}
void transpose_lower(Lowering& out, const Equation& e) {
  const Dims& order = as<DimsParams>(*e.params).dims;
  if (const DType dtype = out.result_type(e).dtype; is_packed(dtype))
    return lower_as(out, e, [&](TensorSpan x) {
      return Tensors{convert_to(transpose(in_bytes(x[0]), order), dtype)};
    });
  out.simple(e, "transpose", "permutation = " + array_text(order));
}
bool transpose_on_host(const Params* params, const HostArrays& a) {
  return on_host::moved(a, pick(on_host::row_major(a.types[0].dims), as<DimsParams>(*params).dims));
}

Types reverse_type(const Params*, TypeSpan operands) { return {operands[0]}; }
Tensors reverse_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan) {
  return {reverse(ct[0], op.as<DimsParams>().dims)};
}
Batched reverse_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                      const Tensor&) {
  Dims moved = op.as<DimsParams>().dims;
  for (std::int64_t& a : moved) ++a;
  return {{reverse(batch_front(x[0], axes[0], size), moved)}, {0}};
}
void reverse_lower(Lowering& out, const Equation& e) {
  out.simple(e, "reverse", "dimensions = " + array_text(as<DimsParams>(*e.params).dims));
}
bool reverse_on_host(const Params* params, const HostArrays& a) {
  Dims steps = on_host::row_major(a.types[0].dims);
  std::int64_t first = 0;
  for (const std::int64_t axis : as<DimsParams>(*params).dims) {
    first += at(steps, axis) * (at(a.types[0].dims, axis) - 1);
    at(steps, axis) *= -1;
  }
  return on_host::moved(a, steps, first);
}

// --- iota ---

struct IotaParams {
  Type type;
  std::int64_t axis;
};
Types iota_type(const Params* params, TypeSpan) {
  const auto& p = as<IotaParams>(*params);
  check(numeric(p.type.dtype), "iota: the dtype must be a number, got {}", to_string(p.type.dtype));
  return {p.type};
}
Batched iota_batch(const Op& op, TensorSpan, std::span<const int>, std::int64_t, const Tensor&) {
  return {bind_n(op.primitive, op.params, {}), {-1}};
}
void iota_lower(Lowering& out, const Equation& e) {
  out.simple(e, "iota", fmt::format("iota_dimension = {} : i64", as<IotaParams>(*e.params).axis));
}
bool iota_on_host(const Params* params, const HostArrays& a) {
  const auto& p = as<IotaParams>(*params);
  if (!is_integer(p.type.dtype)) return false;
  const std::int64_t extent = at(p.type.dims, p.axis),
                     step = at(on_host::row_major(p.type.dims), p.axis);
  return on_host::with_element(p.type.dtype, [&]<class T>(T) {
    auto* const to = static_cast<T*>(a.to[0]);
    for (std::int64_t i = 0; i < p.type.size(); ++i) to[i] = static_cast<T>(i / step % extent);
    return true;
  });
}

constexpr Primitive reverse_p = with_on_host(
    linear("reverse", "reverse", reverse_type, reverse_transpose, reverse_batch, reverse_lower),
    reverse_on_host);
constexpr Primitive iota_p{.name = "iota",
                           .hlo = "iota",
                           .type = iota_type,
                           .no_derivative = true,
                           .batch = iota_batch,
                           .lower = iota_lower,
                           .on_host = iota_on_host};

}  // namespace

constexpr Primitive convert_p = with_on_host(
    linear("convert", "convert", convert_type, convert_transpose, elementwise_batch, convert_lower),
    convert_on_host);
constexpr Primitive broadcast_p =
    with_on_host(linear("broadcast", "broadcast_in_dim", broadcast_type, broadcast_transpose,
                        broadcast_batch, broadcast_lower),
                 broadcast_on_host);
constexpr Primitive reshape_p = with_on_host(
    linear("reshape", "reshape", reshape_type, reshape_transpose, reshape_batch), reshape_on_host);
constexpr Primitive transpose_p =
    with_on_host(keeping_axes(linear("transpose", "transpose", transpose_type, transpose_transpose,
                                     transpose_batch, transpose_lower)),
                 transpose_on_host);

constexpr const Primitive* shape_family[] = {&convert_p,   &broadcast_p, &reshape_p,
                                             &transpose_p, &reverse_p,   &iota_p};
static_assert(complete(shape_family));

Tensor convert_to(const Tensor& x, DType dtype, bool weak) {
  if (x.dtype() == dtype) return x;
  return bind1(convert_p, make_params(ConvertParams{dtype, weak}), {x});
}

std::optional<Dims> moved_axes(const Equation& equation, std::size_t rank) {
  if (equation.primitive == &broadcast_p) return as<BroadcastParams>(*equation.params).axes;
  Dims out(rank);
  std::iota(out.begin(), out.end(), 0);
  if (equation.primitive->batch == elementwise_batch) return out;
  if (equation.primitive != &transpose_p) return {};
  const Dims& from = as<DimsParams>(*equation.params).dims;
  for (std::size_t i = 0; i < rank; ++i)
    out[static_cast<std::size_t>(from[i])] = static_cast<std::int64_t>(i);
  return out;
}

DType byte_dtype(DType dtype) {
  if (dtype == DType::f4e2m1fn) return DType::f32;
  if (dtype == DType::pred || bit_width(dtype) >= 8) return dtype;
  if (is_signed(dtype)) return DType::s8;
  return DType::u8;
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

}  // namespace postern::internal

namespace postern {
using namespace internal;

Tensor convert(const Operand& x, DType dtype) {
  PlaceScope at(x.place());
  return fit(x.tensor(), {dtype, x.tensor().dims()});
}

Tensor broadcast_to(const Operand& x, const Dims& dims) {
  PlaceScope at(x.place());
  check_rank(dims);
  check(broadcast_dims("broadcast_to", x.tensor().dims(), dims) == dims,
        "broadcast_to: {} does not stretch to {}", to_string(x.tensor().type()),
        dims_to_string(dims));
  return broadcast_to_dims(x.tensor(), dims);
}

Tensor reshape(const Operand& operand, const Dims& dims) {
  PlaceScope at(operand.place());
  const Tensor& x = operand.tensor();
  if (x.dims() == dims) return x;
  check_rank(dims);
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
  Dims order(x.tensor().dims(x.place()).size());
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
  if (const detail::HostValue* host = host_scalar(number.tensor()); host && is_number(type.dtype))
    return full_of(read_number(host->type.dtype, host->data.get()), type);
  return fit(number.tensor(), type);
}

Tensor zeros(const Type& type, Place place) { return full(type, Operand(0, place)); }
Tensor ones(const Type& type, Place place) { return full(type, Operand(1, place)); }
Tensor zeros_like(const Operand& x) { return zeros(x.tensor().type(x.place()), x.place()); }
Tensor ones_like(const Operand& x) { return ones(x.tensor().type(x.place()), x.place()); }

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
