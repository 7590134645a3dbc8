// Counter-based random numbers.
#include <postern/arrange.h>
#include <postern/compare.h>
#include <postern/random.h>
#include <postern/sort.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/lists.h"
#include "ops/composed.h"
#include "ops/elementwise.h"
#include "ops/family.h"
#include "ops/on_host.h"
#include "ops/reduce.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

// --- threefry2x32: two key words and two counters to two words, elementwise ---

Tensor rotated(const Tensor& x, std::uint32_t by) {
  return shift_left(x, Tensor(by)) | shift_right_logical(x, Tensor(32 - by));
}
std::uint32_t rotated(std::uint32_t x, std::uint32_t by) {
  return std::rotl(x, static_cast<int>(by));
}

/// Refuses a parameter that has more axes or elements than there are draws.
void check_stretches(const char* op, const Operand& parameter, const Dims& dims) {
  check(broadcast_dims(op, parameter.tensor().dims(), dims) == dims,
        "{}: a parameter must stretch to the shape {}, got {}", op, dims_to_string(dims),
        to_string(parameter.tensor().type()));
}

/// Computes the 20 rounds, in groups of 4 after which key words are added. Constants and rotations
/// are those of the paper (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
template <class Word>
std::pair<Word, Word> rounds(const Word& key0, const Word& key1, const Word& high,
                             const Word& low) {
  constexpr std::uint32_t rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const Word keys[3] = {key0, key1, key0 ^ key1 ^ Word(0x1BD11BDAu)};
  Word a = high + keys[0], b = low + keys[1];
  for (std::uint32_t group = 0; group < 5; ++group) {
    for (const std::uint32_t by : rotations[group % 2]) {
      a = a + b;
      b = a ^ rotated(b, by);
    }
    a = a + keys[(group + 1) % 3];
    b = b + keys[(group + 2) % 3] + Word(group + 1);
  }
  return {a, b};
}

Types threefry_type(const Params*, TypeSpan operands) {
  const Type type = same_type(nullptr, operands)[0];
  check(type.dtype == DType::u32, "threefry2x32: keys and counters must be u32, got {}",
        to_string(type));
  return {type, type};
}

/// Writes the rounds, which are one equation in programs, out.
void threefry_lower(Lowering& out, const Equation& e) {
  lower_as(out, e, [](TensorSpan in) {
    const auto [a, b] = rounds(in[0], in[1], in[2], in[3]);
    return Tensors{a, b};
  });
}

bool threefry_on_host(const Params*, const HostArrays& a) {
  const auto in = [&](std::size_t i) { return static_cast<const std::uint32_t*>(a.operands[i]); };
  const auto out = [&](std::size_t i) { return static_cast<std::uint32_t*>(a.to[i]); };
  for (std::int64_t i = 0; i < a.types[0].size(); ++i) {
    const auto [first, second] = rounds(in(0)[i], in(1)[i], in(2)[i], in(3)[i]);
    out(0)[i] = first;
    out(1)[i] = second;
  }
  return true;
}

constexpr Primitive threefry_p{.name = "threefry2x32",
                               .type = threefry_type,
                               .no_derivative = true,
                               .batch = elementwise_batch,
                               .lower = threefry_lower,
                               .on_host = threefry_on_host};
static_assert(complete(threefry_p));

Tensors threefry(const Tensor& key, const Tensor& high, const Tensor& low) {
  auto word = [&](std::int64_t i) {
    return broadcast_to_dims(reshape(slice_axis(key, 0, i, i + 1), {}), high.dims());
  };
  return bind_n(threefry_p, nullptr, Tensors{word(0), word(1), high, low});
}

void check_key(const char* op, const Tensor& key) {
  check(key.dtype() == DType::u32 && key.dims() == Dims{2},
        "{}: the key must be u32[2], as pn::random::key(42) and a row of split(key) are, got {}",
        op, to_string(key.type()));
}

/// Returns row `i` of keys[n, 2], as `split` gives them.
Tensor key_at(const Tensor& keys, std::int64_t i) {
  return reshape(slice_axis(keys, 0, i, i + 1), {2});
}

/// Draws two words for each element of an array of this shape. Its counters are the high and low
/// halves of its row-major index.
Tensors words(const Tensor& key, const Dims& dims) {
  const Type flat{DType::u64, {Type{DType::u32, dims}.size()}};
  const Tensor index = iota(flat, 0);
  const Tensor high =
      reshape(convert(shift_right_logical(index, Tensor(std::uint64_t{32})), DType::u32), dims);
  const Tensor low = reshape(convert(index & Tensor(std::uint64_t{0xffffffff}), DType::u32), dims);
  return threefry(key, high, low);
}

