// Differentiation and what calls and taps do under it.
#include "support.h"

namespace postern {
namespace {

using test::expect_error, test::has;
using Floats = std::vector<float>;
using Strings = std::vector<std::string>;

/// What taps saw: "10 jvp,transpose".
struct Log {
  Strings lines;
  auto shows() {
    return [this](const TapInfo& info, std::span<const AnyView> leaves) {
      std::string line;
      for (const AnyView& v : leaves) line += (line.empty() ? "" : ",") + text(v);
      if (!info.transforms.empty()) line += " " + to_string(info.transforms);
      if (info.recomputed) line += " again";
      lines.push_back(line);
    };
  }
  static std::string text(const AnyView& v) {
    if (v.dtype() == DType::pred) return v.as<bool>()[0] ? "true" : "false";
    if (v.dtype() == DType::s32) return std::to_string(v.as<std::int32_t>()[0]);
    return fmt_float(v.as<float>()[0]);
  }
  static std::string fmt_float(float x) {
    std::string s = std::to_string(x);
    s.erase(s.find_last_not_of('0') + 1);
    return s.back() == '.' ? s.substr(0, s.size() - 1) : s;
  }
};

/// Runs compiled, evaluated and eagerly; all must log the same.
template <class F, class... A>
auto logged(Log& log, F f, const A&... arguments) {
  auto result = jit(f)(arguments...);
  barrier();
  const Strings compiled = std::exchange(log.lines, {});
  jit(f, {.mode = Mode::evaluate})(arguments...);
  barrier();
  EXPECT_EQ(std::exchange(log.lines, {}), compiled) << "evaluated, compiled";
  f(arguments...);
  barrier();
  EXPECT_EQ(log.lines, compiled) << "eager, compiled";
  return result;
}

Tensor square_call(Tensor x) {
  return call(
      {.name = "square"}, x.type(), [](float a) { return a * a; }, x);
}

TEST(Autodiff, CallWithoutRuleIsAnErrorInEveryMode) {
  RecordProperty("covers", "AD-01");
  auto f = [](Tensor x) { return 3.0f * x + square_call(x); };
  const Tensor x(2.0f);
  auto refuses = [](auto act) {
    expect_error<TypeError>(act, {"square", "autodiff_test.cc", "custom_vjp", "stop_gradient"});
  };
  refuses([&] { jit(grad(f))(x); });
  refuses([&] { grad(f)(x); });
  refuses([&] { jit([&](Tensor v) { return jvp(f, std::tuple{v}, std::tuple{v}).second; })(x); });
  refuses([&] { vjp(f, x); });
  refuses([&] { linearize(f, x); });
  refuses([&] { jit(jacfwd(f))(x); });
  refuses([&] { jit(vmap(grad(f)))(tensor<float>({1, 2})); });
  auto looped = [&](Tensor v) {
    return fori_loop(
        0, 3, [&](Tensor, Tensor c) { return f(c); }, v);
  };
  refuses([&] { jit(grad(looped))(x); });
}

TEST(Autodiff, CallsThatAreNotDifferentiatedAreFree) {
  RecordProperty("covers", "AD-02");
  auto stopped = [](Tensor x) { return x * square_call(stop_gradient(x)); };
  EXPECT_EQ(jit(grad(stopped))(Tensor(3.0f)).item<float>(), 9);
  auto counted = [](Tensor x) {
    const Tensor n = call(
        type<int>(), [](int i) { return i + 1; }, convert<int>(x));
    return x * convert<float>(n);
  };
  EXPECT_EQ(jit(grad(counted))(Tensor(3.0f)).item<float>(), 4);
  auto to_integer = [](Tensor x) {
    const Tensor n = call(
        type<int>(), [](float v) { return int(v); }, x);
    return x * convert<float>(n);
  };
  EXPECT_EQ(jit(grad(to_integer))(Tensor(3.5f)).item<float>(), 3);
}

Tensor host_cos(Tensor x) {
  return call(
      x.type(), [](float v) { return std::cos(v); }, x);
}

TEST(Autodiff, CustomJvpMadeOfCalls) {
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
                          {"call 'call'", "autodiff_test.cc"});
}

TEST(Autodiff, CustomVjpRunsItsRulesOnce) {
  RecordProperty("covers", "AD-05");
  int forward = 0, backward = 0;
  auto f =
      custom_vjp([](Tensor x) { return square_call(x); },
                 [&](Tensor x) {
                   return std::pair{call(
                                        x.type(), [&](float v) { return ++forward, v * v; }, x),
                                    x};
                 },
                 [&](Tensor x, Tensor ct) {
                   return std::tuple{call(
                       x.type(), [&](float v, float c) { return ++backward, 2 * v * c; }, x, ct)};
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
                          {"cotangent 1", "f32[]", "f32[2]", "autodiff_test.cc"});
  const auto two = [](const Tensor& v) { return std::pair(v, v); };
  auto other = custom_jvp([=](Tensor x) { return two(x); },
                          [](auto p, auto t) { return std::pair(std::get<0>(p), std::get<0>(t)); });
  expect_error<TypeError>([&] { jvp(other, Tensor(1.0f), Tensor(1.0f)); },
                          {"custom_jvp: the rule's value has the structure", "autodiff_test.cc"});
  auto too_few = custom_vjp([](Tensor x, Tensor) { return x; },
                            [](Tensor x, Tensor) {
                              return std::pair{x, x};
                            },
                            [](Tensor, Tensor ct) { return std::tuple{ct}; });
  expect_error<TypeError>([&] { jit(grad(too_few))(Tensor(1.0f), Tensor(1.0f)); },
                          {"1 cotangents for 2"});
}

TEST(Autodiff, CustomVjpHasNoForwardMode) {
  auto f = custom_vjp([](Tensor x) { return x * x; },
                      [](Tensor x) {
                        return std::pair{x * x, x};
                      },
                      [](Tensor x, Tensor ct) { return std::tuple{2.0f * x * ct}; });
  expect_error<TypeError>(
      [&] {
        jit([&](Tensor x) { return jvp(f, std::tuple{x}, std::tuple{x}).second; })(Tensor(1.0f));
      },
      {"custom_vjp", "reverse mode only", "custom_jvp", "autodiff_test.cc"});
  expect_error<TypeError>([&] { jvp(f, std::tuple{Tensor(1.0f)}, std::tuple{Tensor(1.0f)}); },
                          {"custom_vjp"});
  expect_error<TypeError>([&] { jit(jacfwd(f))(Tensor(1.0f)); }, {"custom_vjp"});
  EXPECT_EQ(jit(jacfwd(grad(f)))(Tensor(3.0f)).item<float>(), 2)
      << "its rules are differentiable in both modes";
}

TEST(Autodiff, CallsDeclaredLinear) {
  RecordProperty("covers", "AD-06");
  int applied = 0;
  auto apply_a = [&](Tensor x) {
    return linear_call(
        [&](std::tuple<>, Tensor v) {
          return call(
              v.type(),
              [&](View<const float> a, View<float> out) {
                ++applied, out[0] = a[0] + 2 * a[1], out[1] = 3 * a[0] + 4 * a[1];
              },
              v);
        },
        [&](std::tuple<>, Tensor ct) {
          return call(
              ct.type(),
              [&](View<const float> a, View<float> out) {
                out[0] = a[0] + 3 * a[1], out[1] = 2 * a[0] + 4 * a[1];
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
                          {"twice", "linear_call", "autodiff_test.cc"});
  // Nor has an operation that is not linear.
  auto curved = custom_jvp([](Tensor v) { return v; },
                           [](std::tuple<Tensor> v, std::tuple<Tensor> d) {
                             return std::pair{std::get<0>(v), sin(std::get<0>(d))};
                           });
  expect_error<TypeError>([&] { jit(grad(curved))(Tensor(1.0f)); },
                          {"sin is applied to a tangent", "a linear call needs linear_call"});
}

TEST(Autodiff, TapsShowTangentsWhereAsked) {
  RecordProperty("covers", "AD-08");
  Log log;
  auto f = [&](Tensor a) {
    const Tensor y = tap({.derivatives = true}, 2.0f * a, log.shows());
    const Tensor z = tap({.derivatives = true}, 3.0f * y, log.shows());
    return y * z / 3.0f;
  };
  auto both = [&](Tensor a, Tensor t) { return jvp(f, std::tuple{a}, std::tuple{t}); };
  const auto [y, dy] = logged(log, both, Tensor(5.0f), Tensor(0.1f));
  EXPECT_EQ(log.lines, (Strings{"10,0.2 jvp", "30,0.6 jvp"}));
  EXPECT_NEAR(y.item<float>(), 100, 1e-4);
  EXPECT_NEAR(dy.item<float>(), 4, 1e-4);
  expect_error<TypeError>(
      [&] {
        jit([](Tensor a) {
          return jvp(
                     [](Tensor v) {
                       return tap({.name = "one", .derivatives = true}, v, [](float) {});
                     },
                     a, a)
              .second;
        })(Tensor(1.0f));
      },
      {"one", "2 operands"});
}

TEST(Autodiff, TapsShowCotangentsInReverseOrder) {
  RecordProperty("covers", "AD-09");
  Log log;
  auto shown = [&](Tensor x) { return tap({.derivatives = true}, x, log.shows()); };
  EXPECT_EQ(logged(log, grad([&](Tensor x) { return 2.0f * shown(3.0f * x); }), Tensor(5.0f))
                .item<float>(),
            6);
  EXPECT_EQ(log.lines, (Strings{"15", "2 jvp,transpose"}));
  log.lines.clear();
  EXPECT_EQ(
      logged(log, grad([&](Tensor x) { return x * shown(3.0f * shown(2.0f * x)); }), Tensor(5.0f))
          .item<float>(),
      60);
  EXPECT_EQ(log.lines, (Strings{"10", "30", "5 jvp,transpose", "15 jvp,transpose"}));
  log.lines.clear();
  // Nobody needs its derivative: a zero is shown.
  EXPECT_EQ(logged(log, grad([&](Tensor x) { return shown(2.0f * x), x * x; }), Tensor(5.0f))
                .item<float>(),
            10);
  EXPECT_EQ(log.lines, (Strings{"10", "0 jvp,transpose"}));
}

TEST(Autodiff, TapsUnderSecondDerivatives) {
  RecordProperty("covers", "AD-11");
  Log log;
  auto f = [&](Tensor x) { return x * 3.0f * tap({.derivatives = true}, 2.0f * x, log.shows()); };
  EXPECT_EQ(logged(log, grad(grad(f)), Tensor(5.0f)).item<float>(), 12);
  EXPECT_EQ(log.lines, (Strings{"10", "15 jvp,transpose", "2 jvp,transpose,jvp,transpose",
                                "3 jvp,transpose"}));
}

TEST(Autodiff, IntegerLeavesOfTapsHaveNoTangent) {
  RecordProperty("covers", "AD-14");
  Log log;
  auto f = [&](Tensor x, Tensor n) {
    const auto [y, m] = tap({.derivatives = true}, std::pair{x, n}, log.shows());
    return y * convert<float>(m);
  };
  EXPECT_EQ(logged(log, grad(f), Tensor(5.0f), Tensor(2)).item<float>(), 2);
  EXPECT_EQ(log.lines, (Strings{"5,2", "2,false jvp,transpose"}));
  log.lines.clear();
  auto tangent = [&](Tensor x, Tensor n, Tensor t) {
    return jvp(f, std::tuple{x, n}, std::tuple{t, Tensor()});
  };
  const auto [y, dy] = jit(tangent)(Tensor(2.0f), Tensor(3), Tensor(0.2f));
  EXPECT_EQ(y.item<float>(), 6);
  EXPECT_NEAR(dy.item<float>(), 0.6, 1e-6);
  EXPECT_EQ(log.lines, (Strings{"2,3,0.2,false jvp"}));
}

TEST(Autodiff, PlainTapsShowValuesOnly) {
  RecordProperty("covers", "AD-15 AD-16");
  Log log;
  auto f = [&](Tensor x) { return tap(x * x, log.shows()); };
  EXPECT_EQ(logged(log, grad(f), Tensor(3.0f)).item<float>(), 6);
  EXPECT_EQ(log.lines, (Strings{"9"}));
  log.lines.clear();
  auto g = [&](Tensor x) { return tap({.derivatives = true}, x * x, log.shows()); };
  EXPECT_EQ(logged(log, grad(g), Tensor(3.0f)).item<float>(), 6);
  EXPECT_EQ(log.lines, (Strings{"9", "1 jvp,transpose"}));
  log.lines.clear();
  // Not needed by the gradient: still once.
  Floats seen;
  auto h = [&](Tensor x) { return tap(tanh(x), [&](float v) { seen.push_back(v); }); };
  jit(grad(h))(Tensor(3.0f));
  jit(value_and_grad(h))(Tensor(3.0f));
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_NEAR(seen[0], 0.9950547, 1e-6);
  auto of_gradient = [&](Tensor x) {
    return tap(grad([](Tensor v) { return v * v; })(x), log.shows());
  };
  logged(log, of_gradient, Tensor(3.0f));
  EXPECT_EQ(log.lines, (Strings{"6"}));
}

TEST(Autodiff, LoopsFireOnceInReverseMode) {
  RecordProperty("covers", "AD-18");
  Log log;
  auto f = [&](Tensor x) {
    return fori_loop(
        0, 3, [&](Tensor, Tensor v) { return tap(v * v, log.shows()); }, x);
  };
  EXPECT_EQ(logged(log, grad(f), Tensor(2.0f)).item<float>(), 1024);
  EXPECT_EQ(log.lines, (Strings{"4", "16", "256"}));
  log.lines.clear();
  auto g = [&](Tensor x) {
    return scan(
               [&](Tensor v) {
                 return std::pair{tap({.derivatives = true}, v * v, log.shows()), std::tuple<>()};
               },
               x, {.length = 3})
        .first;
  };
  EXPECT_EQ(logged(log, grad(g), Tensor(2.0f)).item<float>(), 1024);
  EXPECT_EQ(log.lines, (Strings{"4", "16", "256", "1 jvp,transpose", "32 jvp,transpose",
                                "256 jvp,transpose"}));
  auto endless = [](Tensor x) {
    return while_loop([](Tensor v) { return v < 100.0f; }, [](Tensor v) { return v * v; }, x);
  };
  EXPECT_EQ(jit(grad(endless))(Tensor(2.0f)).item<float>(), 1024);
  EXPECT_EQ(jit([&](Tensor x) { return jvp(endless, x, Tensor(1.0f)).second; })(Tensor(2.0f))
                .item<float>(),
            1024);
  EXPECT_EQ(jit(jacfwd(endless))(Tensor(2.0f)).item<float>(), 1024);
}

TEST(Autodiff, CheckpointComputesAgain) {
  RecordProperty("covers", "AD-20");
  Log log;
  auto f = checkpoint([&](Tensor x) { return 3.0f * tap(x, log.shows()); });
  EXPECT_EQ(logged(log, grad(f), Tensor(2.0f)).item<float>(), 3);
  EXPECT_EQ(log.lines, (Strings{"2", "2 again"}));
  log.lines.clear();
  auto saved = checkpoint(
      [&](Tensor x) { return 3.0f * tap({.name = "x"}, x, log.shows()); },
      {.save = [](const CheckpointStep& s) { return s.operation == "tap" && s.name == "x"; }});
  EXPECT_EQ(logged(log, grad(saved), Tensor(2.0f)).item<float>(), 3);
  EXPECT_EQ(log.lines, (Strings{"2"}));
  log.lines.clear();
  int effects = 0, pure = 0;
  auto calls = checkpoint([&](Tensor x) {
    const Tensor a = call(
        {.effect = Effect::unordered}, type<float>(), [&](float v) { return ++effects, v + 1; },
        stop_gradient(x));
    const Tensor b = call(
        type<float>(), [&](float v) { return ++pure, v + 1; }, stop_gradient(x));
    return sin(x) * a * b;
  });
  EXPECT_NEAR(jit(value_and_grad(calls))(Tensor(2.0f)).second.item<float>(), 9 * std::cos(2.0f),
              1e-5);
  EXPECT_EQ(effects, 1);
  EXPECT_EQ(pure, 2);
  // In a loop.
  auto looped = [&](Tensor x) {
    return fori_loop(
        0, 2, [&](Tensor, Tensor v) { return f(v); }, x);
  };
  EXPECT_EQ(logged(log, grad(looped), Tensor(2.0f)).item<float>(), 9);
  EXPECT_EQ(log.lines, (Strings{"2", "6", "6 again", "2 again"}));
  log.lines.clear();
  auto inner_loop = checkpoint([&](Tensor x) {
    return fori_loop(
        0, 2, [&](Tensor, Tensor v) { return tap(v * v, log.shows()); }, x);
  });
  EXPECT_EQ(logged(log, grad(inner_loop), Tensor(2.0f)).item<float>(), 32);
  EXPECT_EQ(log.lines, (Strings{"4", "16", "4 again", "16 again"}));
}

TEST(Autodiff, EffectsInRulesFireAtTheirTime) {
  RecordProperty("covers", "AD-21");
  Strings log;
  float store = 0;
  auto f =
      custom_vjp([](Tensor x) { return x * x; },
                 [&](Tensor x) {
                   const Tensor y = call(
                       {.effect = Effect::ordered}, type<float>(),
                       [&](float v) {
                         log.push_back("fwd " + Log::fmt_float(v));
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
                         log.push_back("bwd " + Log::fmt_float(store) + " " + Log::fmt_float(c));
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

TEST(Autodiff, TapsChangeNothing) {
  RecordProperty("covers", "AD-22");
  auto program = [](bool tapped) {
    return [tapped](Tensor x) {
      auto see = [tapped](Tensor v) {
        return tapped ? tap({.derivatives = true}, v, [](std::span<const AnyView>) {}) : v;
      };
      const auto [last, all] = scan(
          [&](Tensor c, Tensor v) {
            const Tensor next = see(tanh(c * v) + see(sin(c)));
            return std::pair{next, see(next * next)};
          },
          see(x * 0.7f), tensor<float>({0.1f, 0.9f, -0.4f}));
      return cond(
                 greater(last, 0.0f), [&](Tensor v) { return see(sum(v)); },
                 [&](Tensor v) { return see(sum(v * v)); }, all) +
             last;
    };
  };
  for (const float at : {0.3f, -1.7f, 2.5f}) {
    const auto [y, g] = jit(value_and_grad(program(false)))(Tensor(at));
    const auto [yt, gt] = jit(value_and_grad(program(true)))(Tensor(at));
    // XLA rounds a product and a sum once where it fuses them, and a tap stands between: equal up
    // to that.
    EXPECT_FLOAT_EQ(y.item<float>(), yt.item<float>());
    EXPECT_FLOAT_EQ(g.item<float>(), gt.item<float>());
    const auto [ye, ge] = value_and_grad(program(false))(Tensor(at));
    const auto [yte, gte] = value_and_grad(program(true))(Tensor(at));
    EXPECT_EQ(ye.item<float>(), yte.item<float>());
    EXPECT_EQ(ge.item<float>(), gte.item<float>());
  }
  barrier();
}

}  // namespace
}  // namespace postern
