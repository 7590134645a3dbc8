// Wrong uses that every new user comes to: what they are told.
#include "support.h"

#include <postern/products.h>
#include <postern/random.h>

#include <sstream>

namespace postern {
namespace {

using test::error_of, test::expect_error, test::has;

TEST(Mistakes, AMissingReturnIsSaid) {
  expect_error<TypeError>([] { jit([](Tensor x) { static_cast<void>(x + 1.0f); })(1.0f); },
                          {"jit", "return", "mistakes_test.cc:"});
  EXPECT_NO_THROW(jit([](Tensor x) { tap(x, [](float) {}); })(1.0f));
  EXPECT_NO_THROW(jit([](Tensor x) { hook("x", x); })(1.0f)) << "somebody may listen";
  EXPECT_NO_THROW(jit([](Tensor) { return std::vector<Tensor>(); })(1.0f));
}

TEST(Mistakes, BranchesThatDifferAreNamed) {
  const auto f = [](Tensor i, Tensor x) {
    return switch_(
        i,
        std::tuple{[](Tensor) { return 1.5f; }, [](Tensor v) { return convert(v, DType::f64); },
                   [](Tensor v) { return convert(v, DType::s32); }},
        x);
  };
  expect_error<TypeError>([&] { jit(f)(1, Tensor(2.0f)); },
                          {"switch_: result 0 is f64[] in branch 1 and s32[] in branch 2"});
}

TEST(Mistakes, SlicesThatDoNotFitAreSaidAsTheyWereAsked) {
  const Tensor x = zeros(type<float>({2, 5}));
  expect_error<TypeError>([&] { slice_axis(x, -1, -7, 3); },
                          {"slice_axis: [-7:3:1] on axis -1 does not fit f32[2,5]"});
  expect_error<TypeError>([&] { slice_axis(x, 1, 3, 2); }, {"[3:2:1] on axis 1"});
  expect_error<TypeError>([&] { slice_axis(x, 1, 0, 6); }, {"[0:6:1]"});
  expect_error<TypeError>([&] { slice_axis(x, 1, 0, 5, 0); }, {"[0:5:0]"});
}

struct Net {
  Tensor w, b;
};

TEST(Mistakes, AnEmptyTensorIsNamedWithItsPath) {
  auto f = jit([](Tensor x, Net net) { return x * net.w + net.b; });
  const Tensor one(1.0f);
  expect_error<TypeError>([&] { f(one, Net{one, {}}); }, {"argument 1.b", "empty"});
  expect_error<TypeError>([&] { f(Tensor(), Net{one, one}); }, {"argument 0 is", "empty"});
  auto g = jit([](std::vector<Net> nets) { return nets[0].w; });
  expect_error<TypeError>(
      [&] {
        g(std::vector<Net>{{one, one}, {Tensor(), one}});
      },
      {"argument 0[1].w"});
}

TEST(Mistakes, ATracedTensorInAStreamIsItsType) {
  std::ostringstream out;
  jit([&](Tensor x) {
    out << x;
    expect_error<TypeError>([&] { static_cast<void>(to_string(x)); },
                            {"traced", "f32[2]", "pn::print", "mistakes_test.cc:"});
    return x;
  })(ones(type<float>({2})));
  EXPECT_TRUE(out.str().starts_with("Traced f32[2]") && has(out.str(), "pn::print")) << out.str();
}

TEST(Mistakes, AnArgumentThatIsTracedIsNamed) {
  jit([&](Tensor, Tensor y) {
    expect_error<TypeError>([&] { y.to_vector<float>(); },
                            {"f32[2]", "argument leaf 1 of jit", "mistakes_test.cc:"});
    return y;
  })(1.0f, ones(type<float>({2})));
}

TEST(Mistakes, AssigningOperatorsNameTheUsersLine) {
  const auto wrong = [](auto act) {
    Tensor a = ones(type<float>({2}));
    expect_error<TypeError>([&] { act(a, ones(type<float>({3}))); }, {"mistakes_test.cc:"});
  };
  wrong([](Tensor& a, Tensor b) { a += b; });
  wrong([](Tensor& a, Tensor b) { a -= b; });
  wrong([](Tensor& a, Tensor b) { a *= b; });
  wrong([](Tensor& a, Tensor b) { a /= b; });
}

TEST(Mistakes, AFailureDeepInsideIsSaidOnce) {
  std::function<float(float)> inner;
  auto f = jit([&](Tensor x) {
    return call(
        {.name = "deeper"}, x.type(), [&](float v) { return inner(v); }, x);
  });
  inner = [&](float v) {
    if (v >= 5) throw std::runtime_error("the cause");
    return f(v + 1).item<float>();
  };
  const auto e = error_of<CallbackError>([&] { f(0.0f).item<float>(); });
  ASSERT_TRUE(e);
  const std::string text = e->what();
  EXPECT_TRUE(has(text, "nested 6 deep: the cause")) << text;
  EXPECT_EQ(text.find("'deeper'"), text.rfind("'deeper'")) << text;
}

TEST(Mistakes, CountsOfOneAreSingular) {
  expect_error<TypeError>([] { call(type<float>(), [](float v) { return v; }); },
                          {"takes 1 parameter, ", "gives 0 operands"});
}

TEST(Mistakes, EinsumNamesTheLetter) {
  const Tensor a = ones(type<float>({2, 3})), b = ones(type<float>({4, 5}));
  expect_error<TypeError>([&] { einsum("ij,jk->ik", {a, b}); }, {"'j'", "3 and 4"});
  expect_error<TypeError>([&] { einsum("ij->iq", {a}); }, {"'q'", "no operand"});
  expect_error<TypeError>([&] { einsum("ij->ii", {a}); }, {"'i' twice"});
  expect_error<TypeError>([&] { einsum("ijk->i", {a}); },
                          {"\"ijk\"", "3 axes", "f32[2,3]", "has 2"});
  expect_error<TypeError>([&] { einsum("ij,jk->ik", {a}); }, {"2 operands", "given are 1"});
}

TEST(Mistakes, ASeedIsNoKey) {
  expect_error<TypeError>([] { random::normal(42, type<float>({2})); },
                          {"pn::random::key(42)", "s32[]", "mistakes_test.cc:"});
}

TEST(Mistakes, FunctionsOfTheLibraryAreTakenAsTheyAre) {
  EXPECT_EQ(grad(postern::sin)(0.0f).item<float>(), 1);
  EXPECT_EQ(jit(postern::negative)(2.0f).item<float>(), -2);
  EXPECT_EQ(jit(maximum)(2.0f, 3).item<float>(), 3);
  EXPECT_EQ(vmap(square)(ones(type<float>({3}))).dims(), Dims{3});
  EXPECT_EQ(jvp(postern::sin, Tensor(0.0f), Tensor(2.0f)).second.item<float>(), 2);
}

TEST(Mistakes, AxesOfReductionsMayBeNumbersAndLists) {
  const Tensor x = tensor<float>({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(sum(x, 1).to_vector<float>(), (std::vector<float>{6, 15}));
  EXPECT_EQ(sum(x, {.axes = {1}}).to_vector<float>(), (std::vector<float>{6, 15}));
  EXPECT_EQ(sum(x, {.axes = {0, 1}}).item<float>(), 21);
  EXPECT_EQ(sum(x, {.axes = 0, .keep_dims = true}).dims(), (Dims{1, 3}));
  EXPECT_EQ(sum(x, {}).item<float>(), 21);
  EXPECT_EQ(max(x, -1).to_vector<float>(), (std::vector<float>{3, 6}));
  EXPECT_EQ(mean(x, std::int64_t{0}).dims(), Dims{3});
  EXPECT_EQ(prod(x, 0).dims(), Dims{3});
  EXPECT_EQ(min(x, 0).to_vector<float>(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(all(x > 0.0f, 1).dims(), Dims{2});
  EXPECT_EQ(any(x > 0.0f, 0).dims(), Dims{3});
  EXPECT_EQ(logsumexp(x, 0).dims(), Dims{3});
  expect_error<TypeError>([&] { sum(x, 2); }, {"sum", "mistakes_test.cc:"});
}

}  // namespace
}  // namespace postern
