// Shape: converting, broadcasting, reshaping, transposing, reversing, making.
#include "ops/shape.h"

#include <algorithm>
#include <numeric>

#include "core/lists.h"
#include "core/value.h"
#include "ops/axes.h"
#include "ops/composed.h"
#include "ops/elements.h"
#include "ops/extents.h"
#include "ops/family.h"
#include "ops/moved_axes.h"
#include "ops/on_host.h"

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

/// Converts x to the equation's result. XLA changes layouts by strides in bytes, and so reads
/// garbage from elements that are packed in less: behind the barrier they have the usual layout.
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
    const Elements elements(out, x);
    const Ssa zero = elements.number(0);
    return out.define(e, 0, elements.compare("NE", out.operand(e, 0), zero));
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

/// Converts elements X to Z; false where that is left to XLA: for floats that the integer Z does
/// not hold, and for f16 and bf16 of what f32 may not hold, as XLA rounds once or, by f32, twice.
template <class X, class Z>
bool elements_converted(const HostArrays& a) {
  constexpr bool to_small_float = !std::is_arithmetic_v<Z>;
  constexpr bool to_integer = std::is_integral_v<Z> && !std::is_same_v<Z, bool>;
  if constexpr (to_small_float && sizeof(X) > 2 && !std::is_same_v<X, float>) return false;
  bool fits = true;
  const bool usual = on_host::each<Z, X>(a, a.types[0].size(), [&](auto x) {
    if constexpr (std::is_same_v<Z, bool>) {
      return x != 0;
    } else if constexpr (to_integer && std::is_floating_point_v<decltype(x)>) {
      const double cut_off = std::trunc(static_cast<double>(x));
      const bool inside = cut_off >= static_cast<double>(std::numeric_limits<Z>::min()) &&
                          cut_off < std::ldexp(1.0, std::numeric_limits<Z>::digits);
      fits &= inside;
      return inside ? static_cast<Z>(cut_off) : Z();
    } else {
      return static_cast<std::conditional_t<to_small_float, float, Z>>(x);
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
  check(p.axes.size() == x.dims.size(),  // broadcast_in_dim_c2
        "broadcast: {} axes are named for {}", p.axes.size(), to_string(x));
  for (std::size_t i = 0; i < p.axes.size(); ++i) {
    const std::int64_t extent = p.dims.at(size_of(p.axes[i]));
    check(x.dims[i] == extent || x.dims[i] == 1,  // broadcast_in_dim_c5
          "broadcast: {} does not stretch to {}", to_string(x), dims_to_string(p.dims));
  }
  return {Type{x.dtype, p.dims, x.weak}};
}

Tensors broadcast_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan types) {
  const auto& p = op.as<BroadcastParams>();
  Dims dims_in_place(p.dims.size(), -1);  // the operand's extents where the result has them
  for (std::size_t i = 0; i < p.axes.size(); ++i) at(dims_in_place, p.axes[i]) = types[0].dims[i];
  Dims summed;  // axes that are new or stretched
  for (std::int64_t i = 0; i < ct[0].rank(); ++i)
    if (at(dims_in_place, i) != at(ct[0].dims(), i)) summed.push_back(i);
  Tensor of_x = ct[0];
  if (!summed.empty()) of_x = sum(of_x, {.axes = summed});
  return {reshape(of_x, types[0].dims)};
}

Batched broadcast_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                        const Tensor& mask) {
  const auto& p = op.as<BroadcastParams>();
  const BroadcastParams batched{joined({size}, p.dims), joined({0}, shifted(p.axes, 1))};
  return front_batch({op.primitive, make_params(batched)}, x, axes, size, mask);
}

void broadcast_lower(Lowering& out, const Equation& e) {
  out.simple(e, "broadcast_in_dim",
             "broadcast_dimensions = " + array_text(as<BroadcastParams>(*e.params).axes));
}

bool broadcast_on_host(const Params* params, const HostArrays& a) {
  const auto& p = as<BroadcastParams>(*params);
  const Dims &dims = a.types[0].dims, own = on_host::row_major(dims);
  Dims steps(p.dims.size(), 0);  // 0: the same elements again and again
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
                      const Tensor& mask) {
  const Dims dims = joined({size}, op.as<DimsParams>().dims);
  return front_batch({op.primitive, make_params(DimsParams{dims})}, x, axes, size, mask);
}

Types transpose_type(const Params* params, TypeSpan operands) {
  const Dims& order = as<DimsParams>(*params).dims;
  Dims sorted = order;
  std::sort(sorted.begin(), sorted.end());
  check(sorted == range(0, operands[0].rank()),  // transpose_c2
        "transpose: order {} is not a permutation of the axes of {}", dims_to_string(order),
        to_string(operands[0]));
  return {Type{operands[0].dtype, pick(operands[0].dims, order), operands[0].weak}};
}
Tensors transpose_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan) {
  return {transpose(ct[0], inverse_order(op.as<DimsParams>().dims))};
}
Batched transpose_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                        const Tensor&) {
  const Dims order = joined({0}, shifted(op.as<DimsParams>().dims, 1));
  return {{transpose(batch_front(x[0], axes[0], size), order)}, {0}};
}
void transpose_lower(Lowering& out, const Equation& e) {
  const Dims& order = as<DimsParams>(*e.params).dims;
  if (const DType dtype = out.result_type(e).dtype; is_packed(dtype))
    return lower_as(out, e, [&](TensorSpan x) {
      return Tensors{convert_to(transpose(unpacked(x[0]), order), dtype)};
    });
  out.simple(e, "transpose", "permutation = " + array_text(order));
}
bool transpose_on_host(const Params* params, const HostArrays& a) {
  return on_host::moved(a, pick(on_host::row_major(a.types[0].dims), as<DimsParams>(*params).dims));
}

