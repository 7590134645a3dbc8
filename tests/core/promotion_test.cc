// Promotion of dtypes and broadcasting of shapes.
#include "support.h"

namespace postern {
namespace {

using test::expect_error;

/// jax.numpy.promote_types of JAX 0.10.2 with jax_enable_x64: row and column are dtypes in the
/// order of the comments, '.' is an error.
constexpr const char* jax_table[] = {
    "abcdefghijklmnopqrstuvwxyzAB",  // a pred
    "bb..........................",  // b s2
    "c.c.........................",  // c s4
    "d..defg..efgqnopqrstuvwxyzAB",  // d s8
    "e..eefg..efgqnopqrstuvwxyzAB",  // e s16
    "f..fffg..ffgqnopqrstuvwxyzAB",  // f s32
    "g..gggg..gggqnopqrstuvwxyzAB",  // g s64
    "h......h....................",  // h u2
    "i.......i...................",  // i u4
    "j..eefg..jklmnopqrstuvwxyzAB",  // j u8
    "k..fffg..kklmnopqrstuvwxyzAB",  // k u16
    "l..gggg..lllmnopqrstuvwxyzAB",  // l u32
    "m..qqqq..mmmmnopqrstuvwxyzAB",  // m u64
    "n..nnnn..nnnnnppqrs.........",  // n f16
    "o..oooo..oooopopqrs.........",  // o bf16
    "p..pppp..pppppppqrs.........",  // p f32
    "q..qqqq..qqqqqqqqss.........",  // q f64
    "r..rrrr..rrrrrrrsrs.........",  // r c64
    "s..ssss..ssssssssss.........",  // s c128
    "t..tttt..tttt......t........",  // t f8e5m2
    "u..uuuu..uuuu.......u.......",  // u f8e4m3fn
    "v..vvvv..vvvv........v......",  // v f8e4m3b11fnuz
    "w..wwww..wwww.........w.....",  // w f8e5m2fnuz
    "x..xxxx..xxxx..........x....",  // x f8e4m3fnuz
    "y..yyyy..yyyy...........y...",  // y f8e4m3
    "z..zzzz..zzzz............z..",  // z f8e3m4
    "A..AAAA..AAAA.............A.",  // A f8e8m0fnu
    "B..BBBB..BBBB..............B",  // B f4e2m1fn
};
/// dtype(jnp.add(x, number)) for x of each dtype and a Python number, which is weakly typed; '*':
/// the result is weak too.
constexpr const char *weak_int = "*bcdefghijklmnopqrstuvwxyzAB",
                     *weak_float = "*..****..****nopqrstuvwxyzAB",
                     *weak_complex = "*..****..****rrrsrs.........";

constexpr int dtypes = dtype_count - 1;  // without token
DType dtype_at(int i) { return static_cast<DType>(i); }
int index_of(char letter) { return letter >= 'a' ? letter - 'a' : 26 + letter - 'A'; }

/// The type of a choice between x and y, without running it.
template <class Y>
Type chosen(const Type& x, Y y) {
  return jit([&](Tensor c, Tensor a) { return where(c, a, y); })
      .program(abstract(type<bool>()), abstract(x))
      .outputs()
      .front();
}
Type chosen(const Type& x, const Type& y) {
  return jit([](Tensor c, Tensor a, Tensor b) { return where(c, a, b); })
      .program(abstract(type<bool>()), abstract(x), abstract(y))
      .outputs()
      .front();
}

TEST(Promotion, OrderOfTheTable) {
  const char* names[] = {"pred",       "s2",
                         "s4",         "s8",
                         "s16",        "s32",
                         "s64",        "u2",
                         "u4",         "u8",
                         "u16",        "u32",
                         "u64",        "f16",
                         "bf16",       "f32",
                         "f64",        "c64",
                         "c128",       "f8e5m2",
                         "f8e4m3fn",   "f8e4m3b11fnuz",
                         "f8e5m2fnuz", "f8e4m3fnuz",
                         "f8e4m3",     "f8e3m4",
                         "f8e8m0fnu",  "f4e2m1fn"};
  ASSERT_EQ(std::size(names), std::size_t(dtypes));
  for (int i = 0; i < dtypes; ++i) EXPECT_EQ(to_string(dtype_at(i)), names[i]);
}

TEST(Promotion, EachPairAsInJax) {
  for (int i = 0; i < dtypes; ++i)
    for (int j = 0; j < dtypes; ++j) {
      const Type x = make_type(dtype_at(i), {}), y = make_type(dtype_at(j), {});
      const char want = jax_table[i][j];
      const std::string pair = to_string(x) + " and " + to_string(y);
      if (want == '.')
        expect_error<TypeError>(
            [&] { ADD_FAILURE() << pair << " gave " << to_string(chosen(x, y)); },
            {to_string(dtype_at(i)), to_string(dtype_at(j)), "where"});
      else
        EXPECT_EQ(to_string(chosen(x, y).dtype), to_string(dtype_at(index_of(want)))) << pair;
    }
}

/// A C++ number keeps its own dtype where JAX takes the default one.
template <class T>
void expect_weak(T number, const char* row) {
  for (int i = 0; i < dtypes; ++i) {
    const Type x = make_type(dtype_at(i), {});
    if (row[i] == '.') {
      expect_error<TypeError>([&] { chosen(x, number); }, {to_string(dtype_at(i))});
      continue;
    }
    const Type got = chosen(x, number);
    EXPECT_EQ(to_string(got.dtype),
              to_string(row[i] == '*' ? dtype_v<T> : dtype_at(index_of(row[i]))))
        << to_string(x) << " and a number of " << to_string(dtype_v<T>);
    EXPECT_EQ(got.weak, row[i] == '*') << to_string(x);
  }
}
TEST(Promotion, NumbersGiveWay) {
  expect_weak(1, weak_int);  // which s2 has too
  expect_weak(2.0f, weak_float);
  expect_weak(2.0, weak_float);
  expect_weak(std::complex<float>(2), weak_complex);
}

TEST(Promotion, ArithmeticPromotes) {
  const Tensor s = Tensor(3), f = Tensor(0.5f), u = Tensor(std::uint8_t{4}),
               h = convert(f, DType::bf16), d = Tensor(0.25);
  EXPECT_EQ(to_string((s + f).type()), "f32[]");
  EXPECT_EQ((s + f).item<float>(), 3.5f);
  EXPECT_EQ(to_string((s * u).type()), "s32[]");
  EXPECT_EQ(to_string((h * 2.0f).type()), "bf16[]");
  EXPECT_EQ(to_string((2 - h).type()), "bf16[]");
  EXPECT_EQ(to_string((h + f).type()), "f32[]");
  EXPECT_EQ(to_string((f + d).type()), "f64[]");
  EXPECT_EQ((f + d).item<double>(), 0.75);
  EXPECT_EQ(to_string((f + 0.25).type()), "f32[]") << "a C++ double is weak";
  EXPECT_EQ(to_string((u + 1).type()), "u8[]");
  EXPECT_EQ(to_string((s < f).type()), "pred[]");
  EXPECT_EQ(to_string((s + 0.5f).type()), "f32[]");
  EXPECT_EQ(to_string(concatenate({tensor<int>({1}), tensor<double>({2})}).type()), "f64[2]");
}

TEST(Promotion, ATensorOfANumberIsNotWeak) {
  EXPECT_EQ(to_string((convert(Tensor(1.0f), DType::bf16) * Tensor(2.0f)).type()), "f32[]");
  EXPECT_EQ(
      to_string(jit([](Tensor x) { return x * Tensor(2.0f); })(convert(Tensor(1.0f), DType::bf16))
                    .type()),
      "f32[]");
  EXPECT_EQ(
      to_string(jit([](Tensor x) { return x * 2.0f; })(convert(Tensor(1.0f), DType::bf16)).type()),
      "bf16[]");
}

TEST(Promotion, WeaknessPassesThroughExpressions) {
  auto f = jit([](Tensor x) {
    Tensor factor = maximum(2.0f, 1.0f) * 3;  // still only numbers
    return x * factor;
  });
  EXPECT_EQ(to_string(f(convert(Tensor(1.0f), DType::bf16)).type()), "bf16[]");
  EXPECT_EQ(to_string((convert(Tensor(1.0f), DType::f16) * (maximum(2.0f, 1.0f) * 3)).type()),
            "f16[]")
      << "at once";
}

template <class X, class Y>
void expect_of_numbers(X x, Y y, DType wanted) {
  for (const Tensor& larger : {maximum(x, y), maximum(y, x)}) {
    EXPECT_EQ(to_string(larger.dtype()), to_string(wanted));
    EXPECT_EQ((convert(Tensor(1.0f), DType::f16) * larger).dtype(), DType::f16) << "it is weak";
    EXPECT_EQ(convert<double>(larger).item<double>(), 2);
  }
}

TEST(Promotion, OfNumbersInEitherOrder) {
  expect_of_numbers(-1, 2u, DType::s64);
  expect_of_numbers(-1, std::uint8_t{2}, DType::s32);
  expect_of_numbers(std::int8_t{-1}, std::uint8_t{2}, DType::s16);
  expect_of_numbers(std::int8_t{-1}, std::uint16_t{2}, DType::s32);
  expect_of_numbers(std::int64_t{-1}, 2u, DType::s64);
  expect_of_numbers(std::int64_t{1}, std::uint64_t{2}, DType::u64);
  expect_of_numbers(1, std::uint64_t{2}, DType::u64);
}

TEST(Promotion, ShapesBroadcastAsInNumPy) {
  struct Row {
    Dims x, y, z;
  };
  for (const Row& row : {Row{{}, {}, {}},
                         {{3}, {}, {3}},
                         {{}, {2, 3}, {2, 3}},
                         {{3}, {2, 3}, {2, 3}},
                         {{2, 1}, {3}, {2, 3}},
                         {{2, 1}, {1, 3}, {2, 3}},
                         {{1}, {2, 3}, {2, 3}},
                         {{4, 1, 3}, {2, 1}, {4, 2, 3}},
                         {{0}, {1}, {0}},
                         {{0, 3}, {1, 3}, {0, 3}},
                         {{2, 0}, {0}, {2, 0}},
                         {{1, 1}, {5}, {1, 5}},
                         {{5, 1, 0}, {7, 1}, {5, 7, 0}}}) {
    for (bool swapped : {false, true}) {
      const Tensor x = ones(type<float>(swapped ? row.y : row.x)),
                   y = ones(type<float>(swapped ? row.x : row.y));
      const Tensor now = x + y, compiled = jit([](Tensor a, Tensor b) { return a + b; })(x, y);
      EXPECT_EQ(now.dims(), row.z);
      EXPECT_EQ(compiled.dims(), row.z);
      EXPECT_EQ(compiled.to_vector<float>(),
                std::vector<float>(std::size_t(compiled.size()), 2.0f));
      EXPECT_EQ(where(x > 0, x, y).dims(), row.z);
    }
  }
  for (const Row& row :
       {Row{{2}, {3}, {}}, {{2, 3}, {2}, {}}, {{0}, {2}, {}}, {{4, 2, 3}, {3, 1, 3}, {}}})
    expect_error<TypeError>(
        [&] { zeros(type<float>(row.x)) * zeros(type<float>(row.y)); },
        {"multiply", dims_to_string(row.x), dims_to_string(row.y), "broadcast"});
}

TEST(Promotion, BroadcastValues) {
  const Tensor x = tensor<int>({1, 2, 3}), y = tensor<int>({10, 20}, {2, 1});
  EXPECT_EQ((x + y).to_vector<int>(), (std::vector<int>{11, 12, 13, 21, 22, 23}));
  EXPECT_EQ((y - x).to_vector<int>(), (std::vector<int>{9, 8, 7, 19, 18, 17}));
  EXPECT_EQ((x + 1).to_vector<int>(), (std::vector<int>{2, 3, 4}));
}

TEST(Promotion, OfWhatIsComputedAtOnceDoesNotDependOnWhatWasBefore) {
  const Tensor number = add(1, 2), half = convert(tensor<float>({1}), DType::bf16);
  EXPECT_EQ((sqrt(number) * half).dtype(), DType::bf16) << "a number gives way";
  EXPECT_EQ((convert(number, DType::f32) * half).dtype(), DType::f32)
      << "a conversion is asked for";
}

/// Results of branches with a number that is weak, or not, in programs that are alike otherwise.
Tensor chosen(bool weak, const Tensor& p) {
  auto branch = [=](float v) {
    return [=] { return std::pair(Tensor(1.0f), weak ? sqrt(v) : sqrt(Tensor(v))); };
  };
  return cond(p, branch(4.0f), branch(9.0f)).second;
}

TEST(Promotion, ProgramsThatDifferInWeaknessAloneAreNotTakenForOne) {
  const Tensor p(true), half = convert(Tensor(1.0f), DType::f16);
  for (const bool weak : {true, false, true})  // at once: the second finds the first one's program
    EXPECT_EQ((chosen(weak, p) * half).dtype(), weak ? DType::f16 : DType::f32);
  const auto [weak, strong] =
      jit([](Tensor q) { return std::pair(chosen(true, q), chosen(false, q)); })(p);
  EXPECT_EQ((weak * half).dtype(), DType::f16);
  EXPECT_EQ((strong * half).dtype(), DType::f32);
}

}  // namespace
}  // namespace postern
