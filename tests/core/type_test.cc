// Element types: every value of each passes through a host function; empty, large and 64-bit
// arrays.
#include "support.h"

#include <Eigen/Core>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <numeric>

namespace postern {
namespace {

using test::error_of, test::expect_error, test::has;
using Floats = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

std::vector<DType> all_dtypes() {
  std::vector<DType> out;
  for (int i = 0; i < dtype_count; ++i)
    if (static_cast<DType>(i) != DType::token) out.push_back(static_cast<DType>(i));
  return out;
}
struct Packed {
  DType dtype;
  int bits;
};
constexpr Packed sub_byte[] = {
    {DType::s2, 2}, {DType::u2, 2}, {DType::s4, 4}, {DType::u4, 4}, {DType::f4e2m1fn, 4}};
int bits_of(DType t) {
  for (const Packed& p : sub_byte)
    if (p.dtype == t) return p.bits;
  return 8 * int(byte_width(t));
}

/// Bytes as the host sees them: every value of the small types, many patterns of the others.
Bytes patterns(DType dtype) {
  Bytes out;
  const int bits = bits_of(dtype);
  if (dtype == DType::pred) return {1, 0, 1, 1, 0, 0, 0, 1, 1};
  if (bits <= 8) {
    for (int v = 0; v < 1 << bits; ++v) {
      const bool negative = is_signed(dtype) && v >> (bits - 1) & 1;
      out.push_back(std::uint8_t(negative ? v - (1 << bits) : v));
    }
    out.push_back(out[1]);  // an odd number, so that the last packed byte is not full
    return out;
  }
  std::uint64_t state = 12345;
  for (std::size_t i = 0; i < 37 * byte_width(dtype); ++i)
    out.push_back(
        std::uint8_t((state = state * 6364136223846793005u + 1442695040888963407u) >> 56));
  for (int byte : {0x00, 0xff, 0x7f, 0x80})
    out.insert(out.end(), byte_width(dtype), std::uint8_t(byte));  // zeros, NaNs, limits
  return out;
}
Tensor tensor_of(DType dtype, const Bytes& bytes) {
  return Tensor(make_type(dtype, {std::int64_t(bytes.size() / byte_width(dtype))}), bytes.data());
}
Bytes bytes_of(const Tensor& t) {
  Bytes out(t.type().byte_size());
  t.read(out.data());
  return out;
}

TEST(Type, EachDtypeMakesTheRoundTrip) {
  RecordProperty("covers", "TYPE-01 TYPE-02");
  Bytes seen;
  auto through = [&](Tensor x) {
    return call(
        x.type(),
        [&](AnyView in, AnyMutableView out) {
          const auto* data = reinterpret_cast<const std::uint8_t*>(in.data());
          seen.assign(data, data + in.byte_size());
          std::memcpy(out.data(), in.data(), in.byte_size());
        },
        x);
  };
  auto compiled = jit(through);
  auto limited = jit([](Tensor x) {
    return call(
        {.timeout = std::chrono::seconds(30)}, x.type(),
        [](AnyView in, AnyMutableView out) { std::memcpy(out.data(), in.data(), in.byte_size()); },
        x);
  });
  for (DType dtype : all_dtypes()) {
    const Bytes sent = patterns(dtype);
    const Tensor x = tensor_of(dtype, sent);
    EXPECT_EQ(bytes_of(x), sent) << to_string(dtype);
    for (const Tensor& y :
         {compiled(x), through(x), compiled(compiled(x)), compiled(reshape(x, {1, x.size()}))}) {
      EXPECT_EQ(seen, sent) << to_string(dtype);
      EXPECT_EQ(bytes_of(y), sent) << to_string(dtype);
      EXPECT_EQ(y.dtype(), dtype);
    }
    EXPECT_EQ(bytes_of(limited(x)), sent) << to_string(dtype);
  }
}

TEST(Type, ScalarsOfEachDtype) {
  RecordProperty("covers", "TYPE-01 TYPE-02");
  auto f = jit([](Tensor x) {
    return call(
        x.type(),
        [](AnyView in, AnyMutableView out) { std::memcpy(out.data(), in.data(), in.byte_size()); },
        x);
  });
  for (DType dtype : all_dtypes()) {
    Bytes one = patterns(dtype);
    one.resize(byte_width(dtype));
    EXPECT_EQ(bytes_of(f(Tensor(make_type(dtype, {}), one.data()))), one) << to_string(dtype);
  }
}

TEST(Type, ArithmeticMeetsTheHostsValues) {
  RecordProperty("covers", "TYPE-01 TYPE-02");
  auto doubled = jit([](Tensor x) {
    Tensor y = call(
        x.type(),
        [](AnyView in, AnyMutableView out) { std::memcpy(out.data(), in.data(), in.byte_size()); },
        x);
    return convert<int>(y) + convert<int>(y);
  });
  for (DType dtype : {DType::s2, DType::u2, DType::s4, DType::u4, DType::s8, DType::u8}) {
    const Bytes sent = patterns(dtype);
    std::vector<int> want;
    for (std::uint8_t b : sent)
      want.push_back(2 * (is_signed(dtype) ? int(std::int8_t(b)) : int(b)));
    EXPECT_EQ(doubled(tensor_of(dtype, sent)).to_vector<int>(), want) << to_string(dtype);
  }
  auto back = jit([](Tensor x) {
    return call(
        x.type(),
        [](AnyView in, AnyMutableView out) { std::memcpy(out.data(), in.data(), in.byte_size()); },
        convert(x, DType::s4));
  });
  test::expect_error<TypeError>(
      [&] {
        jit([](Tensor x) {
          return call(
              x.type(), [](View<const float>, View<float>) {}, convert(x, DType::s4));
        })(tensor<float>({1}));
      },
      {"s4"});
  auto f4 = jit([](Tensor x) {
    return convert<float>(call(
        make_type(DType::f4e2m1fn, x.dims()),
        [](View<const int> in, AnyMutableView out) {
          for (std::int64_t i = 0; i < in.size(); ++i) out.data()[i] = std::byte(in[i]);
        },
        x));
  });
  EXPECT_EQ(f4(iota<int>(16)).to_vector<float>(),
            (Floats{0, .5, 1, 1.5, 2, 3, 4, 6, -0.f, -.5, -1, -1.5, -2, -3, -4, -6}));
}

template <class T>
void twice(std::initializer_list<T> values) {
  std::vector<T> seen, want;
  for (const T& v : values) want.push_back(T(v + v));
  auto f = jit([&](Tensor x) {
    return call(
               x.type(),
               [&](View<const T> in, View<T> out) {
                 seen.assign(in.begin(), in.end());
                 std::copy(in.begin(), in.end(), out.begin());
               },
               x) +
           x;
  });
  Tensor y = f(tensor<T>(values));
  EXPECT_EQ(y.dtype(), dtype_v<T>);
  EXPECT_EQ(y.to_vector<T>(), want) << to_string(dtype_v<T>);
  EXPECT_EQ(seen, std::vector<T>(values)) << to_string(dtype_v<T>);
  EXPECT_EQ(jit([](Tensor x) {
              return call(
                  x.type(), [](T v) { return v; }, x);
            })(Tensor(*values.begin()))
                .template item<T>(),
            *values.begin());
}

TEST(Type, TypedViewsOfEachElementType) {
  RecordProperty("covers", "TYPE-01 TYPE-12");
  twice<std::int8_t>({-64, 0, 63});
  twice<std::int16_t>({-16000, 1});
  twice<std::int32_t>({-1'000'000'000, 7});
  twice<std::int64_t>({-(1LL << 60), 9});
  twice<std::uint8_t>({127, 1});
  twice<std::uint16_t>({32767, 2});
  twice<std::uint32_t>({1u << 30, 3});
  twice<std::uint64_t>({1ull << 62, 4});
  twice<float>({1.5f, -3e30f});
  twice<double>({1.5, -3e300});
  twice<Eigen::half>({Eigen::half(1.5f), Eigen::half(-100.0f)});
  twice<Eigen::bfloat16>({Eigen::bfloat16(1.5f), Eigen::bfloat16(-1e30f)});
  twice<std::complex<float>>({{1, -2}, {3, 4}});
  twice<std::complex<double>>({{1e200, -2}, {3, 4}});
  auto f = jit([](Tensor x) {
    return logical_not(call(
        x.type(),
        [](View<const bool> in, View<bool> out) { std::copy(in.begin(), in.end(), out.begin()); },
        x));
  });
  EXPECT_EQ(f(tensor<bool>({true, false, true, true})).to_vector<bool>(),
            (std::vector<bool>{false, true, false, false}));
}

TEST(Type, ResultsOutsideTheRangeOfASmallType) {
  RecordProperty("covers", "TYPE-02");
  auto f = [](DType dtype, int value) {
    return [=](Tensor x) {
      return call(
          {.name = "tiny"}, make_type(dtype, {3}),
          [=](float, AnyMutableView out) {
            std::fill_n(out.data(), 3, std::byte(1));
            out.data()[2] = std::byte(value);
          },
          x);
    };
  };
  struct Row {
    DType dtype;
    int bad;
    const char *low, *high;
  };
  for (const Row& row : {Row{DType::s4, 9, "-8", "7"},
                         {DType::s4, -9, "-8", "7"},
                         {DType::u4, 16, "0", "15"},
                         {DType::s2, 2, "-2", "1"},
                         {DType::u2, 4, "0", "3"}}) {
    const auto compiled = error_of<CallbackError>(
        [&] { jit(f(row.dtype, row.bad))(Tensor(1.0f)).block_until_ready(); });
    const auto now =
        error_of<CallbackError>([&] { f(row.dtype, row.bad)(Tensor(1.0f)).block_until_ready(); });
    ASSERT_TRUE(compiled && now);
    EXPECT_EQ(compiled->code(), ErrorCode::bad_result);
    EXPECT_STREQ(compiled->what(), now->what());
    for (const std::string& part :
         {std::string("tiny"), std::string(to_string(row.dtype)), std::to_string(row.bad),
          std::string(row.low), std::string(row.high)})
      EXPECT_TRUE(has(compiled->what(), part)) << part << ": " << compiled->what();
  }
  EXPECT_EQ(bytes_of(jit(f(DType::s4, -8))(Tensor(1.0f)))[2], 0xf8);
}

TEST(Type, EmptyArraysInAnyPosition) {
  RecordProperty("covers", "TYPE-03");
  int fired = 0;
  auto nothing_null = [&](std::span<const AnyView> in, std::span<const AnyMutableView> out) {
    ++fired;
    for (const AnyView& v : in) EXPECT_NE(v.data(), nullptr);
    for (const AnyMutableView& v : out) {
      EXPECT_NE(v.data(), nullptr);
      std::fill_n(reinterpret_cast<float*>(v.data()), v.size(), 5.0f);
    }
  };
  auto f = jit([&](Tensor a, Tensor b) {
    return std::tuple(
        call(type<float>({2}), nothing_null, a),
        call(std::array{type<float>({2, 0}), type<float>({2}), type<float>({3, 0}), type<float>()},
             nothing_null, a, b, a));
  });
  const auto [two, many] = f(zeros(type<float>({2, 0})), ones(type<float>({3})));
  EXPECT_EQ(two.to_vector<float>(), (Floats{5, 5}));
  EXPECT_EQ(to_string(many[0].type()), "f32[2,0]");
  EXPECT_TRUE(many[0].to_vector<float>().empty());
  EXPECT_EQ(many[1].to_vector<float>(), (Floats{5, 5}));
  EXPECT_EQ(many[3].item<float>(), 5);
  EXPECT_EQ(fired, 2);
  EXPECT_EQ(call(type<float>({0}), nothing_null, zeros(type<float>({0, 4}))).size(), 0)
      << "at once";
}

TEST(Type, AllResultsEmptyStillFiresOnce) {
  RecordProperty("covers", "TYPE-03");
  int fired = 0;
  auto f = jit([&](Tensor x) {
    return call(
        std::pair(type<float>({0}), type<int>({0, 7})),
        [&](float, View<float> a, View<int> b) { fired += a.size() + b.size() == 0; }, x);
  });
  for (int i = 1; i <= 2; ++i) {
    const auto [a, b] = f(Tensor(1.0f));
    a.block_until_ready();
    b.block_until_ready();
    EXPECT_EQ(fired, i);
  }
}

TEST(Type, EmptyContainersInContainers) {
  RecordProperty("covers", "TYPE-04");
  using Odd = std::tuple<std::tuple<>, Tensor, std::map<std::string, Tensor>,
                         std::vector<std::pair<Tensor, std::tuple<>>>>;
  auto f = jit([](Odd in) {
    return call(
        in, [](float v, View<float> out) { out[0] = v + 1; }, in);
  });
  const Odd out = f(Odd{{}, Tensor(1.0f), {}, {}});
  EXPECT_EQ(std::get<1>(out).item<float>(), 2);
  EXPECT_TRUE(std::get<2>(out).empty() && std::get<3>(out).empty());
  auto none = jit([](std::vector<Tensor> in) { return std::pair(in, std::tuple<>()); });
  EXPECT_TRUE(none({}).first.empty());
}

TEST(Type, SixtyFourBitsStay) {
  RecordProperty("covers", "TYPE-06");
  const std::int64_t big = (1LL << 40) + 1;
  const double fine = 1 + std::ldexp(1.0, -40);
  auto f = jit([](Tensor i, Tensor d) {
    return call(
        std::pair(i, d), [](std::int64_t a, double b) { return std::pair(a, b); },
        i * std::int64_t{1}, d * 1.0f);
  });
  const auto [i, d] = f(Tensor(big), Tensor(fine));
  EXPECT_EQ(i.item<std::int64_t>(), big);
  EXPECT_EQ(d.item<double>(), fine);
  EXPECT_EQ(f(Tensor(-big), Tensor(-fine)).first.item<std::int64_t>(), -big);
  EXPECT_EQ(jit([=](Tensor x) { return x + big; })(Tensor(std::int64_t{0})).item<std::int64_t>(),
            big)
      << "written into the program";
}

TEST(Type, MoreThanTwoToThe31Bytes) {
  RecordProperty("covers", "TYPE-08");
  const std::int64_t n = (1LL << 31) + 64;  // whole blocks, as aligned_alloc wants
  auto* memory = static_cast<std::uint8_t*>(std::aligned_alloc(64, std::size_t(n)));
  ASSERT_NE(memory, nullptr);
  memory[n - 1] = 77;
  bool released = false;
  {
    auto f = jit([&](Tensor x) {
      return call(
          std::pair(type<std::int64_t>(), type<std::uint8_t>()),
          [](View<const std::uint8_t> v) { return std::pair(v.size(), v[v.size() - 1]); }, x);
    });
    const auto [size, last] =
        f(Tensor::borrow(type<std::uint8_t>({n}), memory, [&] { released = true; }));
    EXPECT_EQ(size.item<std::int64_t>(), n);
    EXPECT_EQ(last.item<std::uint8_t>(), 77);
  }
  EXPECT_TRUE(test::wait_until([&] { return released; }));
  std::free(memory);
}

TEST(Type, KindsThatAreNoData) {
  RecordProperty("covers", "TYPE-09");
  const Type token{DType::token, {}};
  expect_error<TypeError>(
      [&] {
        jit([](Tensor x) {
          return call(
              {.name = "sink"}, type<float>(), [](AnyView) { return 1.0f; }, x);
        }).program(abstract(token));
      },
      {"token"});
  expect_error<TypeError>([&] { zeros(token); }, {"token"});
  expect_error<TypeError>([&] { Tensor(token, nullptr); }, {"token"});
}

TEST(Type, RandomKeysAreRawWords) {
  RecordProperty("covers", "TYPE-10");
  const auto same = [](Tensor key) {
    return call(
        key.type(),
        [](View<const std::uint32_t> in, View<std::uint32_t> out) {
          std::ranges::copy(in, out.begin());
        },
        key);
  };
  const auto draw = [](Tensor key) { return random::normal(key, type<float>({3})); };
  const Tensor keys = random::split(random::key(7), 4);
  const auto passed = [&](Tensor key) { return draw(same(key)); };
  EXPECT_EQ(to_string(keys.type()), "u32[4,2]");
  EXPECT_EQ(jit(vmap(passed))(keys).to_vector<float>(), jit(vmap(draw))(keys).to_vector<float>());
}

TEST(Type, NamesAndSizes) {
  EXPECT_EQ(to_string(type<float>({2, 3})), "f32[2,3]");
  EXPECT_EQ(to_string(type<bool>()), "pred[]");
  EXPECT_EQ(to_string(make_type(DType::f8e4m3b11fnuz, {0})), "f8e4m3b11fnuz[0]");
  const Type two[] = {type<float>({2}), type<int>()};
  EXPECT_EQ(to_string(two), "(f32[2], s32[])");
  EXPECT_EQ(make_type(DType::s4, {3, 5}).byte_size(), 15u);
  EXPECT_EQ(type<std::complex<double>>({2}).byte_size(), 32u);
  EXPECT_EQ(type<float>({0, 1LL << 40}).size(), 0);
  for (DType t : all_dtypes()) {
    EXPECT_EQ(is_signed(t) || is_unsigned(t), is_integer(t)) << to_string(t);
    EXPECT_EQ(t == DType::pred || is_integer(t) || is_float(t) || is_complex(t), true)
        << to_string(t);
    EXPECT_EQ(is_differentiable(t), is_float(t) || is_complex(t)) << to_string(t);
  }
  EXPECT_EQ(real_dtype(DType::c128), DType::f64);
}

/// Asks for f32[2^bits] in one way. In a process of its own: it may die.
void expect_size_error(const char* way, int bits, ErrorCode code) {
  const auto ended = test::run_program(
      "sizes", {way, std::to_string(bits), std::to_string(static_cast<int>(code))});
  EXPECT_EQ(ended.code, 0) << way << " of 2^" << bits << ": " << ended.err;
}

TEST(Type, SizesBeyond63BitsAreRefused) {
  for (const char* way : {"type", "squared", "made", "borrowed", "full", "iota", "abstract",
                          "result", "temporary", "used", "call", "call_limited", "call_staged",
                          "call_at_once", "concatenated", "padded", "tiled", "c_copy", "c_borrow"})
    for (const int bits : {61, 62}) expect_size_error(way, bits, ErrorCode::invalid_argument);
  // Also where another extent is 0: XLA multiplies them in any order.
  for (const char* way : {"empty", "empty_borrowed", "empty_zeros", "empty_at_once", "empty_run",
                          "empty_widened", "empty_grown"}) {
    for (const int bits : {61, 62}) expect_size_error(way, bits, ErrorCode::invalid_argument);
    for (const int bits : {31, 45, 60}) expect_size_error(way, bits, ErrorCode::ok);
  }
  for (const char* way : {"squared", "concatenated", "padded", "tiled"})
    expect_size_error(way, 59, ErrorCode::invalid_argument);
  expect_error<TypeError>(
      [] {
        type<double>({std::int64_t{1} << 31, std::int64_t{1} << 29});
      },
      {"f64[2147483648,536870912]", "63 bits"});
  const std::int64_t large = std::int64_t{1} << 40;
  for (const Dims& dims : {Dims{large, large}, Dims{-1, large, large}})
    expect_error<TypeError>([&] { reshape(Tensor(1.0f), dims); }, {"63 bits"});
  EXPECT_EQ(type<std::int8_t>({std::int64_t{1} << 62}).byte_size(), std::size_t{1} << 62);
}

TEST(Type, MoreAxesThanThereMayBeAreRefused) {
  const auto ones_of = [](std::int64_t rank) { return Dims(static_cast<std::size_t>(rank), 1); };
  const Tensor x = ones(type<float>(ones_of(max_rank)));
  EXPECT_EQ(sum(x + x).item<float>(), 2);
  EXPECT_EQ(jit([](Tensor v) { return sum(sin(v)); })(zeros(x.type())).item<float>(), 0);
  for (const std::int64_t rank : {max_rank + 1, std::int64_t{1000}, std::int64_t{1'000'000}}) {
    const std::clock_t start = std::clock();  // however busy the machine is
    const std::string got = "at most 64 axes, got " + std::to_string(rank);
    expect_error<TypeError>([&] { type<float>(ones_of(rank)); }, {got});
    const float one = 1;
    expect_error<TypeError>([&] { Tensor({DType::f32, ones_of(rank)}, &one); }, {got});
    expect_error<TypeError>([&] { Tensor::borrow({DType::f32, ones_of(rank)}, &one, {}); }, {got});
    expect_error<TypeError>([&] { reshape(Tensor(1.0f), ones_of(rank)); }, {got});
    expect_error<TypeError>([&] { broadcast_to(Tensor(1.0f), ones_of(rank)); }, {got});
    expect_error<TypeError>([&] { tile(Tensor(1.0f), ones_of(rank)); }, {got});
    expect_error<TypeError>([&] { zeros({DType::f32, ones_of(rank)}); }, {got});
    expect_error<TypeError>([&] { iota({DType::f32, ones_of(rank)}, 0); }, {got});
    const Dims axes(static_cast<std::size_t>(rank), 0);
    const Tensor row = ones(type<float>({1}));
    expect_error<TypeError>([&] { transpose(row, axes); }, {"transpose"});
    expect_error<TypeError>([&] { squeeze(row, axes); }, {"squeeze"});
    expect_error<TypeError>([&] { reverse(row, axes); }, {"reverse"});
    expect_error<TypeError>([&] { sum(row, {.axes = axes}); }, {"sum"});
    EXPECT_LT(std::clock() - start, 10 * CLOCKS_PER_SEC) << rank;
  }
  expect_error<TypeError>([&] { expand_dims(x, 0); }, {"at most 64 axes, got 65"});
  expect_error<TypeError>([&] { vmap([&](Tensor v) { return v + x; })(ones(type<float>({2}))); },
                          {"at most 64 axes, got 65"});
}

TEST(Type, SizesBeyondTheMemoryAreErrors) {  // more than a process can address
  for (const char* way : {"made", "full", "iota", "result", "temporary", "used", "call",
                          "call_limited", "call_staged", "call_at_once", "c_copy"})
    for (const int bits : {45, 59, 60}) expect_size_error(way, bits, ErrorCode::resource_exhausted);
}

}  // namespace
}  // namespace postern
