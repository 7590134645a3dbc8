// Convolution. The primitive knows one layout: x[batch, features, space...], kernel[out, features /
// groups, space...]; others are transposed to it.
#include <postern/conv.h>

#include "core/enum.h"
#include "core/lists.h"
#include "ops/axes.h"
#include "ops/extents.h"
#include "ops/family.h"
#include "ops/reduce.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

struct ConvParams {
  Dims strides, low, high, input_dilation, kernel_dilation;  // by spatial axis
  std::int64_t feature_groups = 1, batch_groups = 1;         // one of them is 1
  Precision precision = Precision::usual;
  std::int64_t groups() const { return feature_groups * batch_groups; }
  auto fields(Fields sink) const {
    return sink.field("strides", strides)
        .field("low", low)
        .field("high", high)
        .field("input_dilation", input_dilation)
        .field("kernel_dilation", kernel_dilation)
        .field("feature_groups", feature_groups)
        .field("batch_groups", batch_groups)
        .when(precision != Precision::usual, "precision", "highest");
  }
};

Types conv_type(const Params* params, TypeSpan operands) {
  const auto& p = as<ConvParams>(*params);
  const Type &x = operands[0], &k = operands[1];
  const std::string both = to_string(x) + " and " + to_string(k);
  check(x.dtype == k.dtype && numeric(x.dtype),  // convolution_c27
        "conv: operands must have one dtype of numbers, got {}", both);
  check(x.rank() == k.rank() && x.rank() >= 3,  // convolution_c1
        "conv: operands must have one rank, batch, features and space, got {}", both);
  for (const Dims* list : {&p.strides, &p.low, &p.high, &p.input_dilation, &p.kernel_dilation})
    check(static_cast<std::int64_t>(list->size()) == x.rank() - 2,  // convolution_c2, c4, c5, c7
          "conv: strides, padding and dilations must have one number for each spatial axis of {}",
          both);
  check(
      p.feature_groups > 0 && p.batch_groups > 0 &&
          p.groups() == std::max(p.feature_groups, p.batch_groups),  // convolution_c21..c23
      "conv: groups must be 1 or more, of features or of the batch but not of both, got {} and {}",
      p.feature_groups, p.batch_groups);
  const std::int64_t features = x.dims[1] / p.feature_groups;        // of a group
  check(x.dims[1] % p.feature_groups == 0 && features == k.dims[1],  // convolution_c11, c14
        "conv: the kernel must have {} features for {} groups, got {}", features, p.feature_groups,
        both);
  check(k.dims[0] % p.groups() == 0,  // convolution_c15, c16
        "conv: {} output features do not divide into {} groups", k.dims[0], p.groups());
  check(x.dims[0] % p.batch_groups == 0,  // convolution_c10
        "conv: a batch of {} does not divide into {} groups", x.dims[0], p.batch_groups);
  Type result{x.dtype, {x.dims[0] / p.batch_groups, k.dims[0]}, x.weak && k.weak};
  for (std::size_t i = 0; i < p.strides.size(); ++i) {
    check(p.strides[i] > 0 && p.input_dilation[i] > 0 && p.kernel_dilation[i] > 0,
          "conv: strides and dilations must be 1 or more");  // convolution_c3, c6, c8
    check(k.dims[i + 2] > 0, "conv: the kernel must have 1 or more places on each axis, got {}",
          to_string(k));
    const std::int64_t room = extent_sum(spread_extent(x.dims[i + 2], p.input_dilation[i]),
                                         extent_sum(p.low[i], p.high[i])),
                       window = spread_extent(k.dims[i + 2], p.kernel_dilation[i]);
    check(room >= 0, "conv: padding {} {} leaves nothing of {}", dims_to_string(p.low),
          dims_to_string(p.high), to_string(x));
    result.dims.push_back(window_places(room, window, p.strides[i]));  // convolution_c25
  }
  return {std::move(result)};
}

/// Exchanges batch and features of an operand, out and in of a kernel.
Tensor swapped(const Tensor& t) { return transpose(t, joined({1, 0}, range(2, t.rank()))); }

