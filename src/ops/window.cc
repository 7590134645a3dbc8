// Reductions over sliding windows, and pooling.
#include <postern/indexing.h>
#include <postern/signal.h>

#include <algorithm>
#include <limits>

#include "core/enum.h"
#include "ops/axes.h"
#include "ops/composed.h"
#include "ops/extents.h"
#include "ops/family.h"
#include "ops/index_axes.h"
#include "ops/reduce.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

const Reducer& reducer_of(Monoid monoid) {
  static constexpr Reducer in_order[] = {adding, multiplying, smallest_wins, largest_wins};
  return in_order[static_cast<int>(monoid)];
}

struct WindowParams {
  Monoid monoid;
  Dims window, strides, dilation, low, high;
  auto fields(Fields sink) const {
    return sink.field("monoid", reducer_of(monoid).hlo)
        .field("window", window)
        .field("strides", strides)
        .field("dilation", dilation)
        .field("low", low)
        .field("high", high);
  }
};

Types window_type(const Params* params, TypeSpan operands) {
  const auto& p = as<WindowParams>(*params);
  const std::size_t rank = operands[0].dims.size();
  check(p.window.size() == rank && p.strides.size() == rank && p.dilation.size() == rank &&
            p.low.size() == rank && p.high.size() == rank,  // reduce_window_c4 ...
        "reduce_window: window, strides, dilation and padding must have one entry for each axis of "
        "{}",
        to_string(operands[0]));
  Type type = operands[0];
  const bool needs_order = p.monoid == Monoid::min || p.monoid == Monoid::max;
  require_dtype(needs_order ? real_number(type.dtype) : numeric(type.dtype), type.dtype);
  for (std::size_t i = 0; i < rank; ++i) {
    check(p.window[i] > 0 && p.strides[i] > 0 && p.dilation[i] > 0,
          "reduce_window: window, strides and dilation must be positive, got {}, {}, {}",
          dims_to_string(p.window), dims_to_string(p.strides), dims_to_string(p.dilation));
    const std::int64_t padded = extent_sum(type.dims[i], extent_sum(p.low[i], p.high[i])),
                       covered = spread_extent(p.window[i], p.dilation[i]);
    type.dims[i] = window_places(padded, covered, p.strides[i]);
  }
  return {std::move(type)};
}

Tensor padded(const WindowParams& p, const Tensor& x) {
  const Number neutral = reducer_of(p.monoid).neutral(x.dtype());
  return pad(x, full_of(neutral, {x.dtype(), {}}), p.low, p.high);
}

/// Returns for each place in the window, row-major, what stands there in the window of each result:
/// slices of padded x, all of the result's extents `out`.
Tensors slices_by_place(const WindowParams& p, const Tensor& x, const Dims& out) {
  Tensors slices;
  for (std::int64_t place = 0; place < product(p.window); ++place) {
    Dims start(out.size()), limit(out.size());
    std::int64_t rest = place;
    for (std::size_t i = out.size(); i-- > 0;) {
      start[i] = rest % p.window[i] * p.dilation[i];
      limit[i] = start[i] + spread_extent(out[i], p.strides[i]);
      rest /= p.window[i];
    }
    slices.push_back(slice(x, start, limit, p.strides));
  }
  return slices;
}

/// Returns the sum of all factors' tangents, each times the product of the other factors: of those
/// before it and those after it, so that no zero is divided by.
Tensor product_tangent(const Tensors& factors, const Tensors& tangents) {
  Tensors after(factors.size() + 1);
  for (std::size_t k = factors.size(); k-- > 0;) after[k] = product_any(factors[k], after[k + 1]);
  Tensor before, sum;
  for (std::size_t k = 0; k < factors.size(); ++k) {
    const Tensor others = product_any(before, after[k + 1]);
    sum = add_any(sum, product_any(tangents[k], others));
    before = product_any(before, factors[k]);
  }
  return sum;
}

