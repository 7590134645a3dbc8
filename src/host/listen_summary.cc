// Statistics of a leaf in one pass over its memory.
#include "host/listen_summary.h"

#include <Eigen/Core>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "host/number.h"

namespace postern {

namespace {

using listen::Summary;

/// What a pass over elements collects. `other` counts what is not finite; nan and infinities are told apart only when there are some.
struct Gathered {
  double min = std::numeric_limits<double>::infinity(), max = -min, sum = 0;
  std::int64_t other = 0;
};

/// Vectors of the compiler's own; sums of short runs in the element's type, of all in double.
template <class T>
void gather(const T* data, std::int64_t n, Gathered& out) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  constexpr std::int64_t lanes = 16 / sizeof(T), wide = 4, run = 64;
  typedef T V __attribute__((vector_size(16)));
  typedef Bits M __attribute__((vector_size(16)));
  constexpr T most = std::numeric_limits<T>::max();
  V low[wide], high[wide];
  for (int w = 0; w < wide; ++w) low[w] = V{} + most, high[w] = V{} - most;
  std::int64_t i = 0;
  for (; i + lanes * wide * run <= n; i += lanes * wide * run) {
    V sum[wide] = {};
    M bad[wide] = {};
    for (std::int64_t r = 0; r < run; ++r)
      for (int w = 0; w < wide; ++w) {
        V x;
        std::memcpy(&x, data + i + (r * wide + w) * lanes, sizeof x);
        const M finite = (x <= most) & (x >= -most);  // all ones where it holds
        x = finite ? x : V{};
        sum[w] += x;
        bad[w] += finite + 1;
        low[w] = (finite & (x < low[w])) ? x : low[w];
        high[w] = (finite & (x > high[w])) ? x : high[w];
      }
    for (int w = 0; w < wide; ++w)
      for (std::int64_t l = 0; l < lanes; ++l) out.sum += static_cast<double>(sum[w][l]), out.other += bad[w][l];
  }
  for (int w = 0; i > 0 && w < wide; ++w)
    for (std::int64_t l = 0; l < lanes; ++l)
      out.min = std::min<double>(out.min, low[w][l]), out.max = std::max<double>(out.max, high[w][l]);
  for (; i < n; ++i) {
    const double x = static_cast<double>(data[i]);
    if (!std::isfinite(x)) {
      ++out.other;
      continue;
    }
    out.min = std::min(out.min, x), out.max = std::max(out.max, x), out.sum += x;
  }
}

}  // namespace

namespace listen {

using host::magnitude;

Summary summarize(const AnyView& view) {
  Gathered g;
  if (view.dtype() == DType::f32)
    gather(reinterpret_cast<const float*>(view.data()), view.size(), g);
  else if (view.dtype() == DType::f64)
    gather(reinterpret_cast<const double*>(view.data()), view.size(), g);
  else
    for (std::int64_t i = 0; i < view.size(); ++i) {
      const double x = magnitude(view, i);
      gather(&x, 1, g);
    }
  Summary s;
  s.count = view.size();
  if (g.other > 0)
    for (std::int64_t i = 0; i < view.size(); ++i) s.nan += std::isnan(magnitude(view, i));
  s.inf = g.other - s.nan;
  if (!std::isfinite(g.sum)) {  // a short run's sum was beyond the element's type
    g.sum = 0;
    for (std::int64_t i = 0; i < view.size(); ++i)
      if (const double x = magnitude(view, i); std::isfinite(x)) g.sum += x;
  }
  if (const std::int64_t finite = s.count - g.other; finite > 0) s.min = g.min, s.max = g.max, s.mean = g.sum / static_cast<double>(finite);
  return s;
}

}  // namespace listen

namespace host {

void add(listen::Summary& to, const listen::Summary& from) {
  const double had = static_cast<double>(to.count - to.nan - to.inf), more = static_cast<double>(from.count - from.nan - from.inf);
  if (more > 0) {
    to.mean = had > 0 ? to.mean + (from.mean - to.mean) * (more / (had + more)) : from.mean;
    to.min = had > 0 ? std::min(to.min, from.min) : from.min;
    to.max = had > 0 ? std::max(to.max, from.max) : from.max;
  }
  to.count += from.count, to.nan += from.nan, to.inf += from.inf;
}

listen::Summary summarize_live(const AnyView& view, std::span<const bool> mask) {
  if (mask.empty()) return listen::summarize(view);
  listen::Summary out;
  each_live(view, mask, [&](const AnyView& part, std::int64_t) { add(out, listen::summarize(part)); });
  return out;
}

double magnitude(const AnyView& view, std::int64_t i) {
  const auto [re, im] = complex_at(view.dtype(), view.data(), i);
  return is_complex(view.dtype()) ? std::hypot(re, im) : re;
}

NonFinite non_finite_in(const AnyView& view, std::span<const bool> mask) {
  NonFinite out;
  if (!is_differentiable(view.dtype())) return out;
  each_live(view, mask, [&](const AnyView& part, std::int64_t first) {
    if (part.dtype() == DType::f32 || part.dtype() == DType::f64) {
      // Usually all are finite, and then the fast pass says so.
      const listen::Summary s = listen::summarize(part);
      if (s.nan + s.inf == 0) return;
    }
    for (std::int64_t i = 0; i < part.size() && (out.nan < 0 || out.inf < 0); ++i) {
      const auto [re, im] = complex_at(part.dtype(), part.data(), i);
      const bool nan = std::isnan(re) || std::isnan(im);
      if (nan && out.nan < 0) out.nan = first + i;
      if (!nan && out.inf < 0 && (std::isinf(re) || std::isinf(im))) out.inf = first + i;
    }
  });
  return out;
}

std::string index_text(std::int64_t flat, std::span<const std::int64_t> dims) {
  if (dims.empty()) return "";
  Dims index(dims.size());
  for (std::size_t axis = dims.size(); axis-- > 0; flat /= dims[axis]) index[axis] = flat % dims[axis];
  return dims_to_string(index);
}

}  // namespace host
}  // namespace postern