/// Cuts `axis` into `outer` and the rest behind: cut(t[n, 6], 1, 2) is [n, 2, 3].
Tensor cut(const Tensor& t, std::int64_t axis, std::int64_t outer) {
  Dims dims = t.dims();
  at(dims, axis) /= std::max<std::int64_t>(outer, 1);
  dims.insert(dims.begin() + axis, outer);
  return reshape(t, dims);
}
/// Moves `axis` in front of axis `to`, as numbered without `axis`, and makes one of both:
/// merged(t[2, n, 3], 0, 1) is [n, 6].
Tensor merged(const Tensor& t, std::int64_t axis, std::int64_t to) {
  Dims order = other_axes(t.rank(), {axis});
  order.insert(order.begin() + to, axis);
  Dims dims = pick(t.dims(), order);
  dims[size_of(to) + 1] *= at(dims, to);
  dims.erase(dims.begin() + to);
  return reshape(transpose(t, order), dims);
}

Tensor conv_bound(const ConvParams& p, const Tensor& x, const Tensor& kernel);

// --- derivatives ---
// As those of a product of matrices, with batch m, features j and k: x[m,j] kernel[j,k] -> [m,k];
// of x: ct[m,k] kernel'[k,j], the kernel backwards; of the kernel: x'[j,m] ct[m,k]. Strides of the
// one are dilations of the other. `back` are the parameters of the convolution that goes back. Its
// low padding aligns the first places, its high padding makes the extents those of the operand.

Tensor x_cotangent(const ConvParams& p, const Tensor& ct, const Tensor& kernel, const Type& x) {
  ConvParams back = p;
  std::swap(back.strides, back.input_dilation);
  back.low = back.high = {};
  back.feature_groups = p.groups();
  back.batch_groups = 1;
  for (std::size_t i = 0; i < p.strides.size(); ++i) {
    const std::int64_t window = spread_extent(kernel.dims()[i + 2], p.kernel_dilation[i]),
                       spread_x = spread_extent(x.dims[i + 2], p.input_dilation[i]),
                       spread_ct = spread_extent(ct.dims()[i + 2], p.strides[i]);
    back.low.push_back(window - 1 - p.low[i]);
    back.high.push_back(spread_x + window - 1 - spread_ct - back.low[i]);
  }
  const Tensor backwards = reverse(kernel, range(2, kernel.rank()));
  // Each group's out and in features exchange: [g out, in] -> [g in, out].
  const Tensor exchanged = merged(cut(backwards, 0, p.groups()), 0, 1);
  const Tensor dx = conv_bound(back, ct, swapped(exchanged));
  // Groups of the batch are groups of ct's features, so of dx's: [n, g j] -> [g n, j].
  if (p.batch_groups > 1) return merged(cut(dx, 1, p.batch_groups), 1, 0);
  return dx;
}

Tensor kernel_cotangent(const ConvParams& p, const Tensor& ct, const Tensor& x,
                        const Type& kernel) {
  ConvParams back = p;
  std::swap(back.strides, back.kernel_dilation);
  // With batch and features exchanged the kinds of groups are exchanged as well.
  std::swap(back.feature_groups, back.batch_groups);
  back.high = {};  // the low padding stays
  for (std::size_t i = 0; i < p.strides.size(); ++i) {
    const std::int64_t window = spread_extent(kernel.dims[i + 2], p.kernel_dilation[i]),
                       spread_x = spread_extent(x.dims()[i + 2], p.input_dilation[i]),
                       spread_ct = spread_extent(ct.dims()[i + 2], p.strides[i]);
    back.high.push_back(window + spread_ct - 1 - spread_x - p.low[i]);
  }
  return swapped(conv_bound(back, swapped(x), swapped(ct)));
}

Tensors conv_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types) {
  const auto& p = op.as<ConvParams>();
  const bool for_x = !x[0].has_value();
  const Type &own = types[for_x ? 0 : 1], &other = types[for_x ? 1 : 0];
  Tensor cotangent;
  if (ct[0].size() == 0 || other.size() == 0)
    cotangent = zeros_of(own);
  else if (for_x)
    cotangent = x_cotangent(p, ct[0], x[1], own);
  else
    cotangent = kernel_cotangent(p, ct[0], x[0], own);
  if (for_x) return {cotangent, Tensor()};
  return {Tensor(), cotangent};
}

// --- batching ---
// The batch, of `size` and in front, goes where the operands have it: into the batch of x, into the
// kernel's output features, or, when both have it, into the groups. Groups are the outer part of
// their axis.

