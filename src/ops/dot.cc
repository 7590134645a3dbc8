// Products: dot_general, and matmul in terms of it.
#include <postern/products.h>

#include "core/lists.h"
#include "ops/axes.h"
#include "ops/family.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

struct DotParams {
  DotAxes axes;
};

Dims free_axes(std::int64_t rank, const Dims& contract, const Dims& batch) {
  return other_axes(rank, joined(contract, batch));
}

void check_axes(const Dims& axes, const Type& type) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    check(axes[i] >= 0 && axes[i] < type.rank(), "dot_general: axis {} is not one of {}", axes[i],
          to_string(type));  // dot_general_c5..c8
    check(std::find(axes.begin(), nth(axes, i), axes[i]) == nth(axes, i),
          "dot_general: axis {} of {} is named twice", axes[i],
          to_string(type));  // dot_general_c3, c4
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
  check(pick(x.dims, d.batch_x) == pick(y.dims, d.batch_y),
        "dot_general: batch axes {} of {} and {} of {} differ", dims_to_string(d.batch_x),
        to_string(x), dims_to_string(d.batch_y), to_string(y));  // dot_general_c9
  check(pick(x.dims, d.contract_x) == pick(y.dims, d.contract_y),
        "dot_general: contracted axes {} of {} and {} of {} differ", dims_to_string(d.contract_x),
        to_string(x), dims_to_string(d.contract_y), to_string(y));  // dot_general_c10
  Type result{x.dtype, pick(x.dims, d.batch_x), x.weak && y.weak};
  result.dims = joined(result.dims, pick(x.dims, free_axes(x.rank(), d.contract_x, d.batch_x)));
  result.dims = joined(result.dims, pick(y.dims, free_axes(y.rank(), d.contract_y, d.batch_y)));
  return {std::move(result)};
}

// The cotangent of one operand: the result's cotangent contracted with the other operand over the
// axes that came from there, its axes put back in order. `first`: of x, whose free axes come before
// y's.
Tensor dot_cotangent(const Tensor& ct, const Tensor& other, const Type& own,
                     const Dims& own_contract, const Dims& own_batch, const Dims& other_contract,
                     const Dims& other_batch, bool first) {
  const Dims own_free = free_axes(own.rank(), own_contract, own_batch),
             other_free = free_axes(other.rank(), other_contract, other_batch);
  const auto batches = static_cast<std::int64_t>(own_batch.size()),
             own_count = static_cast<std::int64_t>(own_free.size()),
             other_count = static_cast<std::int64_t>(other_free.size());
  std::int64_t start = batches;
  if (first) start += own_count;
  const Tensor product =
      dot_general(ct, other,
                  {range(start, start + other_count), other_free, range(0, batches),
                   other_batch});  // batch, own free, other's contracted
  Dims order(
      other_contract.size());  // the contracted axes come in the order that they have in `other`
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return at(other_contract, a) < at(other_contract, b);
  });
  return transpose(product,
                   inverse_order(joined(joined(own_batch, own_free), pick(own_contract, order))));
}

Tensors dot_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types) {
  const DotAxes& d = op.as<DotParams>().axes;
  if (!x[0].has_value())
    return {dot_cotangent(ct[0], x[1], types[0], d.contract_x, d.batch_x, d.contract_y, d.batch_y,
                          true),
            Tensor()};
  return {Tensor(), dot_cotangent(ct[0], x[0], types[1], d.contract_y, d.batch_y, d.contract_x,
                                  d.batch_x, false)};
}

// Both mapped: one more batch axis. One mapped: one more free axis.
Batched dot_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t,
                  const Tensor&) {
  DotAxes d = op.as<DotParams>().axes;
  const std::int64_t bx = axes[0], by = axes[1];
  if (bx >= 0) {
    d.contract_x = past(d.contract_x, bx);
    d.batch_x = past(d.batch_x, bx);
  }
  if (by >= 0) {
    d.contract_y = past(d.contract_y, by);
    d.batch_y = past(d.batch_y, by);
  }
  if (bx >= 0 && by >= 0) {
    d.batch_x.insert(d.batch_x.begin(), bx);
    d.batch_y.insert(d.batch_y.begin(), by);
    return {{bind1(op.primitive, make_params(DotParams{d}), x)}, {0}};
  }
  const Dims free_x = free_axes(x[0].rank(), d.contract_x, d.batch_x),
             free_y = free_axes(x[1].rank(), d.contract_y, d.batch_y);
  const bool in_x = bx >= 0;
  const Dims& free = in_x ? free_x : free_y;
  const auto place = std::find(free.begin(), free.end(), std::max(bx, by)) - free.begin();
  std::size_t before = d.batch_x.size();
  if (!in_x) before += free_x.size();
  return {{bind1(op.primitive, make_params(DotParams{d}), x)},
          {static_cast<int>(before) + static_cast<int>(place)}};
}

