// Sorting: several tensors at once by the first few of them; argsort, top_k and searchsorted.
#include <postern/indexing.h>
#include <postern/sort.h>

#include <bit>
#include <limits>

#include "core/lists.h"
#include "ops/axes.h"
#include "ops/composed.h"
#include "ops/elements.h"
#include "ops/family.h"
#include "ops/index_axes.h"
#include "ops/reduce.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

struct SortParams {
  std::int64_t axis;
  int keys;
  bool stable;
};

Types sort_type(const Params* params, TypeSpan operands) {
  const auto& p = as<SortParams>(*params);
  check(p.keys >= 1 && size_of(p.keys) <= operands.size(),
        "sort: the number of keys must be 1 to {}, got {}", operands.size(), p.keys);
  Types out;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    check(operands[i].dims == operands[0].dims,  // sort_c2
          "sort: operands must have one shape, got {} and {}", to_string(operands[0]),
          to_string(operands[i]));
    check(p.axis >= 0 && p.axis < operands[i].rank(),  // sort_c4
          "sort: axis {} is not one of {}", p.axis, to_string(operands[i]));
    out.push_back(operands[i]);
  }
  return out;
}

Jvp sort_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const std::int64_t axis = op.as<SortParams>().axis;
  Tensors operands(x.begin(), x.end()), tangents(x.size());
  operands.push_back(iota({DType::s32, x[0].dims()}, axis));  // the index that each had before
  Tensors out = bind_n(op.primitive, op.params, operands);
  const Tensor order = out.back();
  out.pop_back();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (dx[i].has_value()) tangents[i] = take_along_axis(dx[i], order, axis, OutOfRange::promise);
  return {out, tangents};
}

Batched sort_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                   const Tensor& mask) {
  SortParams p = op.as<SortParams>();
  p.axis = past(p.axis, agree_on_batch_axis(axes) ? axes[0] : 0);  // where elementwise_batch has it
  return elementwise_batch({op.primitive, make_params(p)}, x, axes, size, mask);
}

/// Writes a sort's comparator of two rows of keys, of which each later one decides where the
/// earlier ones are equal. NaN comes after all numbers and equals itself, -0 equals 0; complex
/// numbers are two keys.
class Comparator {
 public:
  explicit Comparator(Lowering& out) : out_(out) {}

  void add_key(Ssa a, Ssa b, const Type& type) {
    if (!is_complex(type.dtype)) return keys_.push_back({a, b, {out_, type}});
    const Type real{real_dtype(type.dtype), {}};
    for (const char* part : {"real", "imag"})
      keys_.push_back(
          {out_.op(part, {a}, {&type}, real), out_.op(part, {b}, {&type}, real), {out_, real}});
  }

  /// Writes whether the first row comes before the second.
  Ssa before() {
    Ssa result = less(keys_.back());
    for (std::size_t i = keys_.size() - 1; i-- > 0;)
      result = keys_[i].to.either(less(keys_[i]), keys_[i].to.both(same(keys_[i]), result));
    return result;
  }

 private:
  struct Key {
    Ssa a, b;
    Elements to;
  };
  static Ssa less(const Key& k) {
    const Ssa lower = k.to.compare("LT", k.a, k.b);
    if (!is_float(k.to.type().dtype)) return lower;
    return k.to.either(lower, k.to.both(k.to.compare("EQ", k.a, k.a), k.to.is_nan(k.b)));
  }
  static Ssa same(const Key& k) {
    const Ssa equal = k.to.compare("EQ", k.a, k.b);
    if (!is_float(k.to.type().dtype)) return equal;
    return k.to.either(equal, k.to.both(k.to.is_nan(k.a), k.to.is_nan(k.b)));
  }

  Lowering& out_;
  std::vector<Key> keys_;
};

/// Returns the dtype that elements are sorted in: XLA cannot sort integers of less than a byte.
DType sorted_as(DType dtype) {
  if (!is_integer(dtype)) return dtype;
  return unpacked_dtype(dtype);
}

void sort_lower(Lowering& out, const Equation& e) {
  const auto& p = as<SortParams>(*e.params);
  std::vector<std::string> arguments, types;  // the region has two arguments for each
  std::vector<Ssa> ins, results;
  std::vector<Type> sorted;
  for (std::size_t i = 0; i < e.operands.size(); ++i) {
    const Type& type = out.operand_type(e, i);
    sorted.push_back({sorted_as(type.dtype), type.dims});
    ins.push_back(converted(out, out.operand(e, i), type, sorted[i]));
    results.push_back(out.fresh());
    types.push_back(Lowering::type(sorted[i]));
    arguments.insert(arguments.end(), 2, Lowering::type({sorted[i].dtype, {}}));
  }
  out.write("    {}\"stablehlo.sort\"({}) (", Lowering::assigned(results), Lowering::list(ins));
  out.region(arguments, [&](std::span<const Ssa> a) -> std::vector<Lowering::Typed> {
    Comparator comparator(out);
    for (std::size_t k = 0; k < size_of(p.keys); ++k)
      comparator.add_key(a[2 * k], a[2 * k + 1], {sorted[k].dtype, {}});
    return {{comparator.before(), "tensor<i1>"}};
  });
  out.write(") {{dimension = {} : i64, is_stable = {}}} : ({}) -> ({})\n", p.axis, p.stable,
            fmt::join(types, ", "), fmt::join(types, ", "));
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Type& type = out.operand_type(e, i);
    out.define(e, static_cast<int>(i), converted(out, results[i], sorted[i], type));
  }
}

constexpr Primitive sort_p{
    .name = "sort", .type = sort_type, .jvp = sort_jvp, .batch = sort_batch, .lower = sort_lower};

