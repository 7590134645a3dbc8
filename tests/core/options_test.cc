// Each options struct with one designated field: g++ 12 takes braces with a designator also for a
// string or whatever else takes one value, where an overload has such a parameter.
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "support.h"

namespace postern {
namespace {

Tensor x() { return tensor<float>({1, 2}); }
constexpr auto twice = [](Tensor v) { return v * 2.0f; };
void see(View<const float>) {}
void copy(View<const float> in, View<float> out) { std::ranges::copy(in, out.begin()); }
constexpr auto sum_of = [](Tensor v) { return sum(v); };

TEST(Options, OfWhatIsSeen) {
  const Place here = Place::current();
  EXPECT_EQ(hook({.name = "a"}, x()).dims(), Dims{2});
  EXPECT_EQ(hook({.name = "a"}, x(), here).dims(), Dims{2});
  EXPECT_EQ(hook({.name = "a"}, x(), see).dims(), Dims{2});
  EXPECT_EQ(hook({.ordered = false}, x()).dims(), Dims{2});
  EXPECT_EQ(hook({.derivatives = true}, x(), see).dims(), Dims{2});
  EXPECT_EQ(hook({.every = 2}, x(), see).dims(), Dims{2});
  EXPECT_EQ(hook({.map = sum_of}, x()).dims(), Dims{2});
  EXPECT_EQ(hook({.keep_last = 2}, x()).dims(), Dims{2});
  EXPECT_EQ(hook(std::string("a"), x()).dims(), Dims{2});
  EXPECT_EQ(hook("a", x(), see).dims(), Dims{2});
  for (const auto& name : {std::string("b"), std::string("c")})
    EXPECT_EQ(hook(name, x()).dims(), Dims{2});
  EXPECT_EQ(tap({.name = "a"}, x(), see).dims(), Dims{2});
  EXPECT_EQ(tap({.ordered = false}, x(), see).dims(), Dims{2});
  std::ostringstream out;
  print({.log = [&](const PrintRecord& r) { out << r.text << '|'; }}, "{}", Tensor(2));
  print({.log = [&](const PrintRecord& r) { out << r.text << '|'; }}, "text");
  print_value({.stream = &out}, Tensor(3));
  print({.stream = &out}, std::string("{}"), 4);
  EXPECT_EQ(out.str(), "2|text|s32[] 3\n4\n");
  EXPECT_EQ(print_value({.label = "a"}, x()).dims(), Dims{2});
  print({.label = "a"}, "text");
  print({.every = 2}, "{}", x());
  const std::string file = "/tmp/options_test." + std::to_string(getpid()) + ".npz";
  EXPECT_EQ(listen::Record(file, {.max_bytes = 1 << 20}).recorded(), 0u);
  std::remove(file.c_str());
  EXPECT_TRUE(listen::Histogram({.bins = 4}).counts().empty());
  listen::Progress(3, {.stream = &out});
}

TEST(Options, OfCallsAndPrograms) {
  EXPECT_EQ(call({.name = "a"}, x().type(), copy, x()).dims(), Dims{2});
  EXPECT_EQ(call({.effect = Effect::unordered}, x().type(), copy, x()).dims(), Dims{2});
  EXPECT_EQ(call({.name = "a"}, x().type(), jit(twice), x()).dims(), Dims{2});
  EXPECT_EQ(jit(twice, {.name = "a"})(x()).dims(), Dims{2});
  EXPECT_EQ(jit(twice, {.donate = {}})(x()).dims(), Dims{2});
  EXPECT_EQ(jit(twice).start_with({.context = nullptr}, x()).result().dims(), Dims{2});
  register_function("options_test", copy, {.replace = true});
  EXPECT_TRUE(unregister_function("options_test"));
}

TEST(Options, OfTransformationsAndOperations) {
  EXPECT_EQ(grad(sum_of, {.allow_int = true})(x()).dims(), Dims{2});
  EXPECT_EQ(vmap(twice, {.out_axes = 0})(x()).dims(), Dims{2});
  EXPECT_EQ(checkpoint(twice, {.save = {}})(x()).dims(), Dims{2});
  EXPECT_EQ(sum(x(), {.keep_dims = true}).dims(), Dims{1});
  auto step = [](Tensor c, Tensor v) { return std::pair{c + v, v}; };
  EXPECT_EQ(scan(step, Tensor(0.0f), x(), {.reverse = true}).first.item<float>(), 3);
  auto double_it = [](Tensor c) { return std::pair{c * 2.0f, c}; };
  EXPECT_EQ(scan(double_it, Tensor(1.0f), {.length = 3}).first.item<float>(), 8);
  EXPECT_EQ(max_pool(reshape(x(), {1, 1, 2}), {2}, {.strides = {1}}).dims(), (Dims{1, 1, 1}));
  EXPECT_EQ(reduce_window(Monoid::add, x(), {2}, {.strides = {1}}).dims(), Dims{1});
}

}  // namespace
}  // namespace postern
