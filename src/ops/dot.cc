// Products: dot_general, and matmul in terms of it.
#include <postern/products.h>

#include "core/enum.h"
#include "core/lists.h"
#include "ops/axes.h"
#include "ops/family.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

struct DotParams {
  DotAxes axes;
  Precision precision = Precision::usual;
  auto fields(Fields sink) const {
    return sink.field("axes", axes).when(precision != Precision::usual, "precision", "highest");
  }
};

Dims free_axes(std::int64_t rank, const Dims& contract, const Dims& batch) {
  return other_axes(rank, joined(contract, batch));
}

void check_axes(const Dims& axes, const Type& type) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    check(axes[i] >= 0 && axes[i] < type.rank(),  // dot_general_c5..c8
          "dot_general: axis {} is not one of {}", axes[i], to_string(type));
    check(std::find(axes.begin(), nth(axes, i), axes[i]) == nth(axes, i),  // dot_general_c3, c4
          "dot_general: axis {} of {} is named twice", axes[i], to_string(type));
  }
}

Types dot_type(const Params* params, TypeSpan operands) {
  const DotAxes& d = as<DotParams>(*params).axes;
  const Type &x = operands[0], &y = operands[1];
  check(x.dtype == y.dtype && (numeric(x.dtype) || x.dtype == DType::pred),
        "dot_general: operands must have one dtype of numbers, got {} and {}", to_string(x),
        to_string(y));
  check(d.batch_x.size() == d.batch_y.size() && d.contract_x.size() == d.contract_y.size(),
        "dot_general: batch and contracted axes must come in pairs, got {} {} and {} {}",
        dims_to_string(d.batch_x), dims_to_string(d.contract_x), dims_to_string(d.batch_y),
        dims_to_string(d.contract_y));  // dot_general_c1, c2
  check_axes(joined(d.batch_x, d.contract_x), x);
  check_axes(joined(d.batch_y, d.contract_y), y);
  check(pick(x.dims, d.batch_x) == pick(y.dims, d.batch_y),  // dot_general_c9
        "dot_general: batch axes {} of {} and {} of {} differ", dims_to_string(d.batch_x),
        to_string(x), dims_to_string(d.batch_y), to_string(y));
  check(pick(x.dims, d.contract_x) == pick(y.dims, d.contract_y),  // dot_general_c10
        "dot_general: contracted axes {} of {} and {} of {} differ", dims_to_string(d.contract_x),
        to_string(x), dims_to_string(d.contract_y), to_string(y));
  Type result{x.dtype, pick(x.dims, d.batch_x), x.weak && y.weak};
  result.dims = joined(result.dims, pick(x.dims, free_axes(x.rank(), d.contract_x, d.batch_x)));
  result.dims = joined(result.dims, pick(y.dims, free_axes(y.rank(), d.contract_y, d.batch_y)));
  return {std::move(result)};
}

/// Returns the cotangent of one operand (`own`): the result's cotangent contracted with the other
/// operand over the other's free axes, its axes then put back in order. `d` has the axes of `own`
/// for x's, those of `other` for y's. A result has batch axes, the free axes of its x, those of its
/// y; so `own_is_x` says where in ct the other's are.
Tensor dot_cotangent(const Tensor& ct, const Tensor& other, const Type& own, const DotAxes& d,
                     bool own_is_x, Precision precision) {
  const Dims own_free = free_axes(own.rank(), d.contract_x, d.batch_x),
             other_free = free_axes(other.rank(), d.contract_y, d.batch_y);
  const std::int64_t batch_count = std::ssize(d.batch_x);
  std::int64_t start = batch_count;
  if (own_is_x) start += std::ssize(own_free);
  const DotAxes axes{.contract_x = range(start, start + std::ssize(other_free)),  // of ct
                     .contract_y = other_free,
                     .batch_x = range(0, batch_count),
                     .batch_y = d.batch_y};
  const Tensor product = dot_general(ct, other, axes, precision);
  // Its axes are the batch, own's free ones and, in the order that they have in `other`, those that
  // were contracted.
  Dims order = range(0, std::ssize(d.contract_y));
  std::ranges::sort(order, {}, [&](std::int64_t pair) { return at(d.contract_y, pair); });
  const Dims axes_of_own = joined(joined(d.batch_x, own_free), pick(d.contract_x, order));
  return transpose(product, inverse_order(axes_of_own));
}

Tensors dot_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types) {
  const auto& [d, precision] = op.as<DotParams>();
  if (!x[0].has_value())
    return {dot_cotangent(ct[0], x[1], types[0], d, true, precision), Tensor()};
  DotAxes exchanged = d;
  std::swap(exchanged.contract_x, exchanged.contract_y);
  std::swap(exchanged.batch_x, exchanged.batch_y);
  return {Tensor(), dot_cotangent(ct[0], x[0], types[1], exchanged, false, precision)};
}

