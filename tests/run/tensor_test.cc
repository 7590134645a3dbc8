// Tensors as values: rows by index, assignment with an operator, lists in lists, memory that is not
// there.
#include "support.h"

namespace postern {
namespace {

using test::expect_error;
using Floats = std::vector<float>;

Tensor six() { return tensor<float>({{0, 1}, {10, 11}, {20, 21}, {30, 31}, {40, 41}, {50, 51}}); }

TEST(Tensor, ARowByItsNumber) {
  const Tensor x = six();
  EXPECT_EQ(x[0].to_vector<float>(), (Floats{0, 1}));
  EXPECT_EQ(x[std::size_t{2}].to_vector<float>(), (Floats{20, 21}));
  EXPECT_EQ(x[-1].to_vector<float>(), (Floats{50, 51}));
  EXPECT_EQ(x[3][1].item<float>(), 31);
  EXPECT_EQ(to_string(x[0].type()), "f32[2]");
  expect_error<TypeError>([&] { x[6]; }, {"x[6]", "f32[6,2]", "0 to 5", "tensor_test.cc"});
  expect_error<TypeError>([&] { x[-7]; }, {"x[-7]", "f32[6,2]"});
  expect_error<TypeError>([&] { x[0][0][0]; }, {"f32[]", "scalar"});
}

TEST(Tensor, RowsByRange) {
  const Tensor x = six()[{0, Index::end}];
  const auto firsts = [](const Tensor& rows) {
    return slice_axis(rows, 1, 0, 1).to_vector<float>();
  };
  EXPECT_EQ(to_string(x.type()), "f32[6,2]");
  EXPECT_EQ(firsts(x[{1, 3}]), (Floats{10, 20}));
  EXPECT_EQ(firsts(x[{-2, Index::end}]), (Floats{40, 50}));
  EXPECT_EQ(firsts(x[{0, -4}]), (Floats{0, 10}));
  EXPECT_EQ(firsts(x[{0, Index::end, 2}]), (Floats{0, 20, 40}));
  EXPECT_EQ(firsts(x[{-100, 100, 5}]), (Floats{0, 50}));
  EXPECT_EQ(firsts(x[{0, 6, Index::end}]), (Floats{0}));
  EXPECT_EQ(firsts(x[{4, 2}]), Floats());
  expect_error<TypeError>([&] { x[{0, 3, 0}]; }, {"step", "0"});
  expect_error<TypeError>([&] { x[{3, 0, -1}]; }, {"step", "-1", "flip"});
}

TEST(Tensor, RowsThatTheProgramKnows) {
  const auto f = jit([](Tensor x, Tensor i) { return x[i]; });
  EXPECT_EQ(f(six(), tensor<int>({5, 0, -2})).to_vector<float>(), (Floats{50, 51, 0, 1, 40, 41}));
  EXPECT_EQ(f(six(), Tensor(3)).to_vector<float>(), (Floats{30, 31}));
  EXPECT_TRUE(std::isnan(f(six(), Tensor(6)).to_vector<float>()[0]));
  const auto g = grad([](Tensor x) { return sum(x[1] * x[{0, 2}]); });
  EXPECT_EQ(g(tensor<float>({{1, 2}, {3, 4}, {5, 6}})).to_vector<float>(),
            (Floats{3, 4, 7, 10, 0, 0}));
}

TEST(Tensor, AssignmentWithAnOperator) {
  const auto f = [](Tensor x) {
    const Tensor before = x;
    x += 3.0f;
    x *= 2.0f;
    x -= before;
    x /= 4.0f;
    x %= 2.0f;
    return x;
  };
  const Floats want{1.75f, 0};  // ((1 + 3) * 2 - 1) / 4, (2 + 3) * 2 - 2 over 4 and 2 % 2
  EXPECT_EQ(f(tensor<float>({1, 2})).to_vector<float>(), want);
  EXPECT_EQ(jit(f)(tensor<float>({1, 2})).to_vector<float>(), want);
  Tensor bits = tensor<int>({12, 10});
  const Tensor copy = bits;
  bits &= 10;
  bits |= 1;
  bits ^= 3;
  EXPECT_EQ(bits.to_vector<int>(), (std::vector<int>{10, 8}));
  EXPECT_EQ(copy.to_vector<int>(), (std::vector<int>{12, 10}));
  Tensor whole(1);
  whole += 0.5f;
  EXPECT_EQ(to_string(whole.type()), "f32[]") << "as x = x + 0.5f";
  (whole += 1.0f) *= 2.0f;
  EXPECT_EQ(whole.item<float>(), 5);
}

TEST(Tensor, ListsInLists) {
  const Tensor cube = tensor<int>({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}, {{9, 10}, {11, 12}}});
  EXPECT_EQ(to_string(cube.type()), "s32[3,2,2]");
  EXPECT_EQ(cube[1][1][0].item<int>(), 7);
  EXPECT_EQ(to_string(six().type()), "f32[6,2]");
  EXPECT_EQ(to_string(tensor<float>({{1}}).type()), "f32[1,1]");
  EXPECT_EQ(to_string(tensor<bool>({{true, false}}).type()), "pred[1,2]");
  EXPECT_EQ(to_string(tensor<float>({1, 2}).type()), "f32[2]");
  EXPECT_EQ(to_string(tensor<float>({1, 2, 3, 4}, {2, 2}).type()), "f32[2,2]");
  EXPECT_EQ(to_string(tensor<float>({}).type()), "f32[0]");
  expect_error<TypeError>([] { tensor<float>({{1, 2}, {3}}); }, {"one length", "2 and 1"});
  expect_error<TypeError>(
      [] {
        tensor<float>({{{1, 2}}, {{3, 4}, {5, 6}}});
      },
      {"one length", "1 and 2"});
  expect_error<TypeError>([] { tensor<float>({{{1, 2}}, {{3}}}); }, {"one length", "2 and 1"});
}

TEST(Tensor, ElementsThatNoMemoryHolds) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's operator new ends the process where memory is short";
#endif
  alignas(64) static float few[16];
  for (const int bits : {45, 60}) {
    const Tensor x = Tensor::borrow({DType::f32, {std::int64_t{1} << bits}}, few, {});
    expect_error<Error>([&] { x.to_vector<float>(); }, {"memory", "4 bytes"},
                        ErrorCode::resource_exhausted);
  }
}