// --- top_k ---
// CHLO's, for which XLA:CPU has a kernel that does not sort everything: of f32 a hundred times as
// fast.

struct TopParams {
  std::int64_t k;
};

Types top_type(const Params* params, TypeSpan operands) {
  const std::int64_t k = as<TopParams>(*params).k;
  const Type& x = operands[0];
  require_dtype(ordered(x.dtype), x.dtype);
  check(k >= 0, "top_k: k must be 0 or more, got {}", k);
  check(x.rank() > 0 && k <= x.dims.back(),
        "top_k: the last axis must have at least k = {} elements, got {}", k, to_string(x));
  Dims dims = x.dims;
  dims.back() = k;
  return {Type{x.dtype, dims, x.weak}, Type{DType::s32, dims}};
}
Jvp top_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  Tensors y = bind_n(op.primitive, op.params, x);
  const Tensor tangent = take_along_axis(dx[0], y[1], -1, OutOfRange::promise);
  return {std::move(y), {tangent, Tensor()}};
}
/// CHLO's orders floats by their bits, where NaN with a sign, which is what x86 makes of 0 / 0,
/// comes last: each becomes the one without. Some short floats have no such one: they are ordered
/// in f32.
void top_lower(Lowering& out, const Equation& e) {
  const Type &type = out.operand_type(e, 0), &result = out.result_type(e, 0);
  const Type wide{sum_dtype(type.dtype), type.dims}, chosen{wide.dtype, result.dims};
  Ssa x = converted(out, out.operand(e, 0), type, wide);
  if (is_float(wide.dtype)) {
    const Elements to(out, wide);
    const Number nan{.real = std::numeric_limits<double>::quiet_NaN()};
    x = to.select(to.is_nan(x), to.number(nan), x);
  }
  const Ssa values = out.fresh(), places = out.fresh();
  out.write("    %{}, %{} = \"chlo.top_k\"(%{}) {{k = {} : i64}} : ({}) -> ({}, {})\n", values.id,
            places.id, x.id, as<TopParams>(*e.params).k, Lowering::type(wide),
            Lowering::type(chosen), Lowering::type(out.result_type(e, 1)));
  out.define(e, 0, converted(out, values, chosen, result));
  out.define(e, 1, places);
}
constexpr Primitive top_k_p{
    .name = "top_k", .type = top_type, .jvp = top_jvp, .batch = front_batch, .lower = top_lower};

constexpr const Primitive* sort_family[] = {&sort_p, &top_k_p};
static_assert(complete(sort_family));

/// Returns whether a comes before b, NaN after all numbers.
Tensor before(const Tensor& a, const Tensor& b) {
  const Tensor lower = less(a, b);
  if (is_float(a.dtype())) return lower | (equal(a, a) & not_equal(b, b));
  return lower;
}

constexpr std::int64_t few = 16;  // so many elements are all compared rather than searched

}  // namespace

std::vector<Tensor> sort_by(const std::vector<Tensor>& operands, int keys, std::int64_t axis,
                            Place place) {
  PlaceScope scope(place);
  check(!operands.empty(), "sort_by: at least one tensor is needed");
  axis = normal_axis("sort_by", axis, operands[0].rank());
  return bind_n(sort_p, make_params(SortParams{axis, keys, true}), operands);
}

Tensor sort(const Operand& operand, std::int64_t axis) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  return sort_by({x}, 1, normal_axis("sort", axis, x.rank()))[0];
}

Tensor argsort(const Operand& operand, std::int64_t axis) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  axis = normal_axis("argsort", axis, x.rank());
  return sort_by({unpacked(x), iota({DType::s32, x.dims()}, axis)}, 1, axis)[1];
}

std::pair<Tensor, Tensor> top_k(const Operand& operand, std::int64_t k) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  const Tensor bytes = unpacked(x);
  Tensors y = bind_n(top_k_p, make_params(TopParams{k}), std::span(&bytes, 1));
  return {convert_to(y[0], x.dtype()), y[1]};
}

Tensor searchsorted(const Operand& operand, const Operand& given, bool right) {
  PlaceScope scope(operand.place());
  check(operand.tensor().rank() == 1, "searchsorted: the sorted tensor must have rank 1, got {}",
        to_string(operand.tensor().type()));
  const Type common = promote("searchsorted", operand.tensor().type(), given.tensor().type());
  check(!is_complex(common.dtype), "searchsorted: complex numbers have no order, got {}",
        to_string(common));
  const Tensor x = convert_to(operand.tensor(), common.dtype),
               values = fit(given.tensor(), {common.dtype, given.tensor().dims()});
  const auto precedes = [&](const Tensor& element, const Tensor& value) {
    if (right) return !before(value, element);
    return before(element, value);
  };
  const std::int64_t n = x.size();
  if (n <= few)  // n comparisons for each value, without a loop of gathers
    return sum(precedes(x, expand_dims(values, -1)), {.axes = Dims{-1}});
  const auto unsigned_n = static_cast<std::uint64_t>(n);
  // Binary search: the count of elements that precede, found from its highest bit to its lowest.
  Tensor count = zeros({DType::s32, values.dims()});
  for (auto step = static_cast<std::int64_t>(std::bit_floor(unsigned_n)); step > 0; step /= 2) {
    const Tensor more = count + step;
    const Tensor last = expand_dims(minimum(more, n) - 1, -1);
    const Tensor element = gather(x, last, single_elements(0), {1}, OutOfRange::promise);
    count = where((more <= n) & precedes(element, values), more, count);
  }
  return count;
}

}  // namespace postern
