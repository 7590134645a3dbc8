// Statistics of a leaf in one pass over its memory.
#include "summary.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "spi.h"

namespace postern {
using namespace internal;

namespace {

using listen::Summary;

/// What a pass over elements collects. `other` counts what is not finite; nan and infinities are
/// told apart only when there are some.
struct Gathered {
  double min = std::numeric_limits<double>::infinity(), max = -min, sum = 0, squares = 0;
  std::int64_t other = 0;

  void add(double x) {
    if (!std::isfinite(x)) return void(++other);
    min = std::min(min, x);
    max = std::max(max, x);
    sum += x;
    squares += x * x;
  }
  void add(const Gathered& more) {
    min = std::min(min, more.min);
    max = std::max(max, more.max);
    sum += more.sum;
    squares += more.squares;
    other += more.other;
  }
};

/// As many as a vector of 32 bytes has elements.
template <class T>
struct Doubles {
  typedef double type __attribute__((vector_size(64)));
};
template <>
struct Doubles<double> {
  typedef double type __attribute__((vector_size(32)));
};

/// Of elements that are all finite; else the sum is not. By vectors of the compiler's own, whose
/// registers every machine of the last ten years has enough of: sums of short runs in the element's
/// type, of all in double.
template <class T>
[[gnu::always_inline]] inline Gathered gather_finite(const T* data, std::int64_t n) {
  constexpr std::int64_t lanes = 32 / sizeof(T), wide = 4, step = lanes * wide, run = 32;
  typedef T V __attribute__((vector_size(32)));
  using W = typename Doubles<T>::type;
  Gathered out;
  std::int64_t i = 0;
  if (n >= step) {
    V low[wide], high[wide];
    W total = {}, squares = {};
    std::memcpy(low, data, sizeof low);
    std::memcpy(high, data, sizeof high);
    while (i + step <= n) {
      V sum[wide] = {}, square[2] = {};
      for (const std::int64_t end = std::min(i + run * step, n / step * step); i < end; i += step)
#pragma GCC unroll 4
        for (std::int64_t w = 0; w < wide; ++w) {
          V x;
          std::memcpy(&x, data + i + w * lanes, sizeof x);
          low[w] = x < low[w] ? x : low[w];
          high[w] = x > high[w] ? x : high[w];
          sum[w] += x;
          square[w % 2] += x * x;
        }
#pragma GCC unroll 4
      for (std::int64_t w = 0; w < wide; ++w) total += __builtin_convertvector(sum[w], W);
      for (const V& s : square) squares += __builtin_convertvector(s, W);
    }
    for (std::int64_t w = 0; w < wide; ++w)
      for (std::int64_t l = 0; l < lanes; ++l) {
        out.min = std::min<double>(out.min, low[w][l]);
        out.max = std::max<double>(out.max, high[w][l]);
      }
    for (std::int64_t l = 0; l < lanes; ++l) {
      out.sum += total[l];
      out.squares += squares[l];
    }
  }
  for (; i < n; ++i) {
    out.min = std::min<double>(out.min, data[i]);
    out.max = std::max<double>(out.max, data[i]);
    out.sum += data[i];
    out.squares += static_cast<double>(data[i]) * data[i];
  }
  return out;
}

template <class T>
[[gnu::always_inline]] inline void gather_runs(const T* data, std::int64_t n, Gathered& out) {
  constexpr std::int64_t run = 1024;
  if (const Gathered all = gather_finite(data, n); std::isfinite(all.sum)) return out.add(all);
  for (std::int64_t i = 0; i < n; i += run) {
    const std::int64_t size = std::min(run, n - i);
    const Gathered here = gather_finite(data + i, size);
    if (std::isfinite(here.sum))
      out.add(here);
    else
      for (std::int64_t k = i; k < i + size; ++k) out.add(data[k]);
  }
}

POSTERN_VERSIONS void gather(const float* data, std::int64_t n, Gathered& out) {
  gather_runs(data, n, out);
}
POSTERN_VERSIONS void gather(const double* data, std::int64_t n, Gathered& out) {
  gather_runs(data, n, out);
}

/// In parts: large ones on all cores, since the program waits; sooner where threads are awake
/// anyway.
template <class T>
void gather_all(const AnyView& view, Gathered& out) {
  constexpr std::size_t part_bytes = std::size_t{1} << 17;
  const std::size_t worth_threads = std::size_t{1} << (host::Helpers::near() ? 20 : 24);
  const T* const data = reinterpret_cast<const T*>(view.data());
  const std::int64_t n = view.size(),
                     parts = static_cast<std::int64_t>(view.byte_size() / part_bytes) + 1;
  if (parts == 1) return gather(data, n, out);
  std::vector<Gathered> found(static_cast<std::size_t>(
      parts));  // added in order, so that sums do not depend on who was faster
  // From the end: what was written last is still in the caches, and the program, which comes next,
  // reads from the start.
  const auto gather_part = [&](std::int64_t k) {
    const std::int64_t i = parts - 1 - k, from = n * i / parts;
    gather(data + from, n * (i + 1) / parts - from, found[static_cast<std::size_t>(i)]);
  };
  if (view.byte_size() >= worth_threads)
    host::compute_for(parts, gather_part);
  else
    for (std::int64_t k = 0; k < parts; ++k) gather_part(k);
  for (const Gathered& g : found) out.add(g);
}

}  // namespace

namespace listen {

using host::magnitude;

namespace {

/// Of elements whose squares an f32 or an f64 does not hold, or only as nothing, another pass.
double rms_of(const AnyView& view, const Gathered& g) {
  const double most = std::max(std::abs(g.min), std::abs(g.max)),
               count = static_cast<double>(view.size() - g.other);
  const bool narrow = view.dtype() == DType::f32;
  if (most == 0 || (most > (narrow ? 1e-12 : 1e-140) && most < (narrow ? 1e17 : 1e140)))
    return std::sqrt(g.squares / count);
  double squares = 0;
  for (std::int64_t i = 0; i < view.size(); ++i)
    if (const double x = magnitude(view, i) / most; std::isfinite(x)) squares += x * x;
  return most * std::sqrt(squares / count);
}

}  // namespace

double Summary::norm() const { return rms * std::sqrt(static_cast<double>(count - nan - inf)); }

Summary summarize(const AnyView& view) {
  Gathered g;
  if (view.dtype() == DType::f32)
    gather_all<float>(view, g);
  else if (view.dtype() == DType::f64)
    gather_all<double>(view, g);
  else
    for (std::int64_t i = 0; i < view.size(); ++i) g.add(magnitude(view, i));
  Summary s;
  s.count = view.size();
  if (g.other > 0)
    for (std::int64_t i = 0; i < view.size(); ++i) s.nan += std::isnan(magnitude(view, i));
  s.inf = g.other - s.nan;
  if (const std::int64_t finite = s.count - g.other; finite > 0) {
    s.min = g.min;
    s.max = g.max;
    s.mean = g.sum / static_cast<double>(finite);
    s.rms = rms_of(view, g);
  }
  return s;
}

}  // namespace listen

namespace internal::host {

void add(listen::Summary& to, const listen::Summary& from) {
  const double had = static_cast<double>(to.count - to.nan - to.inf),
               more = static_cast<double>(from.count - from.nan - from.inf);
  if (more > 0) {
    to.mean = had > 0 ? to.mean + (from.mean - to.mean) * (more / (had + more)) : from.mean;
    to.min = had > 0 ? std::min(to.min, from.min) : from.min;
    to.max = had > 0 ? std::max(to.max, from.max) : from.max;
    to.rms = had > 0 ? std::hypot(to.rms * std::sqrt(had / (had + more)),
                                  from.rms * std::sqrt(more / (had + more)))
                     : from.rms;
  }
  to.count += from.count;
  to.nan += from.nan;
  to.inf += from.inf;
}

listen::Summary summarize_live(const AnyView& view, std::span<const bool> mask) {
  if (mask.empty()) return listen::summarize(view);
  listen::Summary out;
  each_live(view, mask,
            [&](const AnyView& part, std::int64_t) { add(out, listen::summarize(part)); });
  return out;
}

double magnitude(const AnyView& view, std::int64_t i) {
  const auto [re, im] = complex_at(view.dtype(), view.data(), i);
  if (is_complex(view.dtype())) return std::hypot(re, im);
  return re;
}

void count_bins(const AnyView& view, std::span<const bool> mask, double from, double to,
                std::span<std::uint64_t> bins) {
  const auto count = static_cast<double>(bins.size());
  const double scale = count / (to - from), last = count - 1;
  // A range that no double holds is halved, and one whose inverse none holds divides.
  const double by = std::isfinite(to - from) ? 1 : 0.5, width = to * by - from * by;
  const bool multiplies = by == 1 && std::isfinite(scale);
  each_live(view, mask, [&](const AnyView& part, std::int64_t) {
    for (std::int64_t i = 0; i < part.size(); ++i) {
      const double x = magnitude(part, i);
      const double at = multiplies ? (x - from) * scale : (x * by - from * by) / width * count;
      if (std::isfinite(x)) ++bins[at > 0 ? static_cast<std::size_t>(std::min(at, last)) : 0];
    }
  });
}

double bin_edge(double from, double to, std::size_t i, std::size_t bins) {
  if (i == bins) return to;
  const double count = static_cast<double>(bins), at = static_cast<double>(i);
  const double width = (to - from) / count, part = at / count;
  return std::isfinite(width) ? from + width * at : from * (1 - part) + to * part;
}

}  // namespace internal::host
}  // namespace postern