TEST(Tensor, AttributesOfEveryNumber) {
  enum class Kind { a, b };
  const Attributes a{{"flag", true},
                     {"unsigned", 3u},
                     {"size", std::size_t{4}},
                     {"small", std::int8_t{-5}},
                     {"float", 0.5f},
                     {"text", "t"},
                     {"view", std::string_view("v")},
                     {"kind", Kind::b},
                     {"ints", std::vector<int>{1, 2}},
                     {"sizes", std::vector<std::size_t>{3}},
                     {"floats", std::vector{0.5f}},
                     {"pair", std::array{7, 8}},
                     {"flags", std::vector{true, false}},
                     {"texts", std::vector<std::string>{"x", "y"}},
                     {"long", std::vector<std::int64_t>{-9}}};
  EXPECT_EQ(to_string(a),
            "{flag = true, flags = [true, false], float = 0.5, floats = [0.5], ints = [1, 2], kind "
            "= 1, long = [-9], "
            "pair = [7, 8], size = 4, sizes = [3], small = -5, text = \"t\", texts = [\"x\", "
            "\"y\"], unsigned = 3, "
            "view = \"v\"}");
  EXPECT_EQ(a.get<std::int64_t>("unsigned"), 3);
  EXPECT_EQ(a.get<std::vector<std::int64_t>>("ints"), (std::vector<std::int64_t>{1, 2}));
  expect_error<TypeError>(
      [] {
        Attributes{{"n", ~std::uint64_t{0}}};
      },
      {"63 bits", "18446744073709551615"});
  expect_error<TypeError>([] { Attributes{{"n", static_cast<const char*>(nullptr)}}; }, {"null"});
}

}  // namespace
}  // namespace postern
