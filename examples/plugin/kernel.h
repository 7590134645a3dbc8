// The arithmetic of the attention kernel, on tiles that stay in the cache (Dao et al. 2022,
// "FlashAttention": online softmax, so that the matrix of scores never exists as a whole).
#pragma once
#include <cstdint>

namespace kernel {

/// One matrix of queries, keys, values: `length` rows of `depth` numbers, f32 or bf16.
struct Head {
  const void *q, *k, *v;
  std::int64_t length, depth;
  bool bf16, causal;
  float scale;
};

inline constexpr std::int64_t query_rows = 64;  // of a tile
inline std::int64_t tiles(std::int64_t length) { return (length + query_rows - 1) / query_rows; }

/// Rows of one tile of queries: out, and the logarithm of the sum of exponentials of each row where
/// `lse` is not null.
void forward(const Head& head, std::int64_t tile, void* out, float* lse);

/// Cotangents of one head, from the results of `forward` and their cotangent.
void backward(const Head& head, const void* out, const float* lse, const void* d_out, void* dq,
              void* dk, void* dv);

}  // namespace kernel