/// Returns what stands in dx, padded like x, at the first of the places that hold each extremum. It
/// is gathered by number: were it chosen as x is, XLA would compile the transpose for minutes.
Tensor at_extrema(const WindowParams& p, const Tensor& x, const Tensor& dx, const Dims& out) {
  // Axes in front along which no window reaches, and devices may share, stay; the rest becomes one.
  std::int64_t alone = 0;
  while (alone < x.rank() && at(p.window, alone) == 1 && at(p.strides, alone) == 1) ++alone;
  const Dims in_front = range(0, alone);
  Dims flat = pick(x.dims(), in_front);
  flat.push_back(x.size() / product(flat));
  DType dtype = DType::s32;
  if (flat.back() > std::numeric_limits<std::int32_t>::max()) dtype = DType::s64;
  const Tensor numbers = reshape(iota({dtype, flat}, alone), x.dims());
  const Tensors values = slices_by_place(p, x, out), places = slices_by_place(p, numbers, out);
  // What cannot be compared, as with nan, gives way to the next, as in JAX.
  const auto holds = p.monoid == Monoid::max ? greater_equal : less_equal;
  Tensor best = values[0], winner = places[0];
  for (std::size_t k = 1; k < values.size(); ++k) {
    const Tensor stays = holds(best, values[k]);
    best = where(stays, best, values[k]);
    winner = where(stays, winner, places[k]);
  }
  return gather(reshape(dx, flat), expand_dims(winner, -1), single_elements(alone, in_front),
                Dims(flat.size(), 1), OutOfRange::promise);
}

/// Extrema pass on the tangent of the first of the places that hold them. Sums are window_sum_p.
Jvp window_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<WindowParams>();
  const Tensor y = bind1(op.primitive, op.params, x);
  if (y.size() == 0) return {{y}, {Tensor()}};
  WindowParams sums = p;
  sums.monoid = Monoid::add;  // what is padded has no tangent
  const Tensor values = padded(p, x[0]), tangents = padded(sums, dx[0]);
  if (p.monoid != Monoid::multiply) return {{y}, {at_extrema(p, values, tangents, y.dims())}};
  return {{y},
          {product_tangent(slices_by_place(p, values, y.dims()),
                           slices_by_place(p, tangents, y.dims()))}};
}

Batched window_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                     const Tensor& mask) {
  WindowParams p = op.as<WindowParams>();
  for (Dims* ones : {&p.window, &p.strides, &p.dilation}) ones->insert(ones->begin(), 1);
  for (Dims* zeros : {&p.low, &p.high}) zeros->insert(zeros->begin(), 0);
  return front_batch({op.primitive, make_params(p)}, x, axes, size, mask);
}

/// What padding cuts off is cut beforehand: XLA takes a window of one element for its operand, of
/// another shape, and ends the process.
void window_lower(Lowering& out, const Equation& e) {
  const auto& p = as<WindowParams>(*e.params);
  const Dims paddings = joined(p.low, p.high);
  if (std::ranges::any_of(paddings, [](std::int64_t by) { return by < 0; }) &&
      out.result_type(e).size() > 0)
    return lower_as(out, e, [&](TensorSpan x) {
      WindowParams inner = p;
      inner.low = inner.high = Dims(p.low.size(), 0);
      return Tensors{bind1(*e.primitive, make_params(std::move(inner)), {padded(p, x[0])})};
    });
  std::string attributes =
      fmt::format("window_dimensions = {}, window_strides = {}, window_dilations = {}",
                  array_text(p.window), array_text(p.strides), array_text(p.dilation));
  if (!p.low.empty()) attributes += ", padding = " + padding_text(p.low, p.high);
  reduce_window_lower(out, e, reducer_of(p.monoid), attributes);
}

constexpr Primitive window_p{.name = "reduce_window",
                             .type = window_type,
                             .jvp = window_jvp,
                             .batch = window_batch,
                             .lower = window_lower};

/// Returns the cotangent of a window's sum, the only linear one: for each element of x the sum of
/// the cotangents whose windows have it. These are a window of stride 1 over ct, when it is spread
/// by the strides and padded so that there are as many results as x has elements.
Tensors window_sum_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan types) {
  const auto& p = op.as<WindowParams>();
  const std::size_t rank = p.window.size();
  Dims low(rank), high(rank), interior(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t covered = spread_extent(p.window[i], p.dilation[i]),
                       spread_ct = spread_extent(ct[0].dims()[i], p.strides[i]);
    low[i] = covered - 1 - p.low[i];
    interior[i] = p.strides[i] - 1;
    high[i] = types[0].dims[i] + covered - 1 - spread_ct - low[i];
  }
  const Tensor spread = pad(ct[0], zeros_of({ct[0].dtype(), {}}), low, high, interior);
  const Dims ones(rank, 1), none(rank, 0);
  WindowParams back = p;
  back.strides = ones;
  back.low = back.high = none;
  return {bind1(op.primitive, make_params(back), {spread})};
}