DType bits_dtype(std::size_t bytes) {
  switch (bytes) {
    case 1: return DType::u8;
    case 2: return DType::u16;
    case 4: return DType::u32;
    default: return DType::u64;
  }
}

/// Counts the bits of the mantissa, without the hidden one.
int mantissa_bits(DType dtype) {
  switch (dtype) {
    case DType::f16: return 10;
    case DType::bf16: return 7;
    case DType::f32: return 23;
    case DType::f64: return 52;
    default:
      throw_type_error(
          fmt::format("random: the dtype must be f16, bf16, f32 or f64, got {}", to_string(dtype)));
  }
}

/// The next number after -1, of which erf_inv is finite.
double above_minus_one(DType dtype) { return -1.0 + std::ldexp(1.0, -mantissa_bits(dtype) - 1); }

/// Smallest normal number.
double tiny(DType dtype) {
  if (dtype == DType::f64) return std::numeric_limits<double>::min();
  if (dtype == DType::f16) return std::ldexp(1.0, -14);
  return std::ldexp(1.0, -126);
}

}  // namespace

namespace random {

Tensor key(std::uint64_t seed, Place place) {
  PlaceScope at(place);
  return tensor<std::uint32_t>(
      {static_cast<std::uint32_t>(seed >> 32), static_cast<std::uint32_t>(seed)});
}

Tensor split(const Operand& key, std::int64_t count) {
  PlaceScope at(key.place());
  check_key("split", key.tensor());
  const Tensors w = words(key.tensor(), {count});
  return stack({w[0], w[1]}, 1);
}

Tensor fold_in(const Operand& key, const Operand& data) {
  PlaceScope at(key.place());
  check_key("fold_in", key.tensor());
  check(data.tensor().rank() == 0 && is_integer(data.tensor().dtype()),
        "fold_in: the data must be an integer scalar, got {}", to_string(data.tensor().type()));
  const Tensor low = reshape(convert(data, DType::u32), {1});
  const Tensors w = threefry(key.tensor(), zeros_like(low), low);
  return concatenate({w[0], w[1]});
}

Tensor bits(const Operand& key, const Type& type) {
  PlaceScope at(key.place());
  check_key("bits", key.tensor());
  check(is_unsigned(type.dtype) && bit_width(type.dtype) >= 8,
        "bits: the dtype must be u8, u16, u32 or u64, got {}", to_string(type.dtype));
  const Tensors w = words(key.tensor(), type.dims);
  if (type.dtype != DType::u64) return convert(w[0] ^ w[1], type.dtype);
  return shift_left(convert(w[0], DType::u64), Tensor(std::uint64_t{32})) |
         convert(w[1], DType::u64);
}

Tensor uniform(const Operand& key, const Type& type, const Operand& low, const Operand& high) {
  PlaceScope at(key.place());
  for (const Operand* bound : {&low, &high}) check_stretches("uniform", *bound, type.dims);
  const int mantissa = mantissa_bits(type.dtype);
  const std::size_t bytes = byte_width(type.dtype), drawn_bytes = mantissa < 8 ? 1 : bytes;
  const int spare_bits = 8 * static_cast<int>(drawn_bytes) - mantissa;
  const DType word = bits_dtype(bytes);
  // Random mantissas under the exponent of 1 give [1, 2). A mantissa of less than a byte is drawn
  // as a byte.
  const Tensor drawn = convert(bits(key, {bits_dtype(drawn_bytes), type.dims}), word);
  const Tensor raw = shift_right_logical(drawn, convert(Tensor(spare_bits), word)) |
                     bitcast(convert(Tensor(1.0), type.dtype), word);
  const Tensor floats = bitcast(raw, type.dtype) - 1;
  const Tensor from = convert(low, type.dtype), to = convert(high, type.dtype);
  return maximum(from, floats * (to - from) + from);
}

Tensor truncated_normal(const Operand& key, const Type& type, const Operand& low,
                        const Operand& high) {
  PlaceScope at(key.place());
  const Tensor from = convert(low, type.dtype), to = convert(high, type.dtype);
  const double root = std::sqrt(2.0);
  const double most = -above_minus_one(type.dtype);  // erf_inv is infinite beyond, on either side
  const Tensor least = maximum(erf(from / root), -most);
  const Tensor drawn = minimum(uniform(key, type, least, erf(to / root)), most);
  return clip(erf_inv(drawn) * root, from, to);
}

Tensor normal(const Operand& key, const Type& type) {
  PlaceScope at(key.place());
  if (is_complex(type.dtype)) {
    const Tensor keys = split(key);
    const Type part{real_dtype(type.dtype), type.dims};
    auto half = [&](std::int64_t i) { return normal(key_at(keys, i), part); };
    return complex(half(0), half(1)) / std::sqrt(2.0);
  }
  return erf_inv(uniform(key, type, above_minus_one(type.dtype), 1.0)) *
         convert(Tensor(std::sqrt(2.0)), type.dtype);
}

Tensor integers(const Operand& key, const Type& type, const Operand& low, const Operand& high) {
  PlaceScope at(key.place());
  check(is_integer(type.dtype) && bit_width(type.dtype) >= 8,
        "integers: the dtype must be an integer of 8 to 64 bits, got {}", to_string(type.dtype));
  for (const Operand* bound : {&low, &high}) check_stretches("integers", *bound, type.dims);
  if (bit_width(type.dtype) < 32) {  // as in JAX, drawn from 32 bits, with less bias
    const Number least = lowest_of(type.dtype), most = highest_of(type.dtype);
    const auto within = [&](const Operand& x, std::int64_t beyond) {
      return clip(convert(x, DType::s32), least.integer, most.integer + beyond);
    };
    const Tensor drawn = integers(key, {DType::s32, type.dims}, within(low, 0), within(high, 1));
    return convert(drawn, type.dtype);
  }
  const DType word = bits_dtype(byte_width(type.dtype));
  const Tensor keys = split(key);
  auto draw = [&](std::int64_t i) { return bits(key_at(keys, i), {word, type.dims}); };
  const Tensor from = convert(low, type.dtype), to = convert(high, type.dtype);
  Tensor span = convert(to - from, word);
  span = where(less_equal(to, from), ones_like(span), span);
  // Twice the bits of the range keep the remainder's bias small: (upper * 2^n + lower) mod span, by
  // 2^n mod span, the square of 2^(n/2) mod span. For longer spans than 2^(n/2) that square wraps
  // to 0, as JAX's does: then the lower word alone counts.
  const Tensor half = convert(Tensor(std::uint64_t{1} << (bit_width(type.dtype) / 2)), word);
  const Tensor root = remainder(half, span);
  const Tensor multiplier = remainder(root * root, span);
  const Tensor offset =
      remainder(remainder(draw(0), span) * multiplier + remainder(draw(1), span), span);
  return from + convert(offset, type.dtype);
}

Tensor bernoulli(const Operand& key, const Operand& p, const std::optional<Dims>& dims) {
  PlaceScope at(key.place());
  const Tensor probability = as_float(p.tensor());
  const Dims shape = dims.value_or(probability.dims());
  check_stretches("bernoulli", p, shape);
  return uniform(key, {probability.dtype(), shape}) < probability;
}

Tensor exponential(const Operand& key, const Type& type) {
  PlaceScope at(key.place());
  return -log1p(-uniform(key, type));
}

Tensor gumbel(const Operand& key, const Type& type) {
  PlaceScope at(key.place());
  return -log(-log(uniform(key, type, Operand(tiny(type.dtype)), 1.0)));
}

Tensor categorical(const Operand& key, const Operand& logits, std::int64_t axis) {
  PlaceScope at(key.place());
  const Tensor x = as_float(logits.tensor());
  axis = normal_axis("categorical", axis, x.rank());
  return argmax(gumbel(key, {x.dtype(), x.dims()}) + x, axis);
}

Tensor permutation(const Operand& key, const Operand& operand, std::int64_t axis) {
  PlaceScope at(key.place());
  const Tensor& x = operand.tensor();
  check(x.rank() > 0, "permutation: a tensor of rank 1 or more is needed, got {}",
        to_string(x.type()));
  axis = normal_axis("permutation", axis, x.rank());
  const Dims& dims = x.dims();
  if (x.rank() > 1) return take(x, permutation(key, dims[size_of(axis)]), axis);
  // Sorts by random words, as in JAX: in so many rounds that the words of all of them together have
  // n^3 values, and ties hardly matter.
  const double n = static_cast<double>(std::max<std::int64_t>(1, x.size()));
  const int rounds = static_cast<int>(std::ceil(3 * std::log(n) / std::log(4294967295.0)));
  Tensor out = x, chain = key.tensor();
  for (int i = 0; i < rounds; ++i) {
    const Tensor keys = split(chain);
    chain = key_at(keys, 0);
    const Tensor words = bits(key_at(keys, 1), {DType::u32, dims});
    out = sort_by({words, out}, 1, 0)[1];
  }
  return out;
}

Tensor permutation(const Operand& key, std::int64_t n) {
  PlaceScope at(key.place());
  return permutation(key, iota({DType::s32, {n}}, 0));
}

}  // namespace random
}  // namespace postern
