// Host kernels of cumulative operations: XLA:CPU goes through its loop element by element, and
// through memory for each.
#include <fmt/format.h>
#include <postern/block.h>
#include <postern/library.h>
#include <postern/reduce.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "spi.h"

namespace postern::internal::cumulative {

namespace {

/// Returns whether both parts of a number are finite, and where `normal` none is 0 or subnormal; of
/// a complex number one part may be 0.
template <class T>
bool is_ordinary(const T& x, bool normal) {
  if constexpr (std::is_integral_v<T>)
    return true;
  else if constexpr (std::is_floating_point_v<T>)
    return std::isnormal(x) || (!normal && std::isfinite(x));
  else
    return is_ordinary(x.real(), false) && is_ordinary(x.imag(), false) &&
           (!normal || is_ordinary(std::norm(x), true));
}

// A kind: its carry, what all of them begin with, what comes of the carry and the next element, and
// whether a carry may have been reached in any order: no number on the way was too large or small.
// Integers wrap, which unsigned ones alone may do. f32 is summed in f64: as cheap, and free of what
// many roundings add up to.
template <class T>
struct Sum {
  using Carry = std::conditional_t<std::is_same_v<T, float>, double, T>;
  static constexpr Carry neutral() { return 0; }
  static bool is_ordinary(const Carry& x) { return cumulative::is_ordinary(x, false); }
  static Carry step(Carry before, Carry next) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(before) +
                            static_cast<std::make_unsigned_t<T>>(next));
    else
      return before + next;
  }
};
template <class T>
struct Product {
  using Carry = T;
  static constexpr Carry neutral() { return 1; }
  static bool is_ordinary(const Carry& x) { return cumulative::is_ordinary(x, true); }
  static Carry step(Carry before, Carry next) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(before) *
                            static_cast<std::make_unsigned_t<T>>(next));
    else
      return before * next;
  }
};

template <class T>
bool is_negative(T x) {
  return std::is_floating_point_v<T> && std::signbit(static_cast<double>(x));
}
/// The maximum, or with `least` the minimum, as XLA's: a NaN that has come stays, and of two zeros
/// the positive one is the larger.
template <class T, bool least>
struct Extreme {
  using Carry = T;
  using Limits = std::numeric_limits<T>;
  static constexpr Carry neutral() {
    if (std::is_integral_v<T>) return least ? Limits::max() : Limits::lowest();
    return least ? Limits::infinity() : -Limits::infinity();
  }
  static bool is_ordinary(const Carry&) { return true; }
  static Carry step(Carry before, Carry next) {
    if (before == next) return is_negative(before) == least ? before : next;
    const bool is_nan = before != before, is_beyond = least ? before < next : before > next;
    return is_beyond || is_nan ? before : next;
  }
};

/// A row of elements, in the order in which they are combined.
template <class T>
struct Row {
  T* first;
  std::int64_t stride;  // 1, or -1 from the end
  T& operator[](std::int64_t i) const { return first[i * stride]; }
  Row from(std::int64_t i) const { return {first + i * stride, stride}; }
};

constexpr std::int64_t chains = 4;  // side by side: each waits for its own last result only

/// Goes through `chains` rows of n elements side by side, calls see(row, i, carry) for each element
/// and returns the last carries. Every row goes in order: combined in another one, numbers large
/// and small by turns would overflow on the way.
template <class Kind, class T, class See>
std::array<typename Kind::Carry, chains> side_by_side(
    const std::array<Row<const T>, chains>& x, std::int64_t n,
    std::array<typename Kind::Carry, chains> carry, const See& see) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::size_t c = 0; c < chains; ++c)
      see(c, i, carry[c] = Kind::step(carry[c], typename Kind::Carry(x[c][i])));
  return carry;
}
template <class Kind, class T>
void alone(Row<const T> x, Row<T> y, std::int64_t n, typename Kind::Carry carry) {
  for (std::int64_t i = 0; i < n; ++i) {
    carry = Kind::step(carry, typename Kind::Carry(x[i]));
    y[i] = static_cast<T>(carry);
  }
}

