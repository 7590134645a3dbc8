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
  const auto one = [](Tensor a) {
    const auto tapped = [](Tensor v) {
      return tap({.name = "one", .derivatives = true}, v, [](float) {});
    };
    return jvp(tapped, a, a).second;
  };
  for (const Mode mode : test::all_modes)
    expect_error<TypeError>([&] { jit(one, {.mode = mode})(Tensor(1.0f)); }, {"one", "2 operands"});
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
  EXPECT_EQ(logged(log, grad([&](Tensor x) {
                     shown(2.0f * x);
                     return x * x;
                   }),
                   Tensor(5.0f))
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

TEST(Autodiff, TapsOfTangentsAloneAreNotShownAgain) {
  RecordProperty("covers", "AD-21");
  Log log;
  // The rule's tangent comes from a linear map, in which the tap has left its values behind; grad
  // splits that map once more.
  const auto linearized_by_its_rule = [](auto g) {
    return custom_jvp([](Tensor x) { return x * x; },
                      [g](std::tuple<Tensor> x, std::tuple<Tensor> dx) {
                        const auto [y, push] = linearize(g, std::get<0>(x));
                        return std::pair{y, push(std::get<0>(dx))};
                      });
  };
  const auto one = [&](Tensor x) { return tap({.derivatives = true}, x * x, log.shows()); };
  EXPECT_EQ(logged(log, grad(linearized_by_its_rule(one)), Tensor(3.0f)).item<float>(), 6);
  EXPECT_EQ(log.lines, (Strings{"9", "1 jvp,transpose"}));
  log.lines.clear();
  // The first leaf's tangent is a zero that is known.
  const auto two = [&](Tensor x) {
    return tap({.derivatives = true}, std::pair{stop_gradient(x), x * x}, log.shows()).second;
  };
  EXPECT_EQ(logged(log, grad(linearized_by_its_rule(two)), Tensor(3.0f)).item<float>(), 6);
  EXPECT_EQ(log.lines, (Strings{"3,9", "0,1 jvp,transpose"}));
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
        {.effect = Effect::unordered}, type<float>(),
        [&](float v) {
          ++effects;
          return v + 1;
        },
        stop_gradient(x));
    const Tensor b = call(
        type<float>(),
        [&](float v) {
          ++pure;
          return v + 1;
        },
        stop_gradient(x));
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

TEST(Autodiff, PowersOfZeroHaveEveryDerivative) {
  const auto forward = [](auto f) {
    return [f](Tensor x) { return jvp(f, std::tuple{x}, std::tuple{ones_like(x)}).second; };
  };
  for (int power = 0; power <= 4; ++power)
    for (const bool reverse : {true, false}) {
      std::function<Tensor(Tensor)> f = [=](Tensor x) { return pow(x, double(power)); };
      double at_zero = power == 0 ? 1 : 0, at_two = std::pow(2.0, power);
      for (int order = 0; order <= 6; ++order) {
        SCOPED_TRACE(fmt::format("derivative {} of x^{}", order, power));
        EXPECT_EQ(f(Tensor(0.0)).item<double>(), at_zero);
        EXPECT_NEAR(f(Tensor(2.0)).item<double>(), at_two, 1e-12 * at_two);
        f = reverse ? std::function<Tensor(Tensor)>(grad(f)) : forward(f);
        at_two *= (power - order) / 2.0;
        at_zero = order + 1 == power ? std::tgamma(power + 1.0) : 0;
      }
    }
}

}  // namespace
}  // namespace postern
