// Row-major to column-major and back, in tiles that touch each cache line once.
#pragma once
#include <algorithm>
#include <complex>
#include <cstddef>

namespace postern::blocks::layout {

inline constexpr std::size_t tile = 16;

/// Calls act(i0, i1, j0, j1) for the tiles of an m by n matrix; only those that reach into the upper triangle where `upper`.
template <class Act>
void for_tiles(std::size_t m, std::size_t n, bool upper, Act act) {
  for (std::size_t i0 = 0; i0 < m; i0 += tile)
    for (std::size_t j0 = upper ? i0 : 0; j0 < n; j0 += tile) act(i0, std::min(m, i0 + tile), j0, std::min(n, j0 + tile));
}

/// The tile of row-major `from`, with rows of `width`, transposed.
template <class T>
struct Tile {
  T at[tile][tile];  // [column][row]
  Tile(const T* from, std::size_t width, std::size_t i0, std::size_t i1, std::size_t j0, std::size_t j1) {
    const T* corner = from + i0 * width + j0;
    if (i1 - i0 == tile && j1 - j0 == tile)
      load(corner, width, tile, tile);  // numbers that the compiler knows
    else
      load(corner, width, i1 - i0, j1 - j0);
  }

 private:
  [[gnu::always_inline]] void load(const T* corner, std::size_t width, std::size_t rows, std::size_t columns) {
    for (std::size_t j = 0; j < columns; ++j)
      for (std::size_t i = 0; i < rows; ++i) at[j][i] = corner[i * width + j];
  }
};

/// to[n,m] = from[m,n] transposed; rows of `from` are `width` apart.
template <class T>
void transposed(const T* from, T* to, std::size_t m, std::size_t n, std::size_t width) {
  for_tiles(m, n, false, [&](std::size_t i0, std::size_t i1, std::size_t j0, std::size_t j1) {
    const Tile<T> t(from, width, i0, i1, j0, j1);
    for (std::size_t j = j0; j < j1; ++j) std::copy_n(t.at[j - j0], i1 - i0, to + j * m + i0);
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
      for (std::size_t j = j0; j < j1; ++j) to[i * n + j] = (t.at[i - i0][j - j0] + conjugate(a[i * n + j])) * T(0.5f);
  });
}

/// A column-major square as a row-major one, in place. `lower`: only its lower triangle is there, the rest becomes zero.
template <class T>
void make_row_major(T* a, std::size_t n, bool lower) {
  for_tiles(n, n, true, [&](std::size_t i0, std::size_t i1, std::size_t j0, std::size_t j1) {
    const Tile<T> t(a, n, i0, i1, j0, j1);
    if (lower) {
      for (std::size_t i = i0; i < i1; ++i) std::fill(a + i * n + j0, a + i * n + j1, T(0));
    } else if (i0 != j0) {
      const Tile<T> other(a, n, j0, j1, i0, i1);
      for (std::size_t i = i0; i < i1; ++i) std::copy_n(other.at[i - i0], j1 - j0, a + i * n + j0);
    }
    for (std::size_t j = j0; j < j1; ++j) std::copy_n(t.at[j - j0], lower ? std::min(i1, j + 1) - i0 : i1 - i0, a + j * n + i0);
  });
}

}  // namespace postern::blocks::layout
