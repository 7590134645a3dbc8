// What the families share: promotion, broadcasting, batching of elementwise operations.
#include "ops/family.h"

#include <algorithm>
#include <bit>

#include "ops/axes.h"
#include "ops/shape.h"

namespace postern::internal {

namespace {

// The nodes of JAX's lattice of types: the dtypes, then the weak integer, float and complex.
constexpr int weak_int = dtype_count, weak_float = dtype_count + 1, weak_complex = dtype_count + 2,
              nodes = dtype_count + 3;
/// A set of nodes, bit by bit, for each node.
struct NodeSets {
  std::uint64_t bits[nodes] = {};
  constexpr bool has(int node, int member) const { return bits[node] >> member & 1; }
  constexpr void add(int node, int member) { bits[node] |= std::uint64_t{1} << member; }
  constexpr void add(DType from, DType to) { add(static_cast<int>(from), static_cast<int>(to)); }
};

/// Returns for each node those that it may be promoted to, itself among them.
constexpr NodeSets make_lattice() {
  NodeSets above;
  auto node = [](DType t) { return static_cast<int>(t); };
  using enum DType;
  above.add(node(pred), weak_int);
  for (DType t : {u2, s2, u4, s4, u8, s8}) above.add(weak_int, node(t));
  constexpr std::pair<DType, DType> wider[] = {{u8, s16},  {u8, u16},   {u16, s32},  {u16, u32},
                                               {u32, s64}, {u32, u64},  {s8, s16},   {s16, s32},
                                               {s32, s64}, {f16, f32},  {bf16, f32}, {f32, f64},
                                               {f32, c64}, {f64, c128}, {c64, c128}};
  for (const auto& [from, to] : wider) above.add(from, to);
  for (DType t : {s64, u64}) above.add(node(t), weak_float);
  for (int t = node(f8e5m2); t <= node(f4e2m1fn); ++t) above.add(weak_float, t);
  for (DType t : {f16, bf16}) above.add(weak_float, node(t));
  above.add(weak_float, weak_complex);
  above.add(weak_complex, node(c64));
  for (int i = 0; i < nodes; ++i) above.add(i, i);
  // The transitive closure: no path is longer than there are nodes.
  for (int round = 0; round < nodes; ++round)
    for (int i = 0; i < nodes; ++i)
      for (int j = 0; j < nodes; ++j)
        if (above.has(i, j)) above.bits[i] |= above.bits[j];
  return above;
}
constexpr NodeSets lattice = make_lattice();

int node_of(const Type& t) {
  if (!t.weak || t.dtype == DType::pred) return static_cast<int>(t.dtype);
  if (is_complex(t.dtype)) return weak_complex;
  if (is_float(t.dtype)) return weak_float;
  return weak_int;
}

/// Returns the dtype of a weak common type: that of the operand of that kind (a weak `node`); what
/// both would promote to if they were not weak; or the widest of the kind, as f64 for u64 and s64.
DType weak_dtype(int node, const Type& a, const Type& b) {
  const bool of_a = a.weak && node_of(a) == node, of_b = b.weak && node_of(b) == node;
  if (of_a && !of_b) return a.dtype;
  if (of_b && !of_a) return b.dtype;
  if (of_a && of_b) {
    const Type both = promote("", {a.dtype, {}}, {b.dtype, {}});
    if (!both.weak) return both.dtype;
  }
  if (node == weak_complex) return DType::c128;
  if (node == weak_int) return DType::u64;  // as in C++, where a signed number meets one
  return DType::f64;
}

}  // namespace

Type promote(const char* op, const Type& a, const Type& b) {
  if (a.dtype == b.dtype) return {a.dtype, {}, a.weak && b.weak};
  // The least upper bound: of the nodes above both that from which all of these can be reached.
  const std::uint64_t above_both = lattice.bits[node_of(a)] & lattice.bits[node_of(b)];
  for (int node = 0; node < nodes; ++node) {
    const bool is_above = above_both >> node & 1, is_least = !(above_both & ~lattice.bits[node]);
    if (!is_above || !is_least) continue;
    if (node < dtype_count) return {static_cast<DType>(node), {}, false};  // weak ones meet above
    return {weak_dtype(node, a, b), {}, true};
  }
  throw_type_error(fmt::format("{}: {} and {} have no common dtype; convert one of them", op,
                               to_string(a.dtype), to_string(b.dtype)));
}

Dims broadcast_dims(const char* op, const Dims& a, const Dims& b) {
  const bool a_is_longer = a.size() > b.size();
  const Dims &longer = a_is_longer ? a : b, &shorter = a_is_longer ? b : a;
  Dims out = longer;
  const std::size_t shift = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    std::int64_t& extent = out[i + shift];
    if (extent == shorter[i]) continue;
    check(extent == 1 || shorter[i] == 1,
          "{}: shapes {} and {} do not broadcast: extents must be equal or 1", op,
          dims_to_string(a), dims_to_string(b));
    if (extent == 1) extent = shorter[i];
  }
  return out;
}

