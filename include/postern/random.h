// Random numbers: pure functions of a key, by counters (Threefry-2x32, Salmon et al. 2011,
// "Parallel random numbers: as easy as 1, 2, 3"). The same keys give the bits of jax.random with
// its default generator (threefry2x32, partitionable). Every function throws TypeError for a key
// that is not u32[2], a dtype that is not named, and bounds that do not stretch to the shape.
//
//   const pn::Tensor keys = pn::random::split(pn::random::key(42));  // one for each use
//   const pn::Tensor noise = pn::random::normal(keys[0], pn::type<float>({3}));
//   const pn::Tensor coin = pn::random::bernoulli(keys[1], 0.5f);
#pragma once
#include <postern/detail/api.h>
#include <postern/tensor.h>

#include <optional>

namespace postern::random {

/// Returns a key, u32[2]. The same seed gives the same key; use each key once, and `split` it where
/// more are needed.
[[nodiscard]] POSTERN_API Tensor key(std::uint64_t seed, Place place = Place::current());
/// Returns `count` new keys, u32[count, 2].
[[nodiscard]] POSTERN_API Tensor split(const Operand& key, std::int64_t count = 2);
/// Returns a new key from a key and an integer scalar, such as a step's number.
[[nodiscard]] POSTERN_API Tensor fold_in(const Operand& key, const Operand& data);

/// Draws one of that type: uniform bits of u8, u16, u32 or u64.
[[nodiscard]] POSTERN_API Tensor bits(const Operand& key, const Type& type);
/// Draws one of that type: uniform in [low, high), but that rounding may give `high` where the
/// dtype's numbers are sparse, as from 1000 to 1001; f16, bf16, f32 or f64.
[[nodiscard]] POSTERN_API Tensor uniform(const Operand& key, const Type& type,
                                         const Operand& low = 0.0f, const Operand& high = 1.0f);
/// Draws one of that type: mean 0, variance 1 (complex: of both parts together); f16 to f64, c64 or
/// c128.
[[nodiscard]] POSTERN_API Tensor normal(const Operand& key, const Type& type);
/// Draws one of that type: `normal`, cut off outside of low to high; f16, bf16, f32 or f64.
[[nodiscard]] POSTERN_API Tensor truncated_normal(const Operand& key, const Type& type,
                                                  const Operand& low, const Operand& high);
/// Draws one of that type: uniform integers of 8 to 64 bits in [low, high); where high <= low, low.
[[nodiscard]] POSTERN_API Tensor integers(const Operand& key, const Type& type, const Operand& low,
                                          const Operand& high);
/// Returns pred: true with probability p, of the shape of p or of `dims`.
[[nodiscard]] POSTERN_API Tensor bernoulli(const Operand& key, const Operand& p,
                                           const std::optional<Dims>& dims = {});
/// Draws one of that type: of density exp(-x), x > 0, and exp(-x - exp(-x)); dtypes as of
/// `uniform`.
[[nodiscard]] POSTERN_API Tensor exponential(const Operand& key, const Type& type);
[[nodiscard]] POSTERN_API Tensor gumbel(const Operand& key, const Type& type);
/// Returns indices (s32) along `axis` with probabilities softmax(logits); the axis disappears.
/// Integers become f32.
[[nodiscard]] POSTERN_API Tensor categorical(const Operand& key, const Operand& logits,
                                             std::int64_t axis = -1);
/// Returns x in another order along `axis` (whole slices move together); 0 ... n-1 (s32) in another
/// order.
[[nodiscard]] POSTERN_API Tensor permutation(const Operand& key, const Operand& x,
                                             std::int64_t axis = 0);
[[nodiscard]] POSTERN_API Tensor permutation(const Operand& key, std::int64_t n);

}  // namespace postern::random