Batched conv_batch_both(ConvParams p, const Tensor& x, const Tensor& kernel, std::int64_t size) {
  std::int64_t grouped_axis = 1;  // of x
  if (p.batch_groups > 1) {
    grouped_axis = 0;
    p.batch_groups *= size;
  } else {
    p.feature_groups *= size;
  }
  const Tensor y = conv_bound(p, merged(x, 0, grouped_axis), merged(kernel, 0, 0));
  return {{cut(y, 1, size)}, {1}};
}

Batched conv_batch_x(const ConvParams& p, const Tensor& x, const Tensor& kernel,
                     std::int64_t size) {
  // [size, groups n] -> [size, groups, n] -> [groups, size n] -> [groups size n]
  const Tensor grouped = merged(merged(cut(x, 1, p.batch_groups), 0, 1), 0, 0);
  return {{cut(conv_bound(p, grouped, kernel), 0, size)}, {0}};
}

Batched conv_batch_kernel(const ConvParams& p, const Tensor& x, const Tensor& kernel,
                          std::int64_t size) {
  // As in conv_batch_x, with output features for n; of the result those are axis 1.
  const Tensor grouped = merged(merged(cut(kernel, 1, p.groups()), 0, 1), 0, 0);
  const Tensor y = cut(cut(conv_bound(p, x, grouped), 1, p.groups()), 2, size);
  return {{merged(y, 1, 2)}, {1}};  // [n, groups, size, out] -> [n, size, groups out]
}

/// Returns no results, of the right type: groups of 0 would be refused.
Batched conv_batch_empty(const Op& op, Type x, bool of_x, Type kernel, bool of_kernel) {
  if (of_x) x.dims.erase(x.dims.begin());
  if (of_kernel) kernel.dims.erase(kernel.dims.begin());
  const Type* types[] = {&x, &kernel};
  const Type one = conv_type(op.params.get(), {types, 2})[0];
  return {{zeros_of({one.dtype, joined({0}, one.dims)})}, {0}};
}

Batched conv_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                   const Tensor&) {
  const auto& p = op.as<ConvParams>();
  const bool of_x = axes[0] >= 0, of_kernel = axes[1] >= 0;
  const Tensor operand = batch_front(x[0], axes[0], size, false),
               kernel = batch_front(x[1], axes[1], size, false);
  if (size == 0) return conv_batch_empty(op, operand.type(), of_x, kernel.type(), of_kernel);
  if (of_x && of_kernel) return conv_batch_both(p, operand, kernel, size);
  if (of_x) return conv_batch_x(p, operand, kernel, size);
  return conv_batch_kernel(p, operand, kernel, size);
}

// --- lowering ---

void conv_lower(Lowering& out, const Equation& e) {
  const auto& p = as<ConvParams>(*e.params);
  const std::string space = fmt::format("{}", fmt::join(range(0, std::ssize(p.low)), ", "));
  out.simple(
      e, "convolution",
      fmt::format(
          "batch_group_count = {} : i64, dimension_numbers = #stablehlo.conv<[b, f, "
          "{}]x[o, i, {}]->[b, f, {}]>, "
          "feature_group_count = {} : i64, window_strides = {}, padding = {}, lhs_dilation = {}, "
          "rhs_dilation = {}{}",
          p.batch_groups, space, space, space, p.feature_groups, array_text(p.strides),
          padding_text(p.low, p.high), array_text(p.input_dilation), array_text(p.kernel_dilation),
          out.precision_of(e, p.precision == Precision::highest)));
}

/// Counts a product and a sum for each element of the result and each weight that it is made of.
double conv_flops(const Params* params, TypeSpan operands) {
  const Type& kernel = operands[1];
  const std::int64_t weights = kernel.size() / std::max<std::int64_t>(kernel.dims[0], 1);
  const Type result = conv_type(params, operands)[0];
  return 2.0 * static_cast<double>(weights) * static_cast<double>(result.size());
}

constexpr Primitive conv_p = with_flops(
    multilinear("conv", nullptr, conv_type, conv_transpose, conv_batch, conv_lower), conv_flops);

static_assert(complete(conv_p));

Tensor conv_bound(const ConvParams& p, const Tensor& x, const Tensor& kernel) {
  return bind1(conv_p, make_params(p), {x, kernel});
}

