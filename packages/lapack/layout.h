// Row-major to column-major and back, in tiles that touch each cache line once.
#pragma once
#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace postern_lapack::layout {

inline constexpr std::size_t tile = 16;

/// Calls act(i0, i1, j0, j1) for the tiles of an m by n matrix; only those that reach into the
/// upper triangle where `upper`.
template <class Act>
void for_tiles(std::size_t m, std::size_t n, bool upper, Act act) {
  for (std::size_t i0 = 0; i0 < m; i0 += tile)
    for (std::size_t j0 = upper ? i0 : 0; j0 < n; j0 += tile)
      act(i0, std::min(m, i0 + tile), j0, std::min(n, j0 + tile));
}

/// A square of as many numbers as make 16 bytes, transposed in registers; the rows of `to` are
/// `next` apart.
template <class T>
[[gnu::always_inline]] inline void transpose_square(const T* from, std::size_t width, T* to,
                                                    std::size_t next) {
  auto get = [&]<class V>(V& v, std::size_t i) { std::memcpy(&v, from + i * width, sizeof v); };
  auto put = [&](const auto& v, std::size_t i) {
    std::memcpy(static_cast<void*>(to + i * next), &v, sizeof v);
  };
  if constexpr (sizeof(T) == 4) {
    typedef std::uint32_t V __attribute__((vector_size(16)));
    V a, b, c, d;
    get(a, 0);
    get(b, 1);
    get(c, 2);
    get(d, 3);
    const V ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
            cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const V ef = __builtin_shufflevector(a, b, 2, 6, 3, 7),
            gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    put(__builtin_shufflevector(ab, cd, 0, 1, 4, 5), 0);
    put(__builtin_shufflevector(ab, cd, 2, 3, 6, 7), 1);
    put(__builtin_shufflevector(ef, gh, 0, 1, 4, 5), 2);
    put(__builtin_shufflevector(ef, gh, 2, 3, 6, 7), 3);
  } else if constexpr (sizeof(T) == 8) {
    typedef std::uint64_t V __attribute__((vector_size(16)));
    V a, b;
    get(a, 0);
    get(b, 1);
    put(__builtin_shufflevector(a, b, 0, 2), 0);
    put(__builtin_shufflevector(a, b, 1, 3), 1);
  } else {
    *to = *from;
  }
}

/// The tile of row-major `from`, with rows of `width`, transposed.
template <class T>
struct Tile {
  alignas(64) T at[tile][tile];  // [column][row]
  Tile(const T* from, std::size_t width, std::size_t i0, std::size_t i1, std::size_t j0,
       std::size_t j1) {
    constexpr std::size_t square = std::max<std::size_t>(1, 16 / sizeof(T));
    const T* corner = from + i0 * width + j0;
    if (i1 - i0 == tile && j1 - j0 == tile) {
      for (std::size_t i = 0; i < tile; i += square)
        for (std::size_t j = 0; j < tile; j += square)
          transpose_square(corner + i * width + j, width, &at[j][i], tile);
    } else {
      for (std::size_t j = 0; j < j1 - j0; ++j)
        for (std::size_t i = 0; i < i1 - i0; ++i) at[j][i] = corner[i * width + j];
    }
  }
  /// The first `count` of a column.
  void put(std::size_t column, std::size_t count, T* to) const {
    if (count == tile)
      std::memcpy(static_cast<void*>(to), at[column],
                  sizeof at[column]);  // so many as the compiler knows
    else
      std::copy_n(at[column], count, to);
  }
};

/// to[n,m] = from[m,n] transposed; rows of `from` are `width` apart.
template <class T>
void transposed(const T* from, T* to, std::size_t m, std::size_t n, std::size_t width) {
  for_tiles(n, m, false, [&](std::size_t j0, std::size_t j1, std::size_t i0, std::size_t i1) {
    const Tile<T> t(from, width, i0, i1, j0, j1);
    for (std::size_t j = j0; j < j1; ++j) t.put(j - j0, i1 - i0, to + j * m + i0);
  });
}

inline float conjugate(float x) { return x; }
inline double conjugate(double x) { return x; }
template <class T>
std::complex<T> conjugate(const std::complex<T>& x) {
  return std::conj(x);
}

/// The lower triangle of (a + a^H) / 2, column-major; a[n,n] is row-major.
template <class T>
void hermitian_lower(const T* a, T* to, std::size_t n) {
  for_tiles(n, n, true, [&](std::size_t i0, std::size_t i1, std::size_t j0, std::size_t j1) {
    const Tile<T> t(a, n, j0, j1, i0, i1);
    for (std::size_t i = i0; i < i1; ++i)
      for (std::size_t j = j0; j < j1; ++j)
        to[i * n + j] = (t.at[i - i0][j - j0] + conjugate(a[i * n + j])) * T(0.5f);
  });
}

/// A column-major square as a row-major one, in place. `lower`: only its lower triangle is there,
/// the rest becomes zero.
template <class T>
void make_row_major(T* a, std::size_t n, bool lower) {
  for_tiles(n, n, true, [&](std::size_t i0, std::size_t i1, std::size_t j0, std::size_t j1) {
    const Tile<T> t(a, n, i0, i1, j0, j1);
    if (lower) {
      for (std::size_t i = i0; i < i1; ++i) std::fill(a + i * n + j0, a + i * n + j1, T(0));
    } else if (i0 != j0) {
      const Tile<T> other(a, n, j0, j1, i0, i1);
      for (std::size_t i = i0; i < i1; ++i) other.put(i - i0, j1 - j0, a + i * n + j0);
    }
    for (std::size_t j = j0; j < j1; ++j)
      t.put(j - j0, lower ? std::min(i1, j + 1) - i0 : i1 - i0, a + j * n + i0);
  });
}

}  // namespace postern_lapack::layout
