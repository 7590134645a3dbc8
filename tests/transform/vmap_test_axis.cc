// Collectives between the elements of a vmap with an axis_name; values as JAX 0.10 gives them.
#include "support.h"

namespace postern {
namespace {

using test::both_modes, test::expect_error;
using Doubles = std::vector<double>;
using Ints = std::vector<int>;

Tensor counting(Dims dims) {
  const std::int64_t n = make_type(DType::f64, dims).size();
  return reshape(iota<double>(n), std::move(dims));
}
Tensor three() { return tensor<double>({1, 2, 3}); }

template <class F>
auto over_i(F f) {
  return vmap(std::move(f), {.axis_name = "i"});
}

void expect_values(const Tensor& got, const Doubles& want) {
  const Doubles values = got.to_vector<double>();
  ASSERT_EQ(values.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(values[i], want[i], 1e-12 * (1 + std::abs(want[i]))) << "[" << i << "]";
}

/// At once, compiled and evaluated.
template <class F>
void expect_all(F f, const Tensor& x, const Doubles& want) {
  expect_values(f(x), want);
  for (const Mode mode : both_modes) expect_values(jit(f, {.mode = mode})(x), want);
}

TEST(VmapAxis, CollectivesAreThoseOfJax) {
  expect_all(over_i([](Tensor x) { return psum(x, "i"); }), three(), {6, 6, 6});
  expect_all(over_i([](Tensor x) { return x - pmean(x, "i"); }), three(), {-1, 0, 1});
  expect_all(over_i([](Tensor x) { return pmax(x, "i") * 10.0 + pmin(x, "i"); }), three(),
             {31, 31, 31});
  expect_all(over_i([](Tensor) { return psum(1.0, "i"); }), three(), {3, 3, 3});
  expect_all(vmap([](Tensor x) { return psum(x, "i"); }, {.out_axes = unmapped, .axis_name = "i"}),
             three(), {6});
  expect_all(over_i([](Tensor x) { return x + convert(axis_index("i"), DType::f64); }), three(),
             {1, 3, 5});
  expect_all(over_i([](Tensor x) { return x * static_cast<double>(axis_size("i")); }), three(),
             {3, 6, 9});
  const Tensor rows = counting({3, 2});
  expect_all(
      [&](Tensor v) { return take(over_i([](Tensor x) { return all_gather(x, "i", 1); })(v), 2); },
      rows, {0, 2, 4, 1, 3, 5});
  expect_all(
      [&](Tensor v) {
        return take(over_i([](Tensor x) { return all_gather(x, "i", 0, true); })(v), 0);
      },
      rows, {0, 1, 2, 3, 4, 5});
  expect_all(over_i([](Tensor x) { return all_to_all(x, "i", 0, 0); }), counting({3, 6}),
             {0, 1, 6, 7, 12, 13, 2, 3, 8, 9, 14, 15, 4, 5, 10, 11, 16, 17});
  expect_all(over_i([](Tensor x) { return all_to_all(x, "i", 0, 1); }), counting({3, 3, 2}),
             {0, 1, 6, 7, 12, 13, 2, 3, 8, 9, 14, 15, 4, 5, 10, 11, 16, 17});
  expect_all(over_i([](Tensor x) { return reduce_scatter(x, "i", 0, true); }), counting({3, 6}),
             {18, 21, 24, 27, 30, 33});
  expect_all(over_i([](Tensor x) { return reduce_scatter(x, "i"); }), counting({3, 3}),
             {9, 12, 15});
  expect_all(over_i([](Tensor x) {
               return ppermute(x, "i", {{0, 1}, {1, 2}, {2, 0}});
             }),
             three(), {3, 1, 2});
  expect_all(over_i([](Tensor x) { return ppermute(x, "i", {{0, 2}}); }), three(), {0, 0, 1});
  EXPECT_EQ(over_i([](Tensor x) { return psum(x, "i"); })(tensor<std::int8_t>({1, 2, 3}))
                .to_vector<std::int8_t>(),
            (std::vector<std::int8_t>{6, 6, 6}));
  EXPECT_EQ(to_string(over_i([](Tensor x) { return psum(x, "i"); })(counting({0, 2})).type()),
            "f64[0,2]");
  // Another axis of the argument, and of the result.
  expect_all(vmap([](Tensor x) { return x - psum(x, "i"); },
                  {.in_axes = 1, .out_axes = 1, .axis_name = "i"}),
             counting({2, 3}), {-3, -2, -1, -9, -8, -7});
}

TEST(VmapAxis, DerivativesAreThoseOfJax) {
  auto each = [](auto f) { return over_i(grad(f)); };
  expect_all(each([](Tensor x) { return psum(x * x, "i"); }), three(), {6, 12, 18});
  expect_all(each([](Tensor x) { return x * pmean(x, "i"); }), three(), {4, 4, 4});
  auto index = [] { return convert(axis_index("i"), DType::f64); };
  expect_all(each([=](Tensor x) {
               return ppermute(x * x, "i", {{0, 1}, {1, 2}, {2, 0}}) * index();
             }),
             three(), {2, 8, 0});
  expect_all(each([=](Tensor x) {
               return sum(all_gather(x * x, "i") * iota<double>(3)) * (1.0 + index());
             }),
             three(), {0, 24, 72});
  expect_all(each([=](Tensor x) {
               return sum(all_to_all(x * x, "i", 0, 0) * iota<double>(3)) * (1.0 + index());
             }),
             counting({3, 3}), {0, 0, 0, 6, 16, 30, 24, 56, 96});
  expect_all(each([=](Tensor x) { return reduce_scatter(x * x, "i") * (1.0 + index()); }),
             counting({3, 3}), {0, 4, 12, 6, 16, 30, 12, 28, 48});
  expect_all(grad([](Tensor v) {
               return take(over_i([](Tensor x) { return x * psum(x * x, "i"); })(v), 1);
             }),
             three(), {4, 22, 12});
  expect_all(jacfwd(over_i([](Tensor x) { return x / psum(x, "i"); })), three(),
             {5.0 / 36, -1.0 / 36, -1.0 / 36, -1.0 / 18, 1.0 / 9, -1.0 / 18, -1.0 / 12, -1.0 / 12,
              1.0 / 12});
  // Those that have the greatest value share its cotangent.
  expect_all(each([](Tensor x) { return x * pmax(x, "i"); }), tensor<double>({1, 3, 3}),
             {3, 6.5, 6.5});
  // Rules of one's own, traced when the vmap is over. Each element has its own cotangent, as in
  // shard_map; JAX adds them up first where it sees that all results are the same.
  auto own = custom_vjp([](Tensor x) { return psum(x * x, "i"); },
                        [](Tensor x) {
                          return std::pair{psum(x * x, "i"), x};
                        },
                        [](Tensor x, Tensor ct) { return 10.0 * psum(ct * x, "i"); });
  expect_all(
      grad([=](Tensor v) { return sum(over_i([=](Tensor x) { return own(x) * index(); })(v)); }),
      three(), {80, 80, 80});
  auto forward =
      custom_jvp([](Tensor x) { return psum(x, "i"); },
                 [](auto x, auto dx) {
                   return std::pair{psum(std::get<0>(x), "i"), 2.0 * psum(std::get<0>(dx), "i")};
                 });
  expect_all(grad([=](Tensor v) { return sum(over_i(forward)(v)); }), three(), {6, 6, 6});
}

TEST(VmapAxis, NestedAndInControlFlow) {
  auto nested = [](auto f) { return vmap(vmap(f, {.axis_name = "j"}), {.axis_name = "i"}); };
  const Tensor m = counting({2, 3});
  expect_all(nested([](Tensor x) { return x - psum(x, "j") + 10.0 * psum(x, "i"); }), m,
             {27, 48, 69, 21, 42, 63});
  expect_all(nested([](Tensor x) { return psum(x, {"i", "j"}); }), m, Doubles(6, 15));
  expect_all(nested([](Tensor) {
               return convert(axis_index({"i", "j"}), DType::f64);
             }),
             m, {0, 1, 2, 3, 4, 5});
  expect_all(nested([](Tensor x) { return take(all_gather(x, {"i", "j"}), 4); }), m, Doubles(6, 4));
  expect_all(nested([](Tensor x) {
               return sum(x * all_gather(x, {"j", "i"}));
             }),
             tensor<double>({1, 2, 3, 4, 5, 6}, {2, 3}), {21, 42, 63, 84, 105, 126});
  expect_all(nested([](Tensor x) {
               return reduce_scatter(x * (1.0 + iota<double>(6)), {"i", "j"});
             }),
             m, {15, 30, 45, 60, 75, 90});
  // The inner one hides the outer one.
  expect_all(over_i([](Tensor x) {
               return sum(over_i([](Tensor y) { return psum(y, "i"); })(stack({x, x})));
             }),
             three(), {4, 8, 12});
  // A transformation that batches by itself is no axis of that name.
  expect_all(over_i([](Tensor x) {
               return sum(jacfwd([](Tensor v) { return v * psum(v, "i"); })(stack({x, x})));
             }),
             three(), {18, 24, 30});

  auto step = [](Tensor c, Tensor t) {
    const Tensor next = pmean(c * t, "i") + c;
    return std::pair{next, next};
  };
  expect_all(over_i([=](Tensor x) { return scan(step, x, iota<double>(3)).second; }), three(),
             {1, 3, 11, 2, 4, 12, 3, 5, 13});
  auto place = [](Tensor c, Tensor t) {
    return std::pair{c + convert(axis_index("i"), DType::f64), t};
  };
  expect_all(over_i([=](Tensor) { return scan(place, Tensor(0.0), iota<double>(3)).first; }),
             three(), {0, 3, 6});
  expect_all(over_i([](Tensor x) {
               return cond(
                   x > 1.0, [](Tensor v) { return psum(v, "i"); }, [](Tensor v) { return -v; }, x);
             }),
             three(), {-1, 6, 6});
  auto grow = [](Tensor n) {
    auto more = [=](Tensor k, Tensor) { return k < n; };
    auto body = [](Tensor k, Tensor v) { return std::tuple{k + 1.0, v + psum(v, "i")}; };
    return std::get<1>(while_loop(more, body, std::tuple{Tensor(0.0), Tensor(1.0)}));
  };
  expect_all(over_i(grow), three(), {4, 16, 52});
  expect_all(over_i(checkpoint([](Tensor x) { return psum(x, "i"); })), three(), {6, 6, 6});
  expect_all(over_i(jit([](Tensor x) { return psum(x, "i"); })), three(), {6, 6, 6});
}

struct Placed {
  static constexpr std::string_view name = "placed";
};

TEST(VmapAxis, UnknownNamesAreRefused) {
  auto named = [](const char* name) { return [name](Tensor x) { return psum(x, name); }; };
  expect_error<TypeError>([&] { over_i(named("k"))(three()); },
                          {"psum", "no axis 'k'", "'i' (3 of a vmap)", "vmap_test_axis.cc"});
  expect_error<TypeError>(
      [&] {
        vmap(over_i(named("k")), {.axis_name = "j"})(counting({2, 3}));
      },
      {"'i' (3 of a vmap)", "'j' (2 of a vmap)"});
  expect_error<TypeError>([&] { named("i")(three()); }, {"psum", "'i'", "vmap", "shard_map"});
  expect_error<TypeError>([&] { vmap(named("i"))(three()); }, {"psum", "'i'"});
  over_i(named("i"))(three());
  expect_error<TypeError>([&] { jit(named("i"))(three()); }, {"psum", "'i'"});
  expect_error<TypeError>([&] { over_i([](Tensor x) {
                                  return psum(x, {"i", "i"});
                                })(three()); },
                          {"'i'", "twice"});
  expect_error<TypeError>(
      [&] {
        vmap(over_i([](Tensor x) {
               return ppermute(x, {"i", "j"}, {{0, 1}});
             }),
             {.axis_name = "j"})(counting({2, 3}));
      },
      {"ppermute", "'i', 'j'", "alone"});
  expect_error<TypeError>(
      [&] {
        over_i([](Tensor x) { return all_to_all(x, "i", 0, 0); })(counting({3, 4}));
      },
      {"all_to_all", "f64[4]", "divisible by the 3"});
  expect_error<TypeError>(
      [&] {
        over_i([](Tensor x) { return all_to_all(x, "i", 0, 0); })(counting({0, 4}));
      },
      {"all_to_all", "divisible by the 0"});
  expect_error<TypeError>(
      [&] { over_i([](Tensor x) {
              return ppermute(x, "i", {{0, 3}});
            })(three()); },
      {"ppermute", "(0, 3)"});
  // What an override may take the place of depends on its operands alone.
  expect_error<TypeError>(
      [&] {
        over_i([](Tensor x) {
          return x + block(Placed{},
                           [](const Placed&) { return convert(axis_index("i"), DType::f64); });
        })(three());
      },
      {"axis_index", "'i'"});
}

}  // namespace
}  // namespace postern
