// Reductions over sliding windows, and pooling.
#include <postern/signal.h>

#include <algorithm>
#include <numeric>

#include "core/enum.h"
#include "core/text.h"
#include "ops/extents.h"
#include "ops/family.h"
#include "ops/reduce.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

Tensor reduce_window_sum(const Tensor& x, const Dims& window, const Dims& strides,
                         const Dims& dilation, const Dims& low, const Dims& high);

constexpr Reducer monoids[] = {
    {"add", zero_of}, {"multiply", one_of}, {"minimum", highest_of}, {"maximum", lowest_of}};

struct WindowParams {
  Monoid monoid;
  Dims window, strides, dilation, low, high;
  auto fields(Fields sink) const {
    return sink.field("monoid", monoids[static_cast<int>(monoid)].hlo)
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
            p.low.size() == rank && p.high.size() == rank,
        "reduce_window: window, strides, dilation and padding must have one entry for each axis of "
        "{}",
        to_string(operands[0]));  // reduce_window_c4 ...
  require_dtype(
      numeric(operands[0].dtype) && (p.monoid == Monoid::add || p.monoid == Monoid::multiply ||
                                     !is_complex(operands[0].dtype)),
      operands[0].dtype);
  Type type = operands[0];
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
  return pad(x, full_of(monoids[static_cast<int>(p.monoid)].neutral(x.dtype()), {x.dtype(), {}}),
             p.low, p.high);
}

/// For each place in the window, what it shows of padded x at each result: calls use(slice).
template <class Use>
void each_place(const WindowParams& p, const Tensor& x, const Dims& out, Use&& use) {
  const std::int64_t places =
      std::accumulate(p.window.begin(), p.window.end(), std::int64_t{1}, std::multiplies<>());
  for (std::int64_t k = 0; k < places; ++k) {
    Dims start, limit;
    std::int64_t rest = k;
    for (std::size_t i = p.window.size(); i-- > 0;) {
      start.insert(start.begin(), rest % p.window[i] * p.dilation[i]);
      rest /= p.window[i];
    }
    for (std::size_t i = 0; i < start.size(); ++i)
      limit.push_back(start[i] + spread_extent(out[i], p.strides[i]));
    use(slice(x, start, limit, p.strides));
  }
}

/// Sums pass tangents through; extrema pass on the tangent of the first place that holds them;
/// products the product rule, by prefix and suffix.
Jvp window_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<WindowParams>();
  const Tensor y = bind1(op.primitive, op.params, x);
  if (!dx[0].has_value()) return {{y}, {Tensor()}};
  WindowParams sums = p;
  sums.monoid = Monoid::add;
  Tensors values, tangents;
  each_place(p, padded(p, x[0]), y.dims(), [&](Tensor s) { values.push_back(std::move(s)); });
  each_place(p, padded(sums, dx[0]), y.dims(), [&](Tensor s) { tangents.push_back(std::move(s)); });
  Tensor dy;
  if (p.monoid == Monoid::multiply) {
    Tensors after(values.size() + 1);
    for (std::size_t k = values.size(); k-- > 0;) after[k] = product_any(values[k], after[k + 1]);
    Tensor before;
    for (std::size_t k = 0; k < values.size(); ++k) {
      const Tensor others = product_any(before, after[k + 1]);
      dy = add_any(dy, product_any(tangents[k], others));
      before = product_any(before, values[k]);
    }
    return {{y}, {dy}};
  }
  // The first of equal ones; what cannot be compared, as with nan, gives way to the next, as in
  // JAX.
  const auto holds = p.monoid == Monoid::max ? greater_equal : less_equal;
  Tensor best = values[0];
  dy = tangents[0];
  for (std::size_t k = 1; k < values.size(); ++k) {
    const Tensor stays = holds(best, values[k]);
    best = where(stays, best, values[k]);
    dy = where(stays, dy, tangents[k]);
  }
  return {{y}, {dy}};
}

Batched window_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                     const Tensor&) {
  WindowParams p = op.as<WindowParams>();
  for (Dims* d : {&p.window, &p.strides, &p.dilation}) d->insert(d->begin(), 1);
  for (Dims* d : {&p.low, &p.high}) d->insert(d->begin(), 0);
  return {{bind1(op.primitive, make_params(p), {batch_front(x[0], axes[0], size)})}, {0}};
}

void window_lower(Lowering& out, const Equation& e) {
  const auto& p = as<WindowParams>(*e.params);
  const Reducer& monoid = monoids[static_cast<int>(p.monoid)];
  const Type& type = out.operand_type(e, 0);
  const Type scalar{type.dtype, {}};
  const std::string element = Lowering::type(scalar);
  const Ssa initial = out.constant(literal_text(monoid.neutral(type.dtype), type.dtype), scalar);
  const Ssa result = out.fresh();
  out.write("    %{} = \"stablehlo.reduce_window\"(%{}, %{}) (", result.id, out.operand(e, 0).id,
            initial.id);
  out.region({element, element}, [&](std::span<const Ssa> args) -> std::vector<Lowering::Typed> {
    return {{out.op(monoid.hlo, {args[0], args[1]}, {&scalar, &scalar}, scalar), element}};
  });
  Separator comma;
  std::string padding;
  for (std::size_t i = 0; i < p.low.size(); ++i)
    padding += fmt::format("{}[{}, {}]", comma(), p.low[i], p.high[i]);
  out.write(") {{window_dimensions = {}, window_strides = {}, window_dilations = {}",
            array_text(p.window), array_text(p.strides), array_text(p.dilation));
  if (!p.low.empty())
    out.write(", padding = dense<[{}]> : tensor<{}x2xi64>", padding, p.low.size());
  out.write("}} : ({}, {}) -> {}\n", Lowering::type(type), element,
            Lowering::type(out.result_type(e)));
  out.define(e, 0, result);
}

