// Operations outside of jit that the host makes without XLA: they have the bits of compiled ones,
// whatever the elements are, and they compile nothing.
#include <gtest/gtest.h>
#include <postern/arrange.h>
#include <postern/compare.h>
#include <postern/postern.h>
#include <postern/random.h>

#include <Eigen/Core>
#include <cstring>
#include <random>

#include "resident.h"
#include "support.h"

namespace postern {
namespace {

constexpr DType elements[] = {DType::pred, DType::s8,  DType::s16, DType::s32, DType::s64,
                              DType::u8,   DType::u16, DType::u32, DType::u64, DType::f16,
                              DType::bf16, DType::f32, DType::f64, DType::c64, DType::c128};

using Random = std::mt19937_64;

std::int64_t below(Random& random, std::int64_t n) {
  return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
}

template <class T>
void write(T value, unsigned char* to) {
  std::memcpy(to, &value, sizeof value);
}

/// A number of moderate size, of which many operations are exact and others round.
void write_usual(DType dtype, double x, unsigned char* to) {
  switch (dtype) {
    case DType::f16: return write(Eigen::half(static_cast<float>(x)), to);
    case DType::bf16: return write(Eigen::bfloat16(static_cast<float>(x)), to);
    case DType::f32: return write(static_cast<float>(x), to);
    default: return write(x, to);
  }
}

/// Integers of any bits; floats `usual`, or of any bits with zeros of both signs, infinities, nan
/// and subnormal numbers among them.
Tensor filled(Random& random, const Type& type, bool usual) {
  std::vector<unsigned char> bytes(type.byte_size());
  const DType part = real_dtype(type.dtype);
  const std::size_t width = byte_width(part);
  for (std::size_t at = 0; at < bytes.size(); at += width) {
    const std::uint64_t bits = random();
    std::memcpy(&bytes[at], &bits, width);
    if (type.dtype == DType::pred) bytes[at] &= 1;
    if (!is_float(part)) continue;
    if (usual)
      write_usual(part, std::normal_distribution(0.0, 100.0)(random), &bytes[at]);
    else if (bits % 4 == 0)
      write_usual(part,
                  std::vector{0.0, -0.0, 1.0, -1.0, HUGE_VAL, -HUGE_VAL, std::nan(""), 1e-40,
                              1e-310, 3e-8, 65504.0, 255.5}[bits / 4 % 12],
                  &bytes[at]);
  }
  return Tensor(type, bytes.data());
}

std::vector<unsigned char> content_of(const Tensor& x) {
  std::vector<unsigned char> out(x.type().byte_size());
  x.read(out.data());
  return out;
}

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

/// What `f` gives at once and compiled, and once more with what XLA has made for operands.
void expect_same(const Function& f, const std::vector<Tensor>& x, const std::string& what) {
  const auto compiled = jit([&](const std::vector<Tensor>& y) { return f(y); });
  const std::vector<Tensor> want = compiled(x);
  const std::vector<Tensor> on_device = jit([](const std::vector<Tensor>& y) { return y; })(x);
  for (const Tensor& t : on_device) t.block_until_ready();
  for (const auto& operands : {x, on_device}) {
    const std::vector<Tensor> got = f(operands);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(to_string(got[i].type()), to_string(want[i].type())) << what << " " << i;
      EXPECT_EQ(content_of(got[i]), content_of(want[i]))
          << what << ": result " << i << ", " << to_string(want[i].type());
    }
  }
}

std::vector<Tensor> computed(const std::vector<Tensor>& v) {
  const Tensor &x = v[0], &y = v[1], &c = v[2];
  const DType dtype = x.dtype();
  std::vector<Tensor> out{equal(x, y), not_equal(x, y), where(c, x, y)};
  if (dtype != DType::pred) {
    for (const Tensor& t : {x + y, x - y, -x}) out.push_back(t);
    if (!is_complex(dtype)) out.push_back(x * y);
  }
  if (!is_complex(dtype))
    for (const Tensor& t : {less(x, y), less_equal(x, y), greater(x, y), greater_equal(x, y),
                            maximum(x, y), minimum(x, y)})
      out.push_back(t);
  if (is_float(dtype)) out.push_back(x / y);
  if (is_integer(dtype) || dtype == DType::pred)
    for (const Tensor& t : {x & y, x | y, x ^ y, ~x}) out.push_back(t);
  if (is_integer(dtype))
    for (const Tensor& by : {y, y & 15})
      for (const Tensor& t : {shift_left(x, by), shift_right(x, by), shift_right_logical(x, by)})
        out.push_back(t);
  return out;
}

TEST(OnHost, ComputesTheBitsThatXlaComputes) {
  Random random(1);
  for (const DType dtype : elements)
    for (const bool usual : {true, false}) {
      const Type type{dtype, {below(random, 70), 1 + below(random, 3)}};
      expect_same(computed,
                  {filled(random, type, usual), filled(random, type, usual),
                   filled(random, {DType::pred, type.dims}, true)},
                  to_string(type) + (usual ? " usual" : " any"));
    }
}

TEST(OnHost, ConvertsToTheBitsThatXlaConvertsTo) {
  Random random(2);
  for (const DType dtype : elements)
    for (const bool usual : {true, false}) {
      const Type type{dtype, {1 + below(random, 200)}};
      expect_same(
          [&](const std::vector<Tensor>& x) {
            std::vector<Tensor> out;
            for (const DType to : elements)
              if (!is_complex(dtype) || is_complex(to)) out.push_back(convert(x[0], to));
            return out;
          },
          {filled(random, type, usual)}, to_string(type) + (usual ? " usual" : " any"));
    }
}

TEST(OnHost, MovesElementsAsXlaDoes) {
  Random random(3);
  for (int round = 0; round < 30; ++round) {
    const DType dtype = elements[round % 15];
    Dims dims, more, order, start, limit, stride, axes;
    for (std::int64_t i = 0, rank = below(random, 5); i < rank; ++i) {
      dims.push_back(below(random, 8));
      if (below(random, 3) == 0) dims.back() = 1;
      more.push_back(dims.back() == 1 ? below(random, 4) : dims.back());
      order.insert(order.begin() + below(random, i + 1), i);
      start.push_back(below(random, dims.back() + 1));
      limit.push_back(start.back() + below(random, dims.back() - start.back() + 1));
      stride.push_back(1 + below(random, 3));
      if (below(random, 2)) axes.push_back(i);
    }
    const Type type{dtype, dims};
    const std::int64_t rank = type.rank();
    more.insert(more.begin(), below(random, 3));
    const std::int64_t axis = rank > 0 ? below(random, rank) : 0;
    expect_same(
        [&](const std::vector<Tensor>& v) {
          const Tensor& x = v[0];
          std::vector<Tensor> out{transpose(x, order), slice(x, start, limit, stride),
                                  reverse(x, axes), broadcast_to(x, more), reshape(x, {x.size()})};
          if (rank > 0) out.push_back(concatenate({x, v[1], x}, axis));
          if (rank > 0 && dtype != DType::pred) out.push_back(iota(type, axis));
          return out;
        },
        {filled(random, type, false), filled(random, type, false)}, to_string(type));
  }
}

TEST(OnHost, DrawsTheNumbersThatXlaDraws) {
  Random random(4);
  for (const Dims& dims : {Dims{}, Dims{0}, Dims{7}, Dims{33, 5}, Dims{100, 60}})
    expect_same(
        [&](const std::vector<Tensor>& v) {
          std::vector<Tensor> out{random::split(v[0], 5)[2], random::fold_in(v[0], 3)};
          for (const DType d : {DType::u8, DType::u16, DType::u32, DType::u64})
            out.push_back(random::bits(v[0], {d, dims}));
          for (const DType d : {DType::f16, DType::bf16, DType::f32, DType::f64})
            out.push_back(random::uniform(v[0], {d, dims}));
          out.push_back(random::integers(v[0], {DType::s32, dims}, -5, 1000));
          out.push_back(random::bernoulli(v[0], 0.3f, dims));
          return out;
        },
        {random::key(random())}, "random");
}

/// The lines that say that an operation outside of jit compiles.
int compiled_at_once(const std::string& log) {
  int count = 0;
  for (std::size_t at = 0; (at = log.find("outside of jit compiles", at)) != log.npos; ++at)
    ++count;
  return count;
}

// What is left to XLA, erf_inv of f32, has other bits in other shapes.
TEST(OnHost, OfParametersTheNormalOnesCompileOneOperation) {
  const auto ended = test::run_program("parameters", {}, {{"POSTERN_LOG", "compiles"}});
  EXPECT_EQ(ended.code, 0) << ended.err;
  // With a sanitizer XLA may take longer for an operand than the next operation waits for it.
  EXPECT_LE(compiled_at_once(ended.err), test::counts_memory ? 7 : 12) << ended.err;
}

}  // namespace
}  // namespace postern
