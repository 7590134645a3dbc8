// Derivatives of operations whose bodies are the file's own. They run as they are written; where a
// derivative is taken, the same values are computed of operations that have one: sorting becomes a
// permutation, a reduction or a window a tree of its body, a scatter a gather and a body.
#include <postern/indexing.h>
#include <postern/transforms.h>

#include <algorithm>
#include <numeric>

#include "interpreter.h"
#include "rules.h"

namespace postern::internal::imported {

namespace {

/// The same, of what it needs alone: the rule of a derivative outlives the interpretation.
struct Kept {
  std::shared_ptr<const Opened> opened;
  Frame frame;
  const Node& node;
};

}  // namespace

Values differentiable(const Step& s, std::function<Values(const Step&)> run, BodyRule same) {
  if (std::ranges::none_of(s.module().result_types(s.node), [](std::string_view type) {
        return is_differentiable(open_type(type).dtype);
      }))
    return run(s);
  const auto kept = std::make_shared<const Kept>(
      Kept{s.frame.opened.weak_from_this().lock(), s.frame.around(s.node), s.node});
  const auto of = [kept](const auto& rule, const Values& x) {
    const PlaceScope::Replace at(kept->opened->module.place(kept->node));
    Frame frame = kept->frame;
    frame.set(kept->node, x);
    return rule(Step{frame, kept->node, x});
  };
  const auto value = [of, run](const Values& x) { return of(run, x); };
  const auto both = [of, same](const std::tuple<Values>& x, const std::tuple<Values>& dx) {
    return jvp([&](const Values& v) { return of(same, v); }, x, dx);
  };
  return custom_jvp(value, both)(s.x);
}

namespace {

[[noreturn]] void refuse(const Step& s, std::string_view why) {
  throw_type_error(fmt::format("{}: it has no derivative: {}", s.node.name, why));
}

/// A body of scalars on arrays of one shape, element by element.
Values on_elements(const Combine& body, const Values& arrays) {
  const Dims dims = arrays.at(0).dims();
  Values rows;
  for (const Tensor& a : arrays) rows.push_back(reshape(a, {a.size()}));
  const Values results = vmap([&](const Values& elements) { return body(elements); })(rows);
  Values out;
  for (const Tensor& r : results) out.push_back(reshape(r, dims));
  return out;
}

Combine body_of(const Step& s) {
  return [&s](const Values& both) {
    return on_elements([&s](const Values& x) { return s.region(0, x); }, both);
  };
}

Values joined(const Values& a, const Values& b) {
  Values out = a;
  out.insert(out.end(), b.begin(), b.end());
  return out;
}
Tensor every_second(const Tensor& x, std::int64_t from, std::int64_t to) {
  Dims start(x.dims().size()), limit = x.dims(), strides(x.dims().size(), 1);
  start[0] = from;
  limit[0] = to;
  strides[0] = 2;
  return slice(x, start, limit, strides);
}
/// Reduces the first axis, neighbours first, in as many steps as it has binary digits.
Values tree(const Combine& combine, Values x) {
  while (x.at(0).dims().at(0) > 1) {
    const std::int64_t n = x[0].dims()[0], even = n - n % 2;
    Values left, right;
    for (const Tensor& t : x) {
      left.push_back(every_second(t, 0, even));
      right.push_back(every_second(t, 1, even));
    }
    Values next = combine(joined(left, right));
    for (std::size_t i = 0; i < x.size() && even < n; ++i)
      next[i] = concatenate({next[i], every_second(x[i], even, n)}, 0);
    x = std::move(next);
  }
  for (Tensor& t : x) t = reshape(t, Dims(t.dims().begin() + 1, t.dims().end()));
  return x;
}
/// So few rows are taken one after another, as XLA does: then also a body that is not associative
/// gives what it gives there.
constexpr std::int64_t few = 32;

std::int64_t row_count(const Values& x) { return x.at(0).dims().at(0); }

Values row_of(const Values& x, std::int64_t number) {
  Values row;
  for (const Tensor& t : x) row.push_back(take(t, Tensor(static_cast<std::int32_t>(number)), 0));
  return row;
}

/// Combines `out` with the rows from the first on, one after another.
Values in_order(const Combine& combine, Values out, const Values& x, std::int64_t first) {
  for (std::int64_t i = first; i < row_count(x); ++i) out = combine(joined(out, row_of(x, i)));
  return out;
}

/// Reduces the first axis, with the initial values in front.
Values folded(const Combine& combine, const Values& x, const Values& initial) {
  const Dims dims(x.at(0).dims().begin() + 1, x[0].dims().end());
  Values out;
  for (const Tensor& t : initial) out.push_back(broadcast_to(t, dims));
  if (row_count(x) > few) return combine(joined(out, tree(combine, x)));
  return in_order(combine, std::move(out), x, 0);
}

/// Reduces the first axis, which is not empty.
Values folded(const Combine& combine, const Values& x) {
  if (row_count(x) > few) return tree(combine, x);
  return in_order(combine, row_of(x, 0), x, 1);
}

/// These axes first, as one.
Tensor together(const Tensor& x, const Dims& axes) {
  std::vector<std::int64_t> order(axes.begin(), axes.end());
  Dims dims = {1};
  for (const std::int64_t a : axes) dims[0] *= x.dims().at(static_cast<std::size_t>(a));
  for (std::int64_t a = 0; a < x.rank(); ++a)
    if (std::ranges::find(axes, a) == axes.end()) {
      order.push_back(a);
      dims.push_back(x.dims()[static_cast<std::size_t>(a)]);
    }
  return reshape(transpose(x, Dims(order.begin(), order.end())), dims);
}

/// What the windows of a reduction see.
struct Windows {
  Dims size, strides, base, dilations, padding;  // of padding two for each axis

