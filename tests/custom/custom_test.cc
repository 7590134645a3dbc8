// Functions with derivative rules of their own: custom_jvp, custom_vjp, linear_call, call_with_vjp.
#include <fmt/format.h>

#include "support.h"

namespace postern {
namespace {

using test::expect_error;
using Floats = std::vector<float>;
using Strings = std::vector<std::string>;

Tensor host_cos(Tensor x) {
  return call(
      x.type(), [](float v) { return std::cos(v); }, x);
}

TEST(Custom, JvpMadeOfCalls) {
  RecordProperty("covers", "AD-04");
  auto f = custom_jvp(
      [](Tensor x) {
        return call(
            x.type(), [](float v) { return std::sin(v); }, x);
      },
      [](std::tuple<Tensor> x, std::tuple<Tensor> t) {
        const Tensor v = std::get<0>(x);
        return std::pair{call(
                             v.type(), [](float a) { return std::sin(a); }, v),
                         host_cos(v) * std::get<0>(t)};
      });
  EXPECT_NEAR(grad(f)(Tensor(2.0f)).item<float>(), -0.41614684, 1e-6);
  EXPECT_NEAR(jit(grad(f))(Tensor(2.0f)).item<float>(), -0.41614684, 1e-6);
  EXPECT_NEAR(jit(f)(Tensor(2.0f)).item<float>(), std::sin(2.0f), 1e-6);
  expect_error<TypeError>([&] { jit(grad(grad(f)))(Tensor(2.0f)); },
                          {"call 'call'", "custom_test.cc"});
}

TEST(Custom, VjpRunsItsRulesOnce) {
  RecordProperty("covers", "AD-05");
  int forward = 0, backward = 0;
  auto f = custom_vjp([](Tensor x) { return x * x; },
                      [&](Tensor x) {
                        return std::pair{call(
                                             x.type(),
                                             [&](float v) {
                                               ++forward;
                                               return v * v;
                                             },
                                             x),
                                         x};
                      },
                      [&](Tensor x, Tensor ct) {
                        return std::tuple{call(
                            x.type(),
                            [&](float v, float c) {
                              ++backward;
                              return 2 * v * c;
                            },
                            x, ct)};
                      });
  auto pulled = jit([&](Tensor x) {
    auto [y, pull] = vjp(f, x);
    return std::tuple{y, std::get<0>(pull(Tensor(1.0f)))};
  });
  const auto [y, g] = pulled(Tensor(3.0f));
  EXPECT_EQ(y.item<float>(), 9);
  EXPECT_EQ(g.item<float>(), 6);
  EXPECT_EQ(forward, 1);
  EXPECT_EQ(backward, 1);
  auto wrong = custom_vjp([](Tensor x, Tensor) { return x * x; },
                          [](Tensor a, Tensor b) {
                            return std::pair{a * a, std::pair{a, b}};
                          },
                          [](std::pair<Tensor, Tensor> kept, Tensor ct) {
                            return std::tuple{kept.first * ct, tensor<float>({1, 2})};
                          });
  expect_error<TypeError>([&] { jit(grad(wrong))(Tensor(1.0f), Tensor(1.0f)); },
                          {"cotangent 1", "f32[]", "f32[2]", "custom_test.cc"});
  const auto two = [](const Tensor& v) { return std::pair(v, v); };
  auto other = custom_jvp([=](Tensor x) { return two(x); },
                          [](auto p, auto t) { return std::pair(std::get<0>(p), std::get<0>(t)); });
  expect_error<TypeError>([&] { jvp(other, Tensor(1.0f), Tensor(1.0f)); },
                          {"custom_jvp: the rule's value has the structure", "custom_test.cc"});
  auto too_few = custom_vjp([](Tensor x, Tensor) { return x; },
                            [](Tensor x, Tensor) {
                              return std::pair{x, x};
                            },
                            [](Tensor, Tensor ct) { return std::tuple{ct}; });
  expect_error<TypeError>([&] { jit(grad(too_few))(Tensor(1.0f), Tensor(1.0f)); },
                          {"1 cotangents for 2"});
}

TEST(Custom, VjpHasNoForwardMode) {
  auto f = custom_vjp([](Tensor x) { return x * x; },
                      [](Tensor x) {
                        return std::pair{x * x, x};
                      },
                      [](Tensor x, Tensor ct) { return std::tuple{2.0f * x * ct}; });
  expect_error<TypeError>(
      [&] {
        jit([&](Tensor x) { return jvp(f, std::tuple{x}, std::tuple{x}).second; })(Tensor(1.0f));
      },
      {"custom_vjp", "reverse mode only", "custom_jvp", "custom_test.cc"});
  expect_error<TypeError>([&] { jvp(f, std::tuple{Tensor(1.0f)}, std::tuple{Tensor(1.0f)}); },
                          {"custom_vjp"});
  expect_error<TypeError>([&] { jit(jacfwd(f))(Tensor(1.0f)); }, {"custom_vjp"});
  EXPECT_EQ(jit(jacfwd(grad(f)))(Tensor(3.0f)).item<float>(), 2)
      << "its rules are differentiable in both modes";
}

TEST(Custom, CallsDeclaredLinear) {
  RecordProperty("covers", "AD-06");
  int applied = 0;
  auto apply_a = [&](Tensor x) {
    return linear_call(
        [&](std::tuple<>, Tensor v) {
          return call(
              v.type(),
              [&](View<const float> a, View<float> out) {
                ++applied;
                out[0] = a[0] + 2 * a[1];
                out[1] = 3 * a[0] + 4 * a[1];
              },
              v);
        },
        [&](std::tuple<>, Tensor ct) {
          return call(
              ct.type(),
              [&](View<const float> a, View<float> out) {
                out[0] = a[0] + 3 * a[1];
                out[1] = 2 * a[0] + 4 * a[1];
              },
              ct);
        },
        std::tuple<>(), x);
  };
  const Tensor x = tensor<float>({5, 6}), t = tensor<float>({1, 2});
  auto [y, dy] =
      jit([&](Tensor v, Tensor d) { return jvp(apply_a, std::tuple{v}, std::tuple{d}); })(x, t);
  EXPECT_EQ(y.to_vector<float>(), (Floats{17, 39}));
  EXPECT_EQ(dy.to_vector<float>(), (Floats{5, 11}));
  EXPECT_EQ(applied, 2);
  auto [z, pull] = vjp(apply_a, x);
  EXPECT_EQ(std::get<0>(pull(tensor<float>({1, 1}))).to_vector<float>(), (Floats{4, 6}));
  // In a rule of custom_jvp.
  auto f = custom_jvp([](Tensor v) { return v * v; },
                      [&](std::tuple<Tensor> v, std::tuple<Tensor> d) {
                        return std::pair{std::get<0>(v) * std::get<0>(v), apply_a(std::get<0>(d))};
                      });
  EXPECT_EQ(jit(grad([&](Tensor v) { return sum(f(v)); }))(x).to_vector<float>(), (Floats{4, 6}));
  // A call on a tangent that is not declared linear has no transpose.
  auto plain = custom_jvp([](Tensor v) { return v; },
                          [](std::tuple<Tensor> v, std::tuple<Tensor> d) {
                            return std::pair{std::get<0>(v),
                                             call(
                                                 {.name = "twice"}, type<float>(),
                                                 [](float a) { return 2 * a; }, std::get<0>(d))};
                          });
  EXPECT_EQ(jvp(plain, Tensor(1.0f), Tensor(3.0f)).second.item<float>(), 6);
  expect_error<TypeError>([&] { jit(grad(plain))(Tensor(1.0f)); },
                          {"twice", "linear_call", "custom_test.cc"});
  // Nor has an operation that is not linear.
  auto curved = custom_jvp([](Tensor v) { return v; },
                           [](std::tuple<Tensor> v, std::tuple<Tensor> d) {
                             return std::pair{std::get<0>(v), sin(std::get<0>(d))};
                           });
  expect_error<TypeError>([&] { jit(grad(curved))(Tensor(1.0f)); },
                          {"sin is applied to a tangent", "a linear call needs linear_call"});
}

TEST(Custom, EffectsInRulesFireAtTheirTime) {
  RecordProperty("covers", "AD-21");
  Strings log;
  float store = 0;
  auto f = custom_vjp([](Tensor x) { return x * x; },
                      [&](Tensor x) {
                        const Tensor y = call(
                            {.effect = Effect::ordered}, type<float>(),
                            [&](float v) {
                              log.push_back(fmt::format("fwd {}", v));
                              store = v;
                              return v * v;
                            },
                            x);
                        return std::pair{y, std::tuple<>()};
                      },
                      [&](std::tuple<>, Tensor ct) {
                        return std::tuple{call(
                            {.effect = Effect::ordered}, type<float>(),
                            [&](float c) {
                              log.push_back(fmt::format("bwd {} {}", store, c));
                              return 2 * store * c;
                            },
                            ct)};
                      });
  auto [y, pull] = vjp(f, Tensor(2.0f));
  EXPECT_EQ(y.item<float>(), 4);
  EXPECT_EQ(log, (Strings{"fwd 2"}));
  EXPECT_EQ(std::get<0>(pull(Tensor(3.0f))).item<float>(), 12);
  EXPECT_EQ(log, (Strings{"fwd 2", "bwd 2 3"}));
  log.clear();
  EXPECT_EQ(jit(grad(f))(Tensor(2.0f)).item<float>(), 4);
  EXPECT_EQ(log, (Strings{"fwd 2", "bwd 2 1"}));
  // A tap on a tangent fires when the linear map is applied.
  Floats seen;
  auto sine = custom_jvp(
      [](Tensor x) { return sin(x); },
      [&](std::tuple<Tensor> x, std::tuple<Tensor> t) {
        const Tensor v = std::get<0>(x);
        return std::pair{sin(v), tap(cos(v) * std::get<0>(t), [&](float d) { seen.push_back(d); })};
      });
  auto [z, push] = linearize(sine, Tensor(1.0f));
  EXPECT_TRUE(seen.empty());
  EXPECT_NEAR(push(Tensor(1.0f)).item<float>(), 0.5403023, 1e-6);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_NEAR(seen[0], 0.5403023, 1e-6);
}

TEST(Custom, RulesThatDoNotFit) {
  auto square = [](Tensor x) { return x * x; };
  auto with_rule = [&](auto rule) { return custom_jvp(square, rule); };
  using T = std::tuple<Tensor>;
  expect_error<TypeError>(
      [&] {
        grad(with_rule([](T x, T t) {
          return std::pair{std::get<0>(x), tensor<float>({1, 2}) * std::get<0>(t)};
        }))(1.0f);
      },
      {"tangent 0", "f32[]", "f32[2]"});
  expect_error<TypeError>(
      [&] {
        grad(with_rule([](T, T t) { return std::pair{tensor<int>({1}), std::get<0>(t)}; }))(1.0f);
      },
      {"value 0", "s32[1]"});
  expect_error<TypeError>(
      [&] {
        grad(with_rule([](T x, T t) {
          return std::pair{std::get<0>(x), sin(std::get<0>(t))};
        }))(1.0f);
      },
      {"sin", "linear"});
  expect_error<TypeError>(
      [&] {
        grad(with_rule([](T x, T t) {
          return std::pair{std::get<0>(x), std::get<0>(t) * std::get<0>(t)};
        }))(1.0f);
      },
      {"multiply", "linear"});
  auto captures = [](Tensor a) {
    return custom_jvp([a](Tensor x) { return a * x; },
                      [](T x, T t) {
                        return std::pair{std::get<0>(x), std::get<0>(t)};
                      })(a);
  };
  expect_error<TypeError>([&] { grad(captures)(2.0f); }, {"captures", "argument"});
}

TEST(Custom, RulesMayBeContainersAndStatic) {
  auto scaled = custom_vjp([](std::vector<Tensor> xs, int n) { return xs[0] * xs[1] * float(n); },
                           [](std::vector<Tensor> xs, int n) {
                             return std::pair{xs[0] * xs[1] * float(n), std::tuple{xs, n}};
                           },
                           [](std::tuple<std::vector<Tensor>, int> kept, Tensor ct) {
                             const auto& [xs, n] = kept;
                             return std::tuple{std::vector{ct * xs[1] * float(n), Tensor()}, n};
                           });
  const auto g = jit(grad([&](std::vector<Tensor> xs) { return scaled(xs, 3); }))(
      std::vector{Tensor(2.0f), Tensor(5.0f)});
  EXPECT_EQ(g[0].item<float>(), 15);
  EXPECT_EQ(g[1].item<float>(), 0) << "an empty cotangent is zero, as the rule says";
  auto indexed = custom_jvp(
      [](Tensor x, Tensor n) { return x * convert<float>(n); },
      [](std::tuple<Tensor, Tensor> x, std::tuple<Tensor, Tensor> t) {
        EXPECT_EQ(std::get<1>(t).dtype(), DType::pred) << "no tangent";
        return std::pair{std::get<0>(x) * convert<float>(std::get<1>(x)), std::get<0>(t) * 7.0f};
      });
  EXPECT_EQ(grad(indexed)(1.0f, 2).item<float>(), 7);
}

TEST(Custom, CotangentsHaveTheStructureOfTheArguments) {
  using Named = std::map<std::string, Tensor>;
  const Named at{{"bias", Tensor(1.0f)}, {"weight", Tensor(3.0f)}};
  auto with = [](std::string one, std::string other) {
    return custom_vjp([](Named m) { return m.at("bias") + 2.0f * m.at("weight"); },
                      [](Named m) {
                        return std::pair{m.at("bias") + 2.0f * m.at("weight"), std::tuple<>()};
                      },
                      [=](std::tuple<>, Tensor ct) {
                        return Named{{one, ct}, {other, 2.0f * ct}};
                      });
  };
  const Named g = grad(with("bias", "weight"))(at);
  EXPECT_EQ(g.at("bias").item<float>(), 1);
  EXPECT_EQ(g.at("weight").item<float>(), 2);
  expect_error<TypeError>(
      [&] { grad(with("xbias", "weight_"))(at); },
      {"custom_vjp: the cotangent has the structure", "xbias", "4:bias", "custom_test.cc"});
  auto scaled = [&](std::string one, std::string other) {
    return [=](Named m) {
      const Named y = linear_call(
          [](Tensor by, Named x) { return map_leaves([&](Tensor v) { return by * v; }, x); },
          [=](Tensor by, Named ct) {
            return Named{{one, by * ct.at("bias")}, {other, by * ct.at("weight")}};
          },
          Tensor(3.0f), m);
      return y.at("bias") + 2.0f * y.at("weight");
    };
  };
  EXPECT_EQ(grad(scaled("bias", "weight"))(at).at("weight").item<float>(), 6);
  expect_error<TypeError>(
      [&] { grad(scaled("xbias", "weight_"))(at); },
      {"linear_call: the cotangent has the structure", "xbias", "custom_test.cc"});
  // What has no leaves may be left out, and several may be a pair.
  auto shifted = custom_vjp([](Tensor x, int, Tensor y) { return x * y; },
                            [](Tensor x, int n, Tensor y) {
                              return std::pair{x * y, std::tuple{x, n, y}};
                            },
                            [](std::tuple<Tensor, int, Tensor> kept, Tensor ct) {
                              const auto& [x, n, y] = kept;
                              return std::pair{ct * y * float(n), ct * x};
                            });
  auto at_three = [&](Tensor x, Tensor y) { return shifted(x, 3, y); };
  const auto [by_x, by_y] = grad<0, 1>(at_three)(2.0f, 5.0f);
  EXPECT_EQ(by_x.item<float>(), 15);
  EXPECT_EQ(by_y.item<float>(), 2);
}

TEST(Custom, HostDerivatives) {
  auto f = [](Tensor x, Tensor n) {
    return call_with_vjp(
        {.name = "power"}, std::tuple{x.type(), type<int>()},
        [](float v, int k) {
          return std::tuple{std::pow(v, float(k)), k + 1};
        },
        [](float v, int k, float, int, float ct, View<float> to_v) {
          to_v[0] = float(k) * std::pow(v, float(k - 1)) * ct;
        },
        x, n);
  };
  auto value = [&](Tensor x, Tensor n) { return std::get<0>(f(x, n)); };
  const auto [y, g] = jit(value_and_grad(value))(2.0f, 3);
  EXPECT_EQ(y.item<float>(), 8);
  EXPECT_EQ(g.item<float>(), 12);
  EXPECT_EQ(jit(vmap(grad(value), {.in_axes = {0, unmapped}}))(tensor<float>({1, 2, 3}), 2)
                .to_vector<float>(),
            (Floats{2, 4, 6}));
  expect_error<TypeError>([&] { jit(grad(grad(value)))(2.0f, 3); },
                          {"power vjp", "no derivative", "custom_test.cc"});
  expect_error<TypeError>(
      [&] {
        jvp(value, std::tuple{2.0f, 3}, std::tuple{1.0f, Tensor()});
      },
      {"reverse mode only"});
}

TEST(Custom, HostDerivativesWithOptionsOfAName) {
  CallOptions options{.name = "doubled"};  // not braces: both overloads could take it for `out`
  auto of = [&](auto out, const Tensor& x) {
    return leaves(call_with_vjp(
                      options, out, [](float v) { return 2 * v; },
                      [](float, float, float ct, View<float> to_v) { to_v[0] = 2 * ct; }, x))
        .front();
  };
  auto f = [&](Tensor x) { return of(x.type(), x); };
  EXPECT_EQ(f(Tensor(3.0f)).item<float>(), 6);
  EXPECT_EQ(jit(grad(f))(3.0f).item<float>(), 2);
  auto refused = [&](auto out, std::initializer_list<std::string_view> parts) {
    expect_error<TypeError>([&] { of(out, Tensor(1.0f)); }, parts);
    expect_error<TypeError>([&] { jit([&](Tensor x) { return of(out, x); })(1.0f); }, parts);
  };
  refused(Type{DType::token, {}}, {"call 'doubled'", "token", "custom_test.cc"});
  refused(std::vector<Tensor>{Tensor()}, {"call 'doubled'", "[0]", "empty", "custom_test.cc"});
  auto twice = jit([](Tensor x) { return x * 2.0f; });
  expect_error<TypeError>(
      [&] {
        call({.name = "elsewhere"}, Type{DType::token, {}}, twice, Tensor(1.0f));
      },
      {"call 'elsewhere'", "token", "custom_test.cc"});
}

TEST(Custom, SharedCotangentsOfABatchedCallHaveAnAxisOfOne) {
  struct Seen {
    Dims x, w, ct, to_x, to_w;
  } seen;
  auto dims = [](const auto& v) { return Dims(v.dims().begin(), v.dims().end()); };
  auto product = [&](Tensor x, Tensor w) {
    return call_with_vjp(
        {.vmap = VmapMethod::expand_dims}, x.type(),
        [](AnyView a, AnyView b, AnyMutableView y) {
          for (std::int64_t i = 0; i < y.size(); ++i)
            y.as<float>()[i] = a.as<float>()[i] * b.as<float>()[i % b.size()];
        },
        [&](AnyView a, AnyView b, AnyView, AnyView ct, AnyMutableView to_a, AnyMutableView to_b) {
          seen = {dims(a), dims(b), dims(ct), dims(to_a), dims(to_b)};
          for (std::int64_t i = 0; i < to_a.size(); ++i) {
            const float c = ct.as<float>()[i % ct.size()];
            to_a.as<float>()[i] = b.as<float>()[i % b.size()] * c;
            to_b.as<float>()[i] = a.as<float>()[i] * c;
          }
        },
        x, w);
  };
  const auto [to_x, to_w] =
      jit(vmap(grad<0, 1>(product), {.in_axes = {0, unmapped}}))(tensor<float>({1, 2, 3}), 10.0f);
  EXPECT_EQ(to_x.to_vector<float>(), (Floats{10, 10, 10}));
  EXPECT_EQ(to_w.to_vector<float>(), (Floats{1, 2, 3}));
  EXPECT_EQ(seen.x, Dims{3});
  EXPECT_EQ(seen.w, Dims{1});
  EXPECT_EQ(seen.ct, Dims{1}) << "the 1 that grad begins with";
  EXPECT_EQ(seen.to_x, Dims{3});
  EXPECT_EQ(seen.to_w, Dims{3});
}

TEST(Custom, RulesMayApplyFunctionsWithRulesToTangents) {
  // The tangent's own rule: linear in dx, and differentiable by x.
  auto push =
      custom_jvp([](Tensor x, Tensor dx) { return 3.0f * x * x * dx; },
                 [](std::tuple<Tensor, Tensor> at, std::tuple<Tensor, Tensor> moves) {
                   const auto [x, dx] = at;
                   const auto [u, v] = moves;
                   return std::pair{3.0f * x * x * dx, 6.0f * x * dx * u + 3.0f * x * x * v};
                 });
  auto cube = custom_jvp([](Tensor x) { return x * x * x; },
                         [=](std::tuple<Tensor> at, std::tuple<Tensor> moves) {
                           const Tensor x = std::get<0>(at);
                           return std::pair{x * x * x, push(x, std::get<0>(moves))};
                         });
  EXPECT_EQ(jit(grad(cube))(Tensor(2.0f)).item<float>(), 12);
  EXPECT_EQ(jit(grad(grad([=](Tensor x) { return cube(x) * x; })))(Tensor(2.0f)).item<float>(), 48);
  EXPECT_EQ(jit(hessian(cube))(Tensor(2.0f)).item<float>(), 12);
  auto bent = custom_jvp([](Tensor x) { return x; },
                         [=](std::tuple<Tensor> at, std::tuple<Tensor> dx) {
                           auto squared =
                               custom_jvp([](Tensor v) { return v * v; },
                                          [](std::tuple<Tensor> v, std::tuple<Tensor>) {
                                            return std::pair{std::get<0>(v), std::get<0>(v)};
                                          });
                           return std::pair{std::get<0>(at), squared(std::get<0>(dx))};
                         });
  expect_error<TypeError>([&] { grad(bent)(Tensor(2.0f)); }, {"not linear"});
}

TEST(Custom, RulesMayLeaveTangentsEmpty) {
  auto f = custom_jvp(
      [](Tensor x) {
        return std::pair{x * x, floor(x)};
      },
      [](std::tuple<Tensor> at, std::tuple<Tensor> moves) {
        const Tensor x = std::get<0>(at);
        return std::pair{std::pair{x * x, floor(x)},
                         std::pair{2.0f * x * std::get<0>(moves), Tensor()}};
      });
  auto g = [=](Tensor x) {
    const auto [y, whole] = f(x);
    return y + whole;
  };
  EXPECT_EQ(jit(grad(g))(Tensor(2.5f)).item<float>(), 5);
}

}  // namespace
}  // namespace postern