void dot_lower(Lowering& out, const Equation& e) {
  const DotAxes& d = as<DotParams>(*e.params).axes;
  std::string batch;
  if (!d.batch_x.empty())
    batch = fmt::format("lhs_batching_dimensions = {}, rhs_batching_dimensions = {}, ",
                        dims_to_string(d.batch_x), dims_to_string(d.batch_y));
  out.simple(e, "dot_general",
             fmt::format("dot_dimension_numbers = #stablehlo.dot<{}"
                         "lhs_contracting_dimensions = {}, rhs_contracting_dimensions = {}>{}",
                         batch, dims_to_string(d.contract_x), dims_to_string(d.contract_y),
                         out.precision_of(e)));
}

/// A product and a sum for each pair that meets.
double dot_flops(const Params* params, TypeSpan operands) {
  double each = 2;
  for (const std::int64_t axis : as<DotParams>(*params).axes.contract_x)
    each *= static_cast<double>(operands[0].dims[static_cast<std::size_t>(axis)]);
  return each * static_cast<double>(dot_type(params, operands)[0].size());
}

constexpr Primitive dot_general_p =
    with_flops(keeping_axes(multilinear("dot_general", nullptr, dot_type, dot_transpose, dot_batch,
                                        dot_lower)),
               dot_flops);

constexpr const Primitive* dot_family[] = {&dot_general_p};
static_assert(complete(dot_family));

}  // namespace

Tensor dot_general(const Operand& operand_x, const Operand& operand_y, const DotAxes& axes) {
  PlaceScope scope(operand_x.place());
  const Tensor &x = operand_x.tensor(), &y = operand_y.tensor();
  const Type type = promote("dot_general", x.type(), y.type());
  DotAxes normal;
  for (std::int64_t a : axes.contract_x)
    normal.contract_x.push_back(normal_axis("dot_general", a, x.rank()));
  for (std::int64_t a : axes.contract_y)
    normal.contract_y.push_back(normal_axis("dot_general", a, y.rank()));
  for (std::int64_t a : axes.batch_x)
    normal.batch_x.push_back(normal_axis("dot_general", a, x.rank()));
  for (std::int64_t a : axes.batch_y)
    normal.batch_y.push_back(normal_axis("dot_general", a, y.rank()));
  // The low bits of the sums are the same.
  DType work = type.dtype;
  if (is_integer(work)) work = byte_dtype(work);
  const auto in = [&](const Tensor& t) {
    return convert_to(convert_to(t, type.dtype, type.weak), work);
  };
  return convert_to(bind1(dot_general_p, make_params(DotParams{normal}), {in(x), in(y)}),
                    type.dtype);
}

Tensor matmul(const Operand& operand_x, const Operand& operand_y) {
  PlaceScope scope(operand_x.place());
  Tensor x = operand_x.tensor(), y = operand_y.tensor();
  const std::string types = to_string(x.type()) + " and " + to_string(y.type());
  check(x.rank() > 0 && y.rank() > 0, "matmul: operands of rank 1 or more are needed, got {}",
        types);
  const bool row = x.rank() == 1, column = y.rank() == 1;
  if (row) x = expand_dims(x, 0);
  if (column) y = expand_dims(y, 1);
  check(at(x.dims(), x.rank() - 1) == at(y.dims(), y.rank() - 2),
        "matmul: the last axis of the first operand must be as long as the next to last of the "
        "second, got {}",
        types);
  for (std::int64_t i = 3; i <= std::min(x.rank(), y.rank()); ++i) {
    const std::int64_t n = at(x.dims(), x.rank() - i), m = at(y.dims(), y.rank() - i);
    check(n == m || n == 1 || m == 1,
          "matmul: the axes before the last two do not broadcast, got {}", types);
  }
  Tensor product;
  if (x.rank() == 2 && y.rank() == 2)
    product = dot_general(x, y, {{1}, {0}, {}, {}});
  else
    product = einsum("...ij,...jk->...ik", {x, y});
  Dims dropped;
  if (row) dropped.push_back(product.rank() - 2);
  if (column) dropped.push_back(product.rank() - 1);
  return squeeze(product, dropped);
}

}  // namespace postern