  Windows(const Step& s, std::int64_t rank)
      : size(s.integers({"window_dimensions"})),
        strides(s.integers({"window_strides"})),
        base(s.integers({"base_dilations"})),
        dilations(s.integers({"window_dilations"})),
        padding(s.integers({"padding"})) {
    const auto axes = static_cast<std::size_t>(rank);
    if (size.size() != axes) throw TypeError(fmt::format("{} has no window", s.node.name));
    for (Dims* d : {&strides, &base, &dilations}) d->resize(axes, 1);
    padding.resize(2 * axes);
  }
  Tensor padded(const Tensor& x, const Tensor& with) const {
    Dims low, high, interior;
    for (std::size_t i = 0; i < size.size(); ++i) {
      low.push_back(padding[2 * i]);
      high.push_back(padding[2 * i + 1]);
      interior.push_back(base[i] - 1);
    }
    return pad(x, with, low, high, interior);
  }
  /// The places of each window along the first axis, the windows along the others.
  Tensor each(const Step& s, Tensor x) const {
    constexpr double most = 1 << 26;
    double elements = 1;
    Dims first;
    for (std::size_t i = 0; i < size.size(); ++i) {
      const auto axis = static_cast<std::int64_t>(2 * i);
      const std::int64_t wide = (size[i] - 1) * dilations[i] + 1, extent = x.dims()[2 * i],
                         count = extent < wide ? 0 : (extent - wide) / strides[i] + 1;
      elements *= static_cast<double>(count) * static_cast<double>(size[i]);
      if (elements > most) refuse(s, "its windows have too many elements together");
      std::vector<std::int32_t> at;
      for (std::int64_t w = 0; w < count; ++w)
        for (std::int64_t k = 0; k < size[i]; ++k)
          at.push_back(static_cast<std::int32_t>(w * strides[i] + k * dilations[i]));
      const Type places{DType::s32, {static_cast<std::int64_t>(at.size())}};
      x = take(x, Tensor(places, at.data()), axis);
      Dims dims = x.dims();
      dims[2 * i] = count;
      dims.insert(dims.begin() + axis + 1, size[i]);
      x = reshape(x, dims);
      first.push_back(axis + 1);
    }
    return together(x, first);
  }
};

}  // namespace

Values reduced_by_tree(const Combine& body, const Values& x, const Values& initial,
                       const Dims& axes) {
  Values rows;
  for (const Tensor& t : x) rows.push_back(together(t, axes));
  return folded([&](const Values& both) { return on_elements(body, both); }, rows, initial);
}

Values mapped(const Step& s) {
  if (s.x.empty() || s[0].size() == 0) return {};
  return body_of(s)(s.x);
}

Values windows_by_tree(const Step& s) {
  const std::size_t n = s.x.size() / 2;
  const Windows windows(s, s.x.at(0).rank());
  Values rows;
  for (std::size_t i = 0; i < n; ++i)
    rows.push_back(windows.each(s, windows.padded(s[i], s[n + i])));
  return folded(body_of(s), rows, Values(s.x.begin() + static_cast<std::ptrdiff_t>(n), s.x.end()));
}

/// Finds the place in the operand, counted along its elements, that the body selects of each
/// window; what lies outside of the operand is never selected.
static Tensor selected_places(const Step& s, const Windows& windows, const Tensor& x) {
  const Tensor outside(-1);
  const Tensor numbers = reshape(iota({DType::s32, {x.size()}}, 0), x.dims());
  const Values rows = {windows.each(s, windows.padded(x, zeros(Type{x.dtype(), {}}))),
                       windows.each(s, windows.padded(numbers, outside))};
  const Combine selects = body_of(s);
  const Combine choose = [&](const Values& both) -> Values {
    const Tensor &a = both[0], &a_at = both[1], &b = both[2], &b_at = both[3];
    const Tensor keeps_a =
        logical_and(greater_equal(a_at, 0), logical_or(less(b_at, 0), selects({a, b}).at(0)));
    return {where(keeps_a, a, b), where(keeps_a, a_at, b_at)};
  };
  return folded(choose, rows).at(1);
}

Values selected_and_scattered(const Step& s) {
  const std::string_view name = Step::only_operation(s.module().region(s.node.regions.at(1)));
  if (name != "add" || s[0].dtype() == DType::pred)
    refuse(s, "it scatters by another body than add");
  const Tensor x = stop_gradient(s[0]);
  const Windows windows(s, x.rank());
  const Tensor chosen = selected_places(s, windows, x);
  if (chosen.dims() != s[1].dims()) refuse(s, "its windows are not those of its source");
  const Tensor at = reshape(chosen, {chosen.size(), 1});
  const Tensor into = reshape(broadcast_to(s[2], x.dims()), {x.size()});
  IndexAxes axes;
  axes.dropped = axes.indexed = {0};
  const Tensor out = scatter(Update::add, into, at, reshape(s[1], {s[1].size()}), axes);
  return {reshape(out, x.dims())};
}

// Each element that is written meets one update only: it is what the body makes of both.
Values scattered_once(const Step& s) {
  const std::size_t n = (s.x.size() - 1) / 2;
  if (s.node.attribute("unique_indices") != "true")
    refuse(s, "of its body what repeated indices do is not known; say that they are unique");
  const IndexAxes axes = scatter_axes(s);
  const Tensor indices = scatter_indices(s);
  Dims sizes;
  for (std::int64_t a = 0, next = 0; a < s[0].rank(); ++a) {
    const auto holds = [&](const Dims& list) { return std::ranges::find(list, a) != list.end(); };
    sizes.push_back(1);
    if (!holds(axes.dropped) && !holds(axes.batch_x))
      sizes.back() = s[n + 1].dims().at(
          static_cast<std::size_t>(axes.window.at(static_cast<std::size_t>(next++))));
  }
  Values both;
  for (std::size_t i = 0; i < n; ++i)
    both.push_back(gather(s[i], indices, axes, sizes, OutOfRange::clip));
  both.insert(both.end(), s.x.begin() + static_cast<std::ptrdiff_t>(n + 1), s.x.end());
  const Values updates = body_of(s)(both);
  Values out;
  for (std::size_t i = 0; i < n; ++i)
    out.push_back(scatter(Update::set, s[i], indices, updates.at(i), axes,
                          {.mode = OutOfRange::fill, .unique = true}));
  return out;
}

Values sorted_by_places(const Step& s) {
  const std::int64_t axis = s.integer({"dimension", "dim"});
  const Tensor places = as_written(s, {.constant = true, .places_along = axis}).back();
  Values out;
  for (const Tensor& x : s.x) out.push_back(take_along_axis(x, places, axis));
  return out;
}

}  // namespace postern::internal::imported