std::int64_t parts_for(std::int64_t elements, std::int64_t most) {
  constexpr std::int64_t for_a_core = 32768;
  return std::clamp<std::int64_t>(std::min(elements / for_a_core, host::core_count()), 1,
                                  std::max<std::int64_t>(most, 1));
}
/// Calls act(first, last) for `parts` pieces of 0 to n, at the same time.
template <class Act>
void in_parts(std::int64_t parts, std::int64_t n, const Act& act) {
  if (parts == 1) return act(std::int64_t{0}, n);
  host::parallel_for(parts, [&](std::int64_t p) { act(n * p / parts, n * (p + 1) / parts); });
}

/// Goes through one long row twice, cut into parts, one for each core, of `chains` runs each. The
/// first time gives each run's total, of which the carry comes that each run starts with; the
/// second writes the results. What is left over at the end of the row comes last, alone. Where a
/// carry on the way is no ordinary number, other orders may give another result: then all of the
/// row goes in order.
template <class Kind, class T>
void long_row(Row<const T> x, Row<T> y, std::int64_t n) {
  using Carry = typename Kind::Carry;
  // A product may come back from what is too small: a run's end does not tell of it.
  constexpr bool comes_back = std::is_same_v<Kind, Product<T>>;
  const std::int64_t parts = parts_for(n, 64), length = n / (parts * chains);
  const auto runs_of = [&](const auto& row, std::int64_t part) {
    const auto run = [&](std::int64_t i) { return row.from((chains * part + i) * length); };
    return std::array{run(0), run(1), run(2), run(3)};
  };
  std::array<Carry, chains> neutral;
  neutral.fill(Kind::neutral());
  std::vector<std::array<Carry, chains>> carries(size_of(parts), neutral);
  std::atomic<bool> ordinary{true};
  const auto go = [&](auto writes) {
    in_parts(parts, parts, [&](std::int64_t first, std::int64_t last) {
      bool all = true;
      for (std::int64_t p = first; p < last; ++p) {
        const auto to = runs_of(y, p);
        auto& ends = carries[size_of(p)];
        const auto see = [&](std::size_t c, std::int64_t i, const Carry& now) {
          if constexpr (decltype(writes)::value) to[c][i] = static_cast<T>(now);
          if (comes_back && !Kind::is_ordinary(now)) all = false;
        };
        ends = side_by_side<Kind, T>(runs_of(x, p), length, ends, see);
        all = all && std::ranges::all_of(ends, Kind::is_ordinary);
      }
      if (!all) ordinary = false;
    });
  };
  go(std::false_type());
  Carry before = Kind::neutral();
  for (auto& part : carries)
    for (Carry& carry : part) before = Kind::step(before, std::exchange(carry, before));
  if (ordinary) go(std::true_type());
  if (!ordinary) return alone<Kind, T>(x, y, n, Kind::neutral());
  const std::int64_t done = parts * chains * length;
  alone<Kind, T>(x.from(done), y.from(done), n - done, before);
}

template <class Kind, class T>
void rows(const T* x, T* y, std::int64_t count, std::int64_t n, bool reverse) {
  constexpr std::int64_t long_enough = 256;
  const std::int64_t stride = reverse ? -1 : 1, offset = reverse ? n - 1 : 0;
  const auto in = [&](std::int64_t r) { return Row<const T>{x + r * n + offset, stride}; };
  const auto out = [&](std::int64_t r) { return Row<T>{y + r * n + offset, stride}; };
  if (count < chains && n >= long_enough) {
    for (std::int64_t r = 0; r < count; ++r) long_row<Kind, T>(in(r), out(r), n);
    return;
  }
  in_parts(parts_for(count * n, count), count, [&](std::int64_t first, std::int64_t last) {
    std::array<typename Kind::Carry, chains> carry;
    carry.fill(Kind::neutral());
    std::int64_t r = first;
    for (; r + chains <= last; r += chains) {
      const std::array to{out(r), out(r + 1), out(r + 2), out(r + 3)};
      side_by_side<Kind, T>(
          {in(r), in(r + 1), in(r + 2), in(r + 3)}, n, carry,
          [&](std::size_t c, std::int64_t i, auto now) { to[c][i] = static_cast<T>(now); });
    }
    for (; r < last; ++r) alone<Kind, T>(in(r), out(r), n, Kind::neutral());
  });
}