constexpr Primitive window_p{.name = "reduce_window",
                             .type = window_type,
                             .jvp = window_jvp,
                             .batch = window_batch,
                             .lower = window_lower};

// The sum alone is linear, and has a transpose: ct spread over the windows by dilating it with the
// strides and summing reversed windows.
Tensors window_sum_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan types) {
  const auto& p = op.as<WindowParams>();
  const std::size_t rank = p.window.size();
  Dims low(rank), high(rank), interior(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t covered = spread_extent(p.window[i], p.dilation[i]),
                       placed = spread_extent(ct[0].dims()[i], p.strides[i]);
    low[i] = covered - 1 - p.low[i];
    interior[i] = p.strides[i] - 1;
    high[i] = types[0].dims[i] + covered - 1 - placed - low[i];
  }
  const Tensor spaced = pad(ct[0], zeros_of({ct[0].dtype(), {}}), low, high, interior);
  return {
      reduce_window_sum(spaced, p.window, Dims(rank, 1), p.dilation, Dims(rank, 0), Dims(rank, 0))};
}

constexpr Primitive window_sum_p = linear("reduce_window_sum", nullptr, window_type,
                                          window_sum_transpose, window_batch, window_lower);
constexpr const Primitive* window_family[] = {&window_p, &window_sum_p};
static_assert(complete(window_family));

/// Fills in the padding of all axes of an operand of these extents.
void set_padding(WindowParams& p, const ConvPadding& padding, const Dims& dims) {
  const std::size_t rank = dims.size();
  p.low.assign(rank, 0);
  p.high.assign(rank, 0);
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

/// A window over the spatial axes of x[batch, features, space...].
std::pair<Dims, WindowOptions> pooling(const char* op, const Tensor& x, const Dims& window,
                                       const PoolOptions& options) {
  check(x.rank() == static_cast<std::int64_t>(window.size()) + 2,
        "{}: x[batch, features, space...] must have 2 axes more than the window {}, got {}", op,
        dims_to_string(window), to_string(x.type()));
  auto widened = [](Dims d) {
    d.insert(d.begin(), 2, 1);
    return d;
  };
  WindowOptions out{.strides = widened(window), .padding = options.padding};
  if (!options.strides.empty()) out.strides = widened(options.strides);
  if (out.padding.kind == ConvPadding::Kind::pairs)
    out.padding.pairs.insert(out.padding.pairs.begin(), 2, {0, 0});
  return {widened(window), out};
}

Tensor reduce_window_sum(const Tensor& x, const Dims& window, const Dims& strides,
                         const Dims& dilation, const Dims& low, const Dims& high) {
  return bind1(window_sum_p,
               make_params(WindowParams{Monoid::add, window, strides, dilation, low, high}), {x});
}
}  // namespace

Tensor reduce_window(Monoid monoid, const Operand& operand, const Dims& window,
                     const WindowOptions& options) {
  PlaceScope at(operand.place());
  Tensor x = operand.tensor();
  check_enum("reduce_window: Monoid", monoid, Monoid::max);
  check_enum("reduce_window: padding kind", options.padding.kind, ConvPadding::Kind::pairs);
  WindowParams p{monoid, window, options.strides, options.window_dilation, {}, {}};
  if (p.strides.empty()) p.strides.assign(window.size(), 1);
  if (p.dilation.empty()) p.dilation.assign(window.size(), 1);
  check(window.size() == x.dims().size(),
        "reduce_window: the window {} must have one extent for each axis of {}",
        dims_to_string(window), to_string(x.type()));
  check(p.strides.size() == window.size() && p.dilation.size() == window.size(),
        "reduce_window: strides and dilation must have {} entries", window.size());
  set_padding(p, options.padding, x.dims());
  const Primitive* primitive = &window_p;
  if (monoid == Monoid::add) primitive = &window_sum_p;
  if (is_float(x.dtype()) && !is_number(x.dtype()))
    x = convert_to(x, DType::f32);  // not all have inf
  return convert_to(bind1(*primitive, make_params(std::move(p)), {x}), operand.tensor().dtype());
}

Tensor max_pool(const Operand& x, const Dims& window, const PoolOptions& options) {
  PlaceScope at(x.place());
  const auto [extents, how] = pooling("max_pool", x.tensor(), window, options);
  return reduce_window(Monoid::max, x, extents, how);
}

Tensor avg_pool(const Operand& x, const Dims& window, const PoolOptions& options) {
  PlaceScope at(x.place());
  const auto [extents, how] = pooling("avg_pool", x.tensor(), window, options);
  const Tensor total = reduce_window(Monoid::add, x, extents, how);
  return total / reduce_window(Monoid::add, ones_like(x), extents, how);
}

}  // namespace postern