constexpr Primitive window_sum_p = linear("reduce_window_sum", nullptr, window_type,
                                          window_sum_transpose, window_batch, window_lower);
constexpr const Primitive* window_family[] = {&window_p, &window_sum_p};
static_assert(complete(window_family));

/// Fills in the padding, none so far, of all axes of an operand of these extents.
void set_padding(WindowParams& p, const ConvPadding& padding, const Dims& dims) {
  const std::size_t rank = dims.size();
  if (padding.kind == ConvPadding::Kind::valid) return;
  if (padding.kind == ConvPadding::Kind::pairs) {
    check(padding.pairs.size() == rank, "reduce_window: {} pairs of padding for {} axes",
          padding.pairs.size(), rank);
    for (std::size_t i = 0; i < rank; ++i) std::tie(p.low[i], p.high[i]) = padding.pairs[i];
    return;
  }
  if (std::ranges::count(p.strides, 0) > 0) return;  // the type rule refuses them
  for (std::size_t i = 0; i < rank; ++i)
    std::tie(p.low[i], p.high[i]) =
        same_padding(dims[i], spread_extent(p.window[i], p.dilation[i]), p.strides[i]);
}

/// Returns the window, with its options, over all axes of x[batch, features, space...] for one over
/// the spatial axes.
std::pair<Dims, WindowOptions> pooling(const char* op, const Tensor& x, const Dims& window,
                                       const PoolOptions& options) {
  check(x.rank() == std::ssize(window) + 2,
        "{}: x[batch, features, space...] must have 2 axes more than the window {}, got {}", op,
        dims_to_string(window), to_string(x.type()));
  auto widened = [](const Dims& spatial) { return joined({1, 1}, spatial); };
  WindowOptions out{.strides = widened(window), .padding = options.padding};
  if (!options.strides.empty()) out.strides = widened(options.strides);
  if (out.padding.kind == ConvPadding::Kind::pairs)
    out.padding.pairs.insert(out.padding.pairs.begin(), 2, {0, 0});
  return {widened(window), out};
}

}  // namespace

Tensor reduce_window(Monoid monoid, const Operand& operand, const Dims& window,
                     const WindowOptions& options) {
  PlaceScope at(operand.place());
  Tensor x = operand.tensor();
  check_enum("reduce_window: Monoid", monoid, Monoid::max);
  check_enum("reduce_window: padding kind", options.padding.kind, ConvPadding::Kind::pairs);
  WindowParams p{.monoid = monoid,
                 .window = window,
                 .strides = or_each(options.strides, window.size(), 1),
                 .dilation = or_each(options.window_dilation, window.size(), 1),
                 .low = Dims(window.size(), 0),
                 .high = Dims(window.size(), 0)};
  check(window.size() == x.dims().size(),
        "reduce_window: the window {} must have one extent for each axis of {}",
        dims_to_string(window), to_string(x.type()));
  check(p.strides.size() == window.size() && p.dilation.size() == window.size(),
        "reduce_window: strides and dilation must have {} entries", window.size());
  set_padding(p, options.padding, x.dims());
  const Primitive& primitive = monoid == Monoid::add ? window_sum_p : window_p;
  // Not all floats of a byte have inf, which is a neutral element.
  x = convert_to(x, working_dtype(reducer_of(monoid), x.dtype()));
  return convert_to(bind1(primitive, make_params(std::move(p)), {x}), operand.tensor().dtype());
}

Tensor max_pool(const Operand& x, const Dims& window, const PoolOptions& options) {
  PlaceScope at(x.place());
  const auto [extents, how] = pooling("max_pool", x.tensor(), window, options);
  return reduce_window(Monoid::max, x, extents, how);
}

Tensor avg_pool(const Operand& operand, const Dims& window, const PoolOptions& options) {
  PlaceScope at(operand.place());
  const DType dtype = operand.tensor().dtype();
  const auto [extents, how] = pooling("avg_pool", operand.tensor(), window, options);
  const Tensor x = convert_to(operand.tensor(), sum_dtype(dtype));  // bf16 has no 961 to divide by
  const Tensor total = reduce_window(Monoid::add, x, extents, how);
  return convert_to(total / reduce_window(Monoid::add, ones_like(x), extents, how), dtype);
}

}  // namespace postern