Tensor fit(const Tensor& x, const Type& type) {
  const Type& has = x.type();
  if (alike(has, type)) return x;
  if (const detail::HostValue* host = host_scalar(x)) {
    const Number number = read_number(has.dtype, host->data.get());
    if (has.weak && !holds(type.dtype, number))
      throw_type_error(
          fmt::format("{} does not have the number {}; convert one of the operands, or the number",
                      to_string(type.dtype), literal_text(number, has.dtype)));
    if (is_number(type.dtype) && Trace::current()) return full_of(number, type);
    if (is_number(type.dtype))  // outside of a trace full_of would fill an array
      return broadcast_to_dims(full_of(number, {type.dtype, {}, type.weak}), type.dims);
  }
  return broadcast_to_dims(convert_to(x, type.dtype, type.weak), type.dims);
}

Tensor fit_within(const char* op, const char* what, const Tensor& x, const Type& type) {
  check(promote(op, type, x.type()).dtype == type.dtype,
        "{}: {} must be of a dtype that promotes to {}, got {}; convert it", op, what,
        to_string(type.dtype), to_string(x.type()));
  return fit(x, type);
}

std::pair<Tensor, Tensor> matched(const char* op, const Tensor& a, const Tensor& b) {
  const Type &ta = a.type(), &tb = b.type();
  if (alike(ta, tb)) return {a, b};
  Type type = promote(op, ta, tb);
  type.dims = broadcast_dims(op, ta.dims, tb.dims);
  return {fit(a, type), fit(b, type)};
}

std::int64_t normal_axis(const char* op, std::int64_t axis, std::int64_t rank) {
  check(axis >= -rank && axis < rank, "{}: axis {} is out of range for rank {}", op, axis, rank);
  return from_front(axis, rank);
}

Dims normal_axes(const char* op, const Dims& axes, std::int64_t rank) {
  Dims out;
  for (std::int64_t a : axes) out.push_back(normal_axis(op, a, rank));
  std::sort(out.begin(), out.end());
  check(std::adjacent_find(out.begin(), out.end()) == out.end(), "{}: axes {} name one axis twice",
        op, dims_to_string(axes));
  return out;
}

Dims axes_or_all(const char* op, const std::optional<Dims>& axes, std::int64_t rank) {
  if (axes) return normal_axes(op, *axes, rank);
  return range(0, rank);
}

DType complex_dtype(DType part) {
  if (part == DType::f64) return DType::c128;
  return DType::c64;
}

Tensor add_any(const Tensor& a, const Tensor& b) {
  if (!a.has_value()) return b;
  if (!b.has_value()) return a;
  return add(a, b);
}

Tensor product_any(const Tensor& a, const Tensor& b) {
  if (!a.has_value()) return b;
  if (!b.has_value()) return a;
  return a * b;
}

Tensor batch_front(const Tensor& x, int axis, std::int64_t size, bool force) {
  if (axis < 0) {
    if (!force) return x;
    Dims dims = x.dims();
    dims.insert(dims.begin(), size);
    return broadcast_to_dims(x, dims);
  }
  if (axis == 0) return x;
  return transpose(x, joined({axis}, other_axes(x.rank(), {axis})));
}

bool any_mapped(std::span<const int> axes) {
  return std::ranges::any_of(axes, [](int axis) { return axis >= 0; });
}

bool agree_on_batch_axis(std::span<const int> axes) {
  return axes[0] >= 0 && std::ranges::all_of(axes, [&](int axis) { return axis == axes[0]; });
}

Batched front_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                    const Tensor&) {
  Tensors moved;
  for (std::size_t i = 0; i < x.size(); ++i) moved.push_back(batch_front(x[i], axes[i], size));
  Tensors out = bind_n(op.primitive, op.params, moved);
  return {out, std::vector<int>(out.size(), 0)};
}

Batched elementwise_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                          const Tensor& mask) {
  if (!agree_on_batch_axis(axes)) return front_batch(op, x, axes, size, mask);
  Tensors out = bind_n(op.primitive, op.params, x);
  return {out, std::vector<int>(out.size(), axes[0])};
}

Types same_type(const Params*, TypeSpan operands) {
  Type type{operands[0].dtype, operands[0].dims, operands[0].weak};
  for (std::size_t i = 1; i < operands.size(); ++i) {
    check(alike(operands[i], type), "operands must have one type, got {} and {}",
          to_string(operands[0]), to_string(operands[i]));
    type.weak = type.weak && operands[i].weak;
  }
  return {std::move(type)};
}

bool numeric(DType d) { return is_integer(d) || is_differentiable(d); }
bool integral(DType d) { return d == DType::pred || is_integer(d); }
bool real_number(DType d) { return is_integer(d) || is_float(d); }
bool ordered(DType d) { return integral(d) || is_float(d); }

void require_dtype(bool ok, DType dtype) {
  check(ok, "the operation is not defined for {}", to_string(dtype));
}

std::string array_text(const Dims& values) {
  if (values.empty()) return "array<i64>";
  return fmt::format("array<i64: {}>", fmt::join(values, ", "));
}

}  // namespace postern::internal
