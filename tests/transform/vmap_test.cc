// vmap: axes, and what calls and taps do under it.
#include "vmap_test.h"

namespace postern {
namespace {

using test::both_modes, test::Seen, test::expect_error;
using Floats = std::vector<float>;
using Ints = std::vector<int>;
using Strings = std::vector<std::string>;
using Shapes = std::vector<Dims>;

TEST(Vmap, AxesOfContainers) {
  auto f = [](std::tuple<Tensor, std::map<std::string, Tensor>> p, Tensor s) {
    return std::pair{std::get<0>(p) * s, std::get<1>(p).at("b") + s};
  };
  const std::tuple p{tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3}),
                     std::map<std::string, Tensor>{{"b", tensor<float>({10, 20, 30}, {3, 1})}}};
  const auto [x, y] = jit(vmap(f, {.in_axes = {{1, 0}, unmapped}, .out_axes = {-1, 0}}))(p, 2.0f);
  EXPECT_EQ(to_string(x.type()), "f32[2,3]");
  EXPECT_EQ(x.to_vector<float>(), (Floats{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(y.to_vector<float>(), (Floats{12, 22, 32}));
  const Tensor row = tensor<float>({1, 2, 3});
  EXPECT_EQ(
      to_string(vmap([](Tensor a, Tensor b) { return a * b; }, {.in_axes = {0, unmapped}})(row, row)
                    .type()),
      "f32[3,3]");
  EXPECT_EQ(vmap([](Tensor a) { return a + 1; }, {.in_axes = unmapped, .axis_size = 2})(1.0f)
                .to_vector<float>(),
            (Floats{2, 2}));
  const auto [mapped, same] = vmap(
      [](Tensor a, Tensor b) {
        return std::tuple{a, b};
      },
      {.in_axes = {0, unmapped}, .out_axes = {0, unmapped}})(row, 2.0f);
  EXPECT_EQ(to_string(same.type()), "f32[]");
  const std::vector<Tensor> many =
      vmap([](std::vector<Tensor> v) { return v; },
           {.in_axes = {{0, unmapped}}, .out_axes = {0, 0}})(std::vector{row, row});
  EXPECT_EQ(to_string(many[1].type()), "f32[3,3]");
}

TEST(Vmap, WrongAxesAreRefused) {
  auto id = [](Tensor a) { return a; };
  auto two = [](Tensor a, Tensor b) { return a + b; };
  const Tensor x = zeros(type<float>({2, 3}));
  expect_error<TypeError>([&] { vmap(id, {.in_axes = 2})(x); },
                          {"in_axes", "leaf 0", "out of range", "f32[2,3]", "vmap_test.cc"});
  expect_error<TypeError>([&] { vmap(two)(x, zeros(type<float>({4}))); },
                          {"leaf 1", "f32[4]", "2 elements", "leaf 0"});
  expect_error<TypeError>([&] { vmap(two, {.in_axes = {0}})(x, x); },
                          {"in_axes", "1 axes", "2 parts"});
  expect_error<TypeError>(
      [&] {
        vmap(id, {.in_axes = {{0, 1}}})(x);
      },
      {"in_axes[0]", "single value"});
  expect_error<TypeError>([&] { vmap(id, {.in_axes = unmapped})(x); }, {"axis_size"});
  expect_error<TypeError>([&] { vmap(id, {.axis_size = 5})(x); }, {"5 elements", "axis_size"});
  expect_error<TypeError>([&] { vmap(id, {.out_axes = unmapped})(x); }, {"out_axes", "result 0"});
  expect_error<TypeError>([&] { vmap(id, {.out_axes = 2})(x); }, {"out_axes", "out of range"});
}

TEST(Vmap, CallsRunForEachElementInOrder) {
  RecordProperty("covers", "VMAP-01 VMAP-02 VMAP-08");
  for (const Effect effect : {Effect::pure, Effect::unordered, Effect::ordered})
    for (const Mode mode : both_modes) {
      Floats seen;
      Ints elements;
      auto f = jit(vmap([&](Tensor x) {
                     return call(
                         {.effect = effect}, x.type(),
                         [&](const CallInfo& info, float a) {
                           seen.push_back(a);
                           elements.push_back(int(info.element));
                           return std::sin(a);
                         },
                         x);
                   }),
                   {.mode = mode});
      const Floats got = f(tensor<float>({0, 1, 2, 3})).to_vector<float>();
      for (int i = 0; i < 4; ++i) EXPECT_NEAR(got[std::size_t(i)], std::sin(float(i)), 1e-6);
      EXPECT_EQ(seen, (Floats{0, 1, 2, 3}));
      EXPECT_EQ(elements, (Ints{0, 1, 2, 3}));
      f(tensor<float>({0, 1, 2, 3}));
      EXPECT_EQ(seen.size(), 8u);
    }
}

TEST(Vmap, MethodsDefineWhatIsSeen) {
  RecordProperty("covers", "VMAP-03 VMAP-06");
  auto run = [](VmapMethod method, Shapes& seen) {
    auto f = [&seen, method](Tensor x, Tensor y) {
      return call(
          {.vmap = method}, x.type(),
          [&seen](AnyView a, AnyView b, AnyMutableView out) {
            seen = {Dims(a.dims().begin(), a.dims().end()), Dims(b.dims().begin(), b.dims().end())};
            for (std::int64_t i = 0; i < a.size(); ++i)
              out.as<float>()[i] = a.as<float>()[i] + b.as<float>()[i % b.size()];
          },
          x, y);
    };
    return jit(vmap(f, {.in_axes = {0, unmapped}}))(tensor<float>({1, 2, 3, 4}), 10.0f)
        .to_vector<float>();
  };
  Shapes seen;
  EXPECT_EQ(run(VmapMethod::expand_dims, seen), (Floats{11, 12, 13, 14}));
  EXPECT_EQ(seen, (Shapes{{4}, {1}}));
  EXPECT_EQ(run(VmapMethod::broadcast_all, seen), (Floats{11, 12, 13, 14}));
  EXPECT_EQ(seen, (Shapes{{4}, {4}}));
  EXPECT_EQ(run(VmapMethod::sequential, seen), (Floats{11, 12, 13, 14}));
  EXPECT_EQ(seen, (Shapes{{}, {}}));
  auto sums = [](Tensor x) {
    return call(
        {.vmap = VmapMethod::broadcast_all}, x.type(),
        [](View<const float> a) {
          float total = 0;
          for (const float v : a) total += v;
          return total;
        },
        x);
  };
  const auto e = test::error_of<CallbackError>([&] {
    jit(vmap(sums))(tensor<float>({1, 2, 3, 4})).to_vector<float>();
  });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->code(), ErrorCode::bad_result);
  EXPECT_TRUE(test::has(e->what(), "f32[4]") && test::has(e->what(), "f32[]")) << e->what();
}

TEST(Vmap, NestedVmapsCompose) {
  RecordProperty("covers", "VMAP-05");
  const Tensor x = tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  for (const VmapMethod method : {VmapMethod::sequential, VmapMethod::parallel,
                                  VmapMethod::broadcast_all, VmapMethod::expand_dims}) {
    std::atomic<int> fired = 0;
    auto f = [&](Tensor v) {
      return call(
          {.vmap = method}, v.type(),
          [&](AnyView a, AnyMutableView out) {
            ++fired;
            for (std::int64_t i = 0; i < a.size(); ++i) out.as<float>()[i] = 2 * a.as<float>()[i];
          },
          v);
    };
    const Floats want{2, 4, 6, 8, 10, 12};
    EXPECT_EQ(jit(vmap(vmap(f)))(x).to_vector<float>(), want);
    EXPECT_EQ(fired, method == VmapMethod::sequential || method == VmapMethod::parallel ? 6 : 1);
    EXPECT_EQ(vmap(jit(vmap(f)))(x).to_vector<float>(), want);
    EXPECT_EQ(jit(vmap(vmap(f, {.in_axes = 0, .out_axes = 0}), {.in_axes = 1, .out_axes = 1}))(x)
                  .to_vector<float>(),
              want);
  }
  Floats order;
  auto g = [&](Tensor v) {
    return call(
        {.effect = Effect::ordered}, v.type(),
        [&](float a) {
          order.push_back(a);
          return a;
        },
        v);
  };
  jit(vmap(vmap(g)))(x);
  EXPECT_EQ(order, (Floats{1, 2, 3, 4, 5, 6})) << "the last axis fastest";
}

TEST(Vmap, ParallelCallsFailAsSingleOnes) {
  std::atomic<bool> fails = true;
  const auto text_of = [&](VmapMethod method, Mode mode) {
    const auto one = [&](Tensor x) {
      return call(
          {.name = "picky", .vmap = method}, x.type(),
          [&](float a) {
            if (a == 3 && fails) throw std::out_of_range("not three");
            return 2 * a;
          },
          x);
    };
    fails = true;
    auto f = jit(vmap(one), {.mode = mode});
    const auto e = test::error_of<CallbackError>([&] { f(iota<float>(8)).block_until_ready(); });
    if (!e) return std::string();
    EXPECT_EQ(e->code(), ErrorCode::threw);
    EXPECT_THROW(std::rethrow_exception(e->cause()), std::out_of_range);
    fails = false;
    EXPECT_EQ(f(iota<float>(8)).to_vector<float>(), (Floats{0, 2, 4, 6, 8, 10, 12, 14}))
        << "the next run works";
    return std::string(e->what());
  };
  const std::string text = text_of(VmapMethod::sequential, Mode::automatic);
  EXPECT_TRUE(test::has(text, "picky") && test::has(text, "not three")) << text;
  for (const Mode mode : both_modes) EXPECT_EQ(text_of(VmapMethod::parallel, mode), text);
}

// Elements that fail at the same time: it does not matter which one is faster.
TEST(Vmap, OfElementsSideBySideTheLowestThatFailsIsTold) {
  const auto f = jit(vmap([](Tensor x) {
    return call(
        {.vmap = VmapMethod::parallel}, x.type(),
        [](float v) {
          if (v < 3) return v;
          if (v < 9) std::this_thread::sleep_for(std::chrono::milliseconds(30 - 3 * int(v)));
          throw std::runtime_error("element " + std::to_string(int(v)));
        },
        x);
  }));
  for (int i = 0; i < 20; ++i) {
    const auto e = test::error_of<CallbackError>([&] { f(iota<float>(32)).block_until_ready(); });
    ASSERT_TRUE(e);
    EXPECT_TRUE(test::has(e->what(), "element 3")) << e->what();
    EXPECT_EQ(e->count(), 1u) << e->what();
  }
}

TEST(Vmap, UnmappedCallsAndEmptyBatches) {
  RecordProperty("covers", "VMAP-07");
  for (const Mode mode : both_modes) {
    int fired = 0;
    Shapes seen;
    auto with = [&](VmapMethod method, Effect effect) {
      return [&, method, effect](Tensor x, Tensor y) {
        return x + call(
                       {.effect = effect, .vmap = method}, y.type(),
                       [&](AnyView a, AnyMutableView out) {
                         ++fired;
                         seen.push_back(Dims(a.dims().begin(), a.dims().end()));
                         for (std::int64_t i = 0; i < a.size(); ++i)
                           out.as<float>()[i] = a.as<float>()[i];
                       },
                       y);
      };
    };
    auto run = [&](auto f, Axes y_axes, Tensor x, Tensor y) {
      const Tensor got = jit(vmap(f, {.in_axes = {0, y_axes}}), {.mode = mode})(x, y);
      return got.to_vector<float>();
    };
    const Tensor x = tensor<float>({1, 2, 3});
    EXPECT_EQ(run(with(VmapMethod::sequential, Effect::pure), unmapped, x, Tensor(5.0f)),
              (Floats{6, 7, 8}));
    EXPECT_EQ(fired, 1);
    fired = 0;
    EXPECT_EQ(run(with(VmapMethod::sequential, Effect::unordered), unmapped, x, Tensor(5.0f)),
              (Floats{6, 7, 8}));
    EXPECT_EQ(fired, 3) << "an effect is wanted from each element";
    fired = 0;
    const Tensor none = zeros(type<float>({0}));
    EXPECT_EQ(run(with(VmapMethod::sequential, Effect::pure), 0, none, none), Floats());
    EXPECT_EQ(fired, 0);
    seen.clear();
    EXPECT_EQ(run(with(VmapMethod::broadcast_all, Effect::pure), 0, none, none), Floats());
    EXPECT_EQ(seen, (Shapes{{0}}));
  }
}

TEST(Vmap, TapsSeeTheWholeBatch) {
  RecordProperty("covers", "VMAP-10");
  for (const Mode mode : both_modes) {
    Seen seen;
    auto f = jit(vmap([&](Tensor a) {
                   const Tensor y = tap(2.0f * a, seen.shows());
                   return tap(3.0f * y, seen.shows());
                 }),
                 {.mode = mode});
    f(tensor<float>({4, 5}));
    EXPECT_EQ(seen.lines, (Strings{"[8 10] batch(0)", "[24 30] batch(0)"}));
    seen.lines.clear();
    jit(vmap(
            [&](Tensor a, Tensor y) {
              return tap(std::pair{a, y}, seen.shows());
            },
            {.in_axes = {unmapped, 0}}),
        {.mode = mode})(3.0f, tensor<float>({4, 5}));
    EXPECT_EQ(seen.lines, (Strings{"[3],[4 5] batch(none,0)"}));
    seen.lines.clear();
    jit(vmap(grad([&](Tensor x) { return tap({.derivatives = true}, x * x, seen.shows()); })),
        {.mode = mode})(tensor<float>({1, 2}));
    EXPECT_EQ(seen.lines, (Strings{"[1 4] batch(0)", "[1 1] jvp,transpose,batch(0)"}));
    barrier();
  }
}

/// A function that must not see negative numbers.
Tensor careful(Tensor x, float (*fn)(float)) {
  return call(
      x.type(),
      [fn](float a) {
        if (a < 0) throw std::domain_error("negative");
        return fn(a);
      },
      x);
}
Tensor root(Tensor x) {
  return careful(
      x, +[](float a) { return std::sqrt(a); });
}
Tensor root_slope(Tensor x) {
  return careful(
      x, +[](float a) { return 0.5f / std::sqrt(a); });
}

Floats floats(const Tensor& t) { return t.to_vector<float>(); }

TEST(Vmap, RulesOfOnesOwnKeepTheMask) {
  auto jvp_root = custom_jvp(root, [](std::tuple<Tensor> x, std::tuple<Tensor> t) {
    return std::pair{root(std::get<0>(x)), root_slope(std::get<0>(x)) * std::get<0>(t)};
  });
  auto vjp_root = custom_vjp(
      root,
      [](Tensor x) {
        return std::pair{root(x), x};
      },
      [](Tensor x, Tensor ct) { return root_slope(x) * ct; });
  auto host_root = [](Tensor x) {
    return call_with_vjp(
        x.type(),
        [](float a) {
          if (a < 0) throw std::domain_error("negative");
          return std::sqrt(a);
        },
        [](float a, float y, float ct, View<float> out) {
          if (a < 0) throw std::domain_error("negative");
          out[0] = 0.5f / y * ct;
        },
        x);
  };
  auto scaled = [](Tensor x) {
    return linear_call([](Tensor s, Tensor v) { return v * root(s); },
                       [](Tensor s, Tensor ct) { return ct * root(s); }, stop_gradient(x), x);
  };
  const Tensor xs = tensor<float>({-1, 4, -9, 16});
  auto test = [&](auto f, Floats values, Floats slopes) {
    auto guarded = [f](Tensor x) {
      return cond(
          x > 0.0f, f, [](Tensor v) { return -v; }, x);
    };
    auto looped = [f](Tensor x) {
      return std::get<0>(while_loop([](Tensor v, Tensor i) { return logical_and(v > 1.5f, i < 1); },
                                    [f](Tensor v, Tensor i) {
                                      return std::tuple{f(v), i + 1};
                                    },
                                    std::tuple{x, 0}));
    };
    EXPECT_EQ(floats(jit(vmap(guarded))(xs)), values);
    EXPECT_EQ(floats(jit(vmap(looped))(xs))[1], values[1]);
    EXPECT_EQ(floats(jit(vmap(grad(guarded)))(xs)), slopes) << "vmap of grad";
    EXPECT_EQ(floats(jit(grad([&](Tensor x) { return sum(vmap(guarded)(x)); }))(xs)), slopes)
        << "grad of vmap";
    const Tensor square = reshape(xs, {2, 2});
    EXPECT_EQ(floats(jit(grad([&](Tensor x) { return sum(vmap(vmap(guarded))(x)); }))(square)),
              slopes)
        << "twice";
    auto kept = checkpoint(guarded);
    EXPECT_EQ(floats(jit(grad([&](Tensor x) { return sum(vmap(kept)(x)); }))(xs)), slopes)
        << "checkpoint";
  };
  test(jvp_root, {1, 2, 9, 4}, {-1, 0.25, -1, 0.125});
  test(vjp_root, {1, 2, 9, 4}, {-1, 0.25, -1, 0.125});
  test(host_root, {1, 2, 9, 4}, {-1, 0.25, -1, 0.125});
  test(scaled, {1, 8, 9, 64}, {-1, 2, -1, 4});
}

TEST(Vmap, SignaturesOfCoreDimensions) {
  RecordProperty("covers", "VMAP-16");
  int fired = 0;
  auto dot = vectorize(
      [&](Tensor a, Tensor b) {
        return call(
            {.vmap = VmapMethod::expand_dims}, type<float>(),
            [&](AnyView x, AnyView y, AnyMutableView out) {
              ++fired;
              for (std::int64_t i = 0; i < out.size(); ++i) {
                out.as<float>()[i] = 0;
                for (std::int64_t k = 0; k < 3; ++k)
                  out.as<float>()[i] += x.as<float>()[i * 3 + k] * y.as<float>()[k];
              }
            },
            a, b);
      },
      "(n),(n)->()");
  const Tensor rows = tensor<float>({1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1}, {4, 3}),
               v = tensor<float>({1, 2, 3});
  EXPECT_EQ(jit(dot)(rows, v).to_vector<float>(), (Floats{1, 2, 3, 6}));
  EXPECT_EQ(fired, 1);
  expect_error<TypeError>(
      [&] {
        dot(rows, tensor<float>({1, 2}));
      },
      {"'n'", "(n),(n)->()", "2", "3", "vmap_test.cc"});
  auto outer = vectorize(
      [](Tensor a, Tensor m) {
        return std::tuple{matmul(m, a), sum(a)};
      },
      "(k), (n,k) -> (n), ()");
  const auto [y, s] = outer(ones(type<float>({2, 1, 3})), ones(type<float>({5, 4, 3})));
  EXPECT_EQ(to_string(y.type()), "f32[2,5,4]");
  EXPECT_EQ(to_string(s.type()), "f32[2,5]");
  auto wrong = [&](const char* signature) {
    return [=] { vectorize([](Tensor a) { return a; }, signature)(zeros(type<float>({2, 3}))); };
  };
  expect_error<TypeError>(wrong("(n)->"), {"'('", "(n)->"});
  expect_error<TypeError>(wrong("(n),(m)->()"), {"2 arguments", "got 1"});
  expect_error<TypeError>(wrong("(n)->()"), {"result 0", "0 axes", "f32[3]"});
  expect_error<TypeError>(wrong("(a,b,c)->()"), {"fewer axes", "f32[2,3]"});
}

TEST(Vmap, ResultsHaveTheCoreDimensionsOfTheSignature) {
  const Tensor x = tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  auto first_two = [](Tensor v) { return v[{0, 2}]; };
  for (const Tensor& v : {x, reshape(x, {6})})  // mapped or not
    expect_error<TypeError>([&] { vectorize(first_two, "(n)->(n)")(v); },
                            {"'n'", "(n)->(n)", "2 in result 0", "vmap_test.cc"});
  EXPECT_EQ(vectorize(first_two, "(n)->(m)")(x).to_vector<float>(), (Floats{1, 2, 4, 5}))
      << "a name of the results alone";
  auto both = [](Tensor a, Tensor b) { return std::pair{a + b, b}; };
  expect_error<TypeError>([&] { vectorize(both, "(n),(k)->(k),(k)")(x, ones(type<float>({1}))); },
                          {"'k'", "3 in result 0 and 1 before"});
  auto halves = [](Tensor v) { return std::pair{v[{0, 1}], v[{1, 3}]}; };
  expect_error<TypeError>([&] { vectorize(halves, "(n)->(m),(m)")(x); },
                          {"'m'", "2 in result 1 and 1 before"});
}

TEST(Vmap, OneCallInTheProgramForAnyNumberOfElements) {
  RecordProperty("covers", "VMAP-12");
  Strings said;
  auto f = jit(vmap([&](Tensor x) {
    return call(
        {.name = "hello", .effect = Effect::ordered}, x.type(),
        [&](const CallInfo& info, float a) {
          said.push_back("hello: " + std::to_string(info.element));
          return a;
        },
        x);
  }));
  f(tensor<float>({0, 1})).block_until_ready();
  EXPECT_EQ(said, (Strings{"hello: 0", "hello: 1"}));
  const auto calls = [&](std::int64_t n) {
    const std::string text = f.lower(abstract(type<float>({n}))).stablehlo(), call = "postern_call";
    int count = 0;
    for (std::size_t at = 0; (at = text.find(call, at)) != std::string::npos; at += call.size())
      ++count;
    return count;
  };
  EXPECT_EQ(calls(2), 1);
  EXPECT_EQ(calls(1000), 1);
}

TEST(Vmap, PerElementMatricesAndConstants) {
  // Operations that each row of the batch does by itself, with captured and unmapped operands.
  const Tensor w = tensor<float>({1, 2, 3, 4}, {2, 2});
  auto f = [&](Tensor x) { return matmul(w, x) + sum(w, {.axes = Dims{0}}) * x; };
  const Tensor xs = tensor<float>({1, 0, 0, 1, 2, 3}, {3, 2});
  const Tensor got = jit(vmap(f))(xs);
  for (std::int64_t i = 0; i < 3; ++i)
    EXPECT_EQ(slice_axis(got, 0, i, i + 1).to_vector<float>(),
              f(reshape(slice_axis(xs, 0, i, i + 1), {2})).to_vector<float>());
}

}  // namespace
}  // namespace postern