/// Fills in the padding, none so far, of all spatial axes.
void set_padding(ConvParams& p, const ConvPadding& padding, const Type& x, const Type& kernel) {
  const std::size_t count = x.dims.size() - 2;
  const auto add = [&](const auto& low_and_high) {
    p.low.push_back(low_and_high.first);
    p.high.push_back(low_and_high.second);
  };
  if (padding.kind == ConvPadding::Kind::pairs) {
    for (const auto& pair : padding.pairs) add(pair);
    return;
  }
  if (padding.kind == ConvPadding::Kind::valid) {
    p.low = p.high = Dims(count, 0);
    return;
  }
  check(p.strides.size() == count && p.kernel_dilation.size() == count &&
            std::count(p.strides.begin(), p.strides.end(), 0) == 0,
        "conv: strides and dilations must have one number of 1 or more for each spatial axis of {}",
        to_string(x));
  check(p.input_dilation == Dims(count, 1),
        "conv: padding \"SAME\" goes with no input dilation, got {}",
        dims_to_string(p.input_dilation));
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t window = spread_extent(kernel.dims[i + 2], p.kernel_dilation[i]);
    add(same_padding(x.dims[i + 2], window, p.strides[i]));
  }
}

ConvParams params_of(const ConvOptions& options, const Tensor& x, const Tensor& kernel) {
  check(x.rank() == kernel.rank() && x.rank() >= 3,
        "conv: operands must have one rank, batch, features and space, got {} and {}",
        to_string(x.type()), to_string(kernel.type()));
  const std::size_t count = x.dims().size() - 2;
  ConvParams p{.strides = or_each(options.strides, count, 1),
               .low = {},
               .high = {},
               .input_dilation = or_each(options.input_dilation, count, 1),
               .kernel_dilation = or_each(options.kernel_dilation, count, 1),
               .feature_groups = options.groups,
               .batch_groups = options.batch_groups,
               .precision = options.precision};
  check_enum("conv: Precision", options.precision, Precision::highest);
  check_enum("conv: padding kind", options.padding.kind, ConvPadding::Kind::pairs);
  set_padding(p, options.padding, x.type(), kernel.type());
  return p;
}

/// Returns the order that transposes axes written as `from`, as "NHWC", to those written as `to`.
Dims order_between(std::string_view from, std::string_view to, std::string_view what,
                   std::int64_t rank) {
  check(std::ssize(from) == rank, "conv: the {} layout \"{}\" names {} axes, the tensor has {}",
        what, from, from.size(), rank);
  Dims order;
  for (char letter : to) {
    const std::size_t place = from.find(letter);
    check(place != std::string_view::npos && from.find(letter, place + 1) == std::string_view::npos,
          "conv: the {} layout \"{}\" must have '{}' once", what, from, letter);
    order.push_back(static_cast<std::int64_t>(place));
  }
  return order;
}

}  // namespace

ConvPadding::ConvPadding(std::string_view name, Place place)
    : kind(name == "SAME" ? Kind::same : Kind::valid) {
  PlaceScope scope(place);
  check(name == "SAME" || name == "VALID",
        "conv: padding must be \"SAME\", \"VALID\" or pairs of numbers, got \"{}\"", name);
}

Tensor conv(const Operand& operand, const Operand& operand_kernel, const ConvOptions& options) {
  PlaceScope scope(operand.place());
  const Tensor &x = operand.tensor(), &kernel = operand_kernel.tensor();
  const Type type = promote("conv", x.type(), kernel.type());
  const ConvParams p = params_of(options, x, kernel);
  return convert_to(conv_bound(p, as_factor(x, type), as_factor(kernel, type)), type.dtype,
                    type.weak);
}

Tensor conv_general(const Operand& operand, const Operand& operand_kernel, const ConvLayout& layout,
                    const ConvOptions& options) {
  PlaceScope scope(operand.place());
  std::string space;
  for (char letter : layout.x)
    if (letter != 'N' && letter != 'C') space += letter;
  const Tensor x =
      transpose(operand, order_between(layout.x, "NC" + space, "operand", operand.tensor().rank()));
  const Tensor kernel = transpose(
      operand_kernel,
      order_between(layout.kernel, "OI" + space, "kernel", operand_kernel.tensor().rank()));
  const Tensor y = conv(x, kernel, options);
  return transpose(y, order_between("NC" + space, layout.result, "result", y.rank()));
}

}  // namespace postern
