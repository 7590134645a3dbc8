// Tiles of attention. Scores are held with a row for each key, so that nothing in the inner loops
// is transposed and the softmax goes along whole vectors. Vectors of 16 floats are the compiler's;
// it makes of them what the machine has.
#include "kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace kernel {
namespace {

using Vector = float __attribute__((vector_size(64), aligned(4), may_alias));
using Integers = std::int32_t __attribute__((vector_size(64)));
constexpr std::int64_t lanes = 16, key_rows = 64;
constexpr float lowest = -1e30f;

const Vector& at(const float* p) { return *reinterpret_cast<const Vector*>(p); }
Vector& at(float* p) { return *reinterpret_cast<Vector*>(p); }
std::int64_t padded(std::int64_t depth) { return (depth + lanes - 1) / lanes * lanes; }

/// e^x for x <= 0, to 2 units in the last place: 2^n times a polynomial.
Vector exponential(Vector x) {
  const Integers tiny = x < -87.0f;
  const Vector n = x * 1.44269504f;
  const Integers whole = __builtin_convertvector(tiny ? Vector{} : n - 0.5f, Integers);
  const Vector k = __builtin_convertvector(whole, Vector);
  const Vector r = x - k * 0.693359375f + k * 2.12194440e-4f;
  Vector p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Integers power = (whole + 127) << 23;
  Vector scale;
  std::memcpy(&scale, &power, sizeof scale);
  return tiny ? Vector{} : p * scale;
}

/// c[m, wide vectors] += a[m,k] b[k, wide vectors], where a[i,t] is at a[i * down + t * right]; m
/// is a multiple of 4.
template <int wide>
void accumulate(const float* a, std::int64_t down, std::int64_t right, const float* b,
                std::int64_t ldb, float* c, std::int64_t ldc, std::int64_t m, std::int64_t k) {
  for (std::int64_t i = 0; i < m; i += 4) {
    Vector sum[4][wide];
    for (int r = 0; r < 4; ++r)
      for (int w = 0; w < wide; ++w) sum[r][w] = at(c + (i + r) * ldc + w * lanes);
    for (std::int64_t t = 0; t < k; ++t)
      for (int w = 0; w < wide; ++w) {
        const Vector x = at(b + t * ldb + w * lanes);
        for (int r = 0; r < 4; ++r) sum[r][w] += x * a[(i + r) * down + t * right];
      }
    for (int r = 0; r < 4; ++r)
      for (int w = 0; w < wide; ++w) at(c + (i + r) * ldc + w * lanes) = sum[r][w];
  }
}

float read(const void* from, std::int64_t i, bool bf16) {
  if (!bf16) return static_cast<const float*>(from)[i];
  return std::bit_cast<float>(static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(from)[i])
                              << 16);
}
void write(void* to, std::int64_t i, float value, bool bf16) {
  if (!bf16) {
    static_cast<float*>(to)[i] = value;
    return;
  }
  const auto bits = std::bit_cast<std::uint32_t>(value);  // rounded to even; NaN stays NaN
  static_cast<std::uint16_t*>(to)[i] = static_cast<std::uint16_t>(
      std::isnan(value) ? (bits >> 16) | 64 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/// A matrix of floats that stays in the cache.
class Tile {
 public:
  Tile(std::int64_t rows, std::int64_t columns)
      : rows_(rows), width_(columns), data_(static_cast<std::size_t>(rows * columns)) {}
  /// Rows of a head from `first` on, with zeros beyond the last row and column.
  void load(const void* from, const Head& h, std::int64_t first, float scale = 1) {
    clear();
    for (std::int64_t i = 0; i < std::min(rows_, h.length - first); ++i)
      for (std::int64_t j = 0; j < h.depth; ++j)
        row(i)[j] = read(from, (first + i) * h.depth + j, h.bf16) * scale;
  }
  void set_transposed(const Tile& t) {
    for (std::int64_t i = 0; i < t.rows_; ++i)
      for (std::int64_t j = 0; j < t.width_; ++j) row(j)[i] = t.row(i)[j];
  }
  void store(void* to, const Head& h, std::int64_t first) const {
    for (std::int64_t i = 0; i < std::min(rows_, h.length - first); ++i)
      for (std::int64_t j = 0; j < h.depth; ++j)
        write(to, (first + i) * h.depth + j, row(i)[j], h.bf16);
  }
  void clear() { std::fill(data_.begin(), data_.end(), 0.0f); }
  void scale(float by) {
    for (float& x : data_) x *= by;
  }
  float* row(std::int64_t i) { return data_.data() + i * width_; }
  const float* row(std::int64_t i) const { return data_.data() + i * width_; }

  /// this += a b, with the first `inner` columns of a.
  void add_product(const Tile& a, const Tile& b, std::int64_t inner) {
    add(a.row(0), a.width_, 1, b, inner);
  }
  /// this += a^T b.
  void add_transposed_product(const Tile& a, const Tile& b) {
    add(a.row(0), 1, a.width_, b, a.rows_);
  }

 private:
  void add(const float* a, std::int64_t down, std::int64_t right, const Tile& b,
           std::int64_t inner) {
    std::int64_t j = 0;
    for (; j + 4 * lanes <= width_; j += 4 * lanes)
      accumulate<4>(a, down, right, b.row(0) + j, b.width_, row(0) + j, width_, rows_, inner);
    for (; j < width_; j += lanes)
      accumulate<1>(a, down, right, b.row(0) + j, b.width_, row(0) + j, width_, rows_, inner);
  }
  std::int64_t rows_, width_;
  std::vector<float> data_;
};

/// Keys that a query does not see.
void hide(const Head& h, Tile& scores, std::int64_t query, std::int64_t key) {
  for (std::int64_t j = 0; j < key_rows; ++j) {
    std::int64_t hidden = 0;
    if (key + j >= h.length)
      hidden = query_rows;
    else if (h.causal)
      hidden = std::clamp<std::int64_t>(key + j - query, 0, query_rows);
    std::fill_n(scores.row(j), hidden, lowest);
  }
}

std::int64_t last_key(const Head& h, std::int64_t query) {
  return h.causal ? std::min(h.length, query + query_rows) : h.length;
}

/// The softmax of each query over the keys seen so far: the largest score, and the sum of the
/// exponentials of the others less that.
struct Online {
  float most[query_rows], total[query_rows] = {}, shrink[query_rows];
  Online() { std::fill_n(most, query_rows, lowest); }
  /// Scores become weights; what was summed before is to be multiplied by `shrink`.
  void add(Tile& scores) {
    for (std::int64_t i = 0; i < query_rows; i += lanes) {
      const Vector before = at(most + i);
      Vector now = before, sum{};
      for (std::int64_t j = 0; j < key_rows; ++j) {
        const Vector& s = at(scores.row(j) + i);
        now = s > now ? s : now;
      }
      for (std::int64_t j = 0; j < key_rows; ++j) {
        Vector& s = at(scores.row(j) + i);
        sum += (s = exponential(s - now));
      }
      at(most + i) = now;
      at(shrink + i) = exponential(before - now);
      at(total + i) = at(total + i) * at(shrink + i) + sum;
    }
  }
};

}  // namespace

void forward(const Head& h, std::int64_t tile, void* out, float* lse) {
  const std::int64_t query = tile * query_rows, width = padded(h.depth);
  Tile q(query_rows, width), qt(width, query_rows), k(key_rows, width), v(key_rows, width),
      scores(key_rows, query_rows), sum(query_rows, width);
  Online softmax;
  q.load(h.q, h, query, h.scale);
  qt.set_transposed(q);
  for (std::int64_t key = 0; key < last_key(h, query); key += key_rows) {
    k.load(h.k, h, key);
    v.load(h.v, h, key);
    scores.clear();
    scores.add_product(k, qt, h.depth);
    hide(h, scores, query, key);
    softmax.add(scores);
    for (std::int64_t i = 0; i < query_rows; ++i)
      for (std::int64_t j = 0; j < width; j += lanes) at(sum.row(i) + j) *= softmax.shrink[i];
    sum.add_transposed_product(scores, v);
  }
  for (std::int64_t i = 0; i < std::min(query_rows, h.length - query); ++i) {
    for (std::int64_t j = 0; j < width; j += lanes) at(sum.row(i) + j) /= softmax.total[i];
    if (lse) lse[query + i] = softmax.most[i] + std::log(softmax.total[i]);
  }
  sum.store(out, h, query);
}

void backward(const Head& h, const void* out, const float* lse, const void* d_out, void* dq,
              void* dk, void* dv) {
  const std::int64_t width = padded(h.depth);
  Tile q(query_rows, width), qt(width, query_rows), k(key_rows, width), v(key_rows, width),
      o(query_rows, width), d(query_rows, width), dt(width, query_rows),
      weights(key_rows, query_rows), slopes(key_rows, query_rows), dq_tile(query_rows, width);
  std::vector<Tile> dk_tiles, dv_tiles;
  for (std::int64_t key = 0; key < h.length; key += key_rows) {
    dk_tiles.emplace_back(key_rows, width);
    dv_tiles.emplace_back(key_rows, width);
  }
  for (std::int64_t query = 0; query < h.length; query += query_rows) {
    q.load(h.q, h, query, h.scale);
    qt.set_transposed(q);
    o.load(out, h, query);
    d.load(d_out, h, query);
    dt.set_transposed(d);
    dq_tile.clear();
    float inner[query_rows] = {},
          sums[query_rows] = {};  // rows beyond the last have no cotangent: their slopes are zero
    for (std::int64_t i = 0; i < query_rows; ++i)
      for (std::int64_t j = 0; j < h.depth; ++j) inner[i] += o.row(i)[j] * d.row(i)[j];
    std::copy_n(lse + query, std::min(query_rows, h.length - query), sums);
    for (std::int64_t key = 0; key < last_key(h, query); key += key_rows) {
      k.load(h.k, h, key);
      v.load(h.v, h, key);
      weights.clear();
      weights.add_product(k, qt, h.depth);
      hide(h, weights, query, key);
      slopes.clear();
      slopes.add_product(v, dt, h.depth);
      for (std::int64_t j = 0; j < key_rows; ++j)
        for (std::int64_t i = 0; i < query_rows; i += lanes) {
          Vector &w = at(weights.row(j) + i), &s = at(slopes.row(j) + i);
          w = exponential(w - at(sums + i));
          s = w * (s - at(inner + i));
        }
      const auto at_key = static_cast<std::size_t>(key / key_rows);
      dv_tiles[at_key].add_product(weights, d, query_rows);
      dk_tiles[at_key].add_product(slopes, q, query_rows);  // q has the scale
      dq_tile.add_transposed_product(slopes, k);
    }
    dq_tile.scale(h.scale);
    dq_tile.store(dq, h, query);
  }
  for (std::int64_t key = 0; key < h.length; key += key_rows) {
    dk_tiles[static_cast<std::size_t>(key / key_rows)].store(dk, h, key);
    dv_tiles[static_cast<std::size_t>(key / key_rows)].store(dv, h, key);
  }
}

}  // namespace kernel