/// Combines n rows of `width` elements one after another, in each of `count` blocks of them. Wide
/// rows are cut into strips: a job is a strip of one block.
template <class Kind, class T>
void columns(const T* x, T* y, std::int64_t count, std::int64_t n, std::int64_t width,
             bool reverse) {
  using Carry = typename Kind::Carry;
  constexpr std::int64_t strip = 1024;  // of columns whose carries stay in the first cache
  const std::int64_t strips = (width + strip - 1) / strip, jobs = count * strips;
  in_parts(parts_for(count * n * width, jobs), jobs, [&](std::int64_t first, std::int64_t last) {
    std::array<Carry, strip> carry;
    for (std::int64_t job = first; job < last; ++job) {
      const std::int64_t from = job % strips * strip, wide = std::min(strip, width - from),
                         base = job / strips * n * width + from;
      std::fill_n(carry.begin(), wide, Kind::neutral());
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t row = base + (reverse ? n - 1 - i : i) * width;
        for (std::int64_t j = 0; j < wide; ++j) {
          Carry& c = carry[size_of(j)];
          c = Kind::step(c, Carry(x[row + j]));
          y[row + j] = static_cast<T>(c);
        }
      }
    }
  });
}

/// Takes the array as [count, n, width] with the axis of the operation in the middle.
template <class Kind, class T>
void along(const Cumulative& c, const AnyView& in, const AnyMutableView& out) {
  const auto dims = in.dims();
  const auto axis = static_cast<std::ptrdiff_t>(c.axis) + std::ssize(dims);
  const auto product = [](auto first, auto last) {
    return std::accumulate(first, last, std::int64_t{1}, std::multiplies<>());
  };
  const std::int64_t count = product(dims.begin(), dims.begin() + axis), n = dims[size_of(axis)],
                     width = product(dims.begin() + axis + 1, dims.end());
  if (in.size() == 0) return;
  const auto* x = reinterpret_cast<const T*>(in.data());
  auto* y = reinterpret_cast<T*>(out.data());
  if (width == 1)
    rows<Kind, T>(x, y, count, n, c.reverse);
  else
    columns<Kind, T>(x, y, count, n, width, c.reverse);
}

template <class T>
void of_kind(const Cumulative& c, const AnyView& in, const AnyMutableView& out) {
  if (c.kind == "sum") return along<Sum<T>, T>(c, in, out);
  if constexpr (std::is_arithmetic_v<T>) {
    if (c.kind == "max") return along<Extreme<T, false>, T>(c, in, out);
    if (c.kind == "min") return along<Extreme<T, true>, T>(c, in, out);
    return along<Product<T>, T>(c, in, out);
  }
}

void run_kernel(const Cumulative& c, std::span<const AnyView> in,
                std::span<const AnyMutableView> out) {
  switch (in[0].dtype()) {
    case DType::f32: return of_kind<float>(c, in[0], out[0]);
    case DType::f64: return of_kind<double>(c, in[0], out[0]);
    case DType::s32: return of_kind<std::int32_t>(c, in[0], out[0]);
    case DType::s64: return of_kind<std::int64_t>(c, in[0], out[0]);
    case DType::u32: return of_kind<std::uint32_t>(c, in[0], out[0]);
    case DType::u64: return of_kind<std::uint64_t>(c, in[0], out[0]);
    case DType::c64: return of_kind<std::complex<float>>(c, in[0], out[0]);
    default: return of_kind<std::complex<double>>(c, in[0], out[0]);
  }
}

/// Returns whether there is a kernel. Logarithms of sums are XLA's: it has vectors of exp and log.
bool has_kernel(const Cumulative& c, std::span<const Type> x) {
  const DType d = x[0].dtype;
  if (is_complex(d)) return c.kind == "sum";
  return c.kind != "logsumexp" && (d == DType::f32 || d == DType::f64 || d == DType::s32 ||
                                   d == DType::s64 || d == DType::u32 || d == DType::u64);
}

/// Returns a rule by which all axes may be cut but that of the operation: "axis0 _ -> axis0 _".
std::string by_rows(const Cumulative& c, std::span<const Type> x) {
  std::string axes;
  for (std::int64_t d = 0; d < x[0].rank(); ++d)
    axes += d == x[0].rank() + c.axis ? " _" : fmt::format(" axis{}", d);
  return fmt::format("{} -> {}", axes, axes);
}

void load() {
  override_block<Cumulative>({.platform = "cpu",
                              .when = has_kernel,
                              .kernel = BlockKernel<Cumulative>(run_kernel, Place{}),
                              .sharding = by_rows});
}

}  // namespace
}  // namespace postern::internal::cumulative

POSTERN_LIBRARY("postern_cumulative", "0.1", postern::internal::cumulative::load)