/// Makes of the batch one more batch axis, in front, where both operands are mapped. Where one is,
/// it becomes a free axis of that operand: the result has it among the operand's other free axes.
Batched dot_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t,
                  const Tensor&) {
  DotParams p = op.as<DotParams>();
  DotAxes& d = p.axes;
  const std::int64_t mapped_x = axes[0];
  const std::int64_t mapped_y = axes[1];
  const bool in_x = mapped_x >= 0, in_y = mapped_y >= 0;
  if (in_x) {
    d.contract_x = past(d.contract_x, mapped_x);
    d.batch_x = past(d.batch_x, mapped_x);
  }
  if (in_y) {
    d.contract_y = past(d.contract_y, mapped_y);
    d.batch_y = past(d.batch_y, mapped_y);
  }
  if (in_x && in_y) {
    d.batch_x.insert(d.batch_x.begin(), mapped_x);
    d.batch_y.insert(d.batch_y.begin(), mapped_y);
    return {{bind1(op.primitive, make_params(std::move(p)), x)}, {0}};
  }
  // The place in the result: behind the batch axes, and where y is mapped the free axes of x.
  Dims free = free_axes(x[0].rank(), d.contract_x, d.batch_x);
  std::int64_t before = std::ssize(d.batch_x);
  if (in_y) {
    before += std::ssize(free);
    free = free_axes(x[1].rank(), d.contract_y, d.batch_y);
  }
  const std::int64_t mapped = in_x ? mapped_x : mapped_y;
  const auto place = std::ranges::find(free, mapped) - free.begin();
  return {{bind1(op.primitive, make_params(std::move(p)), x)}, {static_cast<int>(before + place)}};
}

void dot_lower(Lowering& out, const Equation& e) {
  const auto& [d, precision] = as<DotParams>(*e.params);
  std::string batch;
  if (!d.batch_x.empty())
    batch = fmt::format("lhs_batching_dimensions = {}, rhs_batching_dimensions = {}, ",
                        dims_to_string(d.batch_x), dims_to_string(d.batch_y));
  out.simple(e, "dot_general",
             fmt::format("dot_dimension_numbers = #stablehlo.dot<{}"
                         "lhs_contracting_dimensions = {}, rhs_contracting_dimensions = {}>{}",
                         batch, dims_to_string(d.contract_x), dims_to_string(d.contract_y),
                         out.precision_of(e, precision == Precision::highest)));
}

/// Counts a product and a sum for each element of the result and each pair contracted into it.
double dot_flops(const Params* params, TypeSpan operands) {
  double each = 2;
  for (const std::int64_t axis : as<DotParams>(*params).axes.contract_x)
    each *= static_cast<double>(operands[0].dims[size_of(axis)]);
  return each * static_cast<double>(dot_type(params, operands)[0].size());
}

constexpr Primitive dot_general_p =
    with_flops(keeping_axes(multilinear("dot_general", nullptr, dot_type, dot_transpose, dot_batch,
                                        dot_lower)),
               dot_flops);

static_assert(complete(dot_general_p));

}  // namespace

Tensor dot_general(const Operand& operand_x, const Operand& operand_y, const DotAxes& axes,
                   Precision precision) {
  PlaceScope scope(operand_x.place());
  check_enum("dot_general: Precision", precision, Precision::highest);
  const Tensor &x = operand_x.tensor(), &y = operand_y.tensor();
  const Type type = promote("dot_general", x.type(), y.type());
  DotAxes normal = axes;
  const auto count_from_front = [](Dims& named, const Tensor& t) {
    for (std::int64_t& axis : named) axis = normal_axis("dot_general", axis, t.rank());
  };
  count_from_front(normal.contract_x, x);
  count_from_front(normal.contract_y, y);
  count_from_front(normal.batch_x, x);
  count_from_front(normal.batch_y, y);
  return convert_to(bind1(dot_general_p, make_params(DotParams{normal, precision}),
                          {as_factor(x, type), as_factor(y, type)}),
                    type.dtype);
}

Tensor matmul(const Operand& operand_x, const Operand& operand_y) {
  PlaceScope scope(operand_x.place());
  Tensor x = operand_x.tensor(), y = operand_y.tensor();
  const std::string types = to_string(x.type()) + " and " + to_string(y.type());
  check(x.rank() > 0 && y.rank() > 0, "matmul: operands of rank 1 or more are needed, got {}",
        types);
  const bool row = x.rank() == 1;
  const bool column = y.rank() == 1;
  if (row) x = expand_dims(x, 0);  // dropped from the product again
  if (column) y = expand_dims(y, 1);
  check(at(x.dims(), x.rank() - 1) == at(y.dims(), y.rank() - 2),
        "matmul: the last axis of the first operand must be as long as the next to last of the "
        "second, got {}",
        types);
  for (std::int64_t i = 3; i <= std::min(x.rank(), y.rank()); ++i) {  // counted from the end
    const std::int64_t in_x = at(x.dims(), x.rank() - i);
    const std::int64_t in_y = at(y.dims(), y.rank() - i);
    check(in_x == in_y || in_x == 1 || in_y == 1,
          "matmul: the axes before the last two do not broadcast, got {}", types);
  }
  const bool matrices = x.rank() == 2 && y.rank() == 2;
  const Tensor product =
      matrices ? dot_general(x, y, {{1}, {0}, {}, {}}) : einsum("...ij,...jk->...ik", {x, y});
  Dims dropped;
  if (row) dropped.push_back(product.rank() - 2);
  if (column) dropped.push_back(product.rank() - 1);
  return squeeze(product, dropped);
}

}  // namespace postern