Tensors reverse_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan) {
  return {reverse(ct[0], op.as<DimsParams>().dims)};
}
Batched reverse_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                      const Tensor&) {
  const Dims reversed = shifted(op.as<DimsParams>().dims, 1);
  return {{reverse(batch_front(x[0], axes[0], size), reversed)}, {0}};
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
                     step = at(on_host::row_major(p.type.dims), p.axis);  // the index grows by 1
  return on_host::with_element(p.type.dtype, [&]<class T>(T) {
    auto* const to = static_cast<T*>(a.to[0]);
    for (std::int64_t i = 0; i < p.type.size(); ++i) to[i] = static_cast<T>(i / step % extent);
    return true;
  });
}

constexpr Primitive reverse_p = with_on_host(
    linear("reverse", "reverse", same_type, reverse_transpose, reverse_batch, reverse_lower),
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
    linear("reshape", "reshape", reshape_type, reshape_transpose, reshape_batch), on_host::copied);
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
  if (equation.primitive->batch == elementwise_batch)
    return range(0, static_cast<std::int64_t>(rank));
  if (equation.primitive == &transpose_p)
    return inverse_order(as<DimsParams>(*equation.params).dims);
  return {};
}

DType unpacked_dtype(DType dtype) {
  if (!is_packed(dtype)) return dtype;
  if (is_float(dtype)) return DType::f32;
  if (is_signed(dtype)) return DType::s8;
  return DType::u8;
}

Tensor as_factor(const Tensor& x, const Type& type) {
  const Tensor factor = convert_to(x, type.dtype, type.weak);
  if (is_integer(type.dtype)) return unpacked(factor);
  return factor;
}

Tensor broadcast_in_dim(const Tensor& x, const Dims& dims, const Dims& axes) {
  return bind1(broadcast_p, make_params(BroadcastParams{dims, axes}), {x});
}

Tensor broadcast_to_dims(const Tensor& x, const Dims& dims) {
  if (x.dims() == dims) return x;
  check(dims.size() >= x.dims().size(), "broadcast_to: {} has more axes than {}",
        to_string(x.type()), dims_to_string(dims));
  const auto rank = std::ssize(dims);
  return broadcast_in_dim(x, dims, range(rank - x.rank(), rank));
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
  const auto open_count = std::ranges::count(dims, -1);
  check(open_count <= 1 && std::ranges::none_of(dims, [](std::int64_t d) { return d < -1; }),
        "reshape: extents must be 0 or more, one may be -1, got {}", dims_to_string(dims));
  if (open_count == 0) return bind1(reshape_p, make_params(DimsParams{dims}), {x});
  std::int64_t known = 1;
  for (std::int64_t extent : dims)
    if (extent != -1) known = extent_product(known, extent);
  check(known > 0 && x.size() % known == 0, "reshape: {} does not divide into {}",
        to_string(x.type()), dims_to_string(dims));
  Dims full = dims;
  *std::ranges::find(full, -1) = x.size() / known;
  return bind1(reshape_p, make_params(DimsParams{full}), {x});
}

Tensor transpose(const Operand& operand, const Dims& order) {
  PlaceScope at(operand.place());
  const Tensor& x = operand.tensor();
  Dims normal;
  for (std::int64_t axis : order) normal.push_back(normal_axis("transpose", axis, x.rank()));
  if (normal == range(0, x.rank())) return x;
  return bind1(transpose_p, make_params(DimsParams{normal}), {x});
}

Tensor transpose(const Operand& x) {
  Dims order(x.tensor().dims(x.place()).size());
  std::iota(order.rbegin(), order.rend(), 0);  // the last axis first
  return transpose(x, order);
}

Tensor expand_dims(const Operand& operand, std::int64_t axis) {
  PlaceScope at(operand.place());
  Dims dims = operand.tensor().dims();
  dims.insert(dims.begin() + normal_axis("expand_dims", axis, operand.tensor().rank() + 1), 1);
  return reshape(operand, dims);
}

Tensor squeeze(const Operand& operand, const Dims& axes) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  const Dims dropped = normal_axes("squeeze", axes, x.rank());
  for (std::int64_t axis : dropped)
    check(at(x.dims(), axis) == 1, "squeeze: axis {} of {} is not 1", axis, to_string(x.type()));
  return reshape(operand, pick(x.dims(), other_axes(x.rank(), dropped)));
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
  const detail::HostValue* host = host_scalar(number.tensor());
  if (host && is_number(type.dtype))
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
