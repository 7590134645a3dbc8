// call: from the program to the function and back.
#include "platform/cuda_fake.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using test::error_of, test::expect_error, test::has;
using Floats = std::vector<float>;
using Ints = std::vector<int>;

void add_one(View<const float> in, View<float> out) {
  for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] + 1;
}

TEST(Call, SendsTheOperandAndBringsBackTheResult) {
  RecordProperty("covers", "CALL-01");
  Floats seen;
  auto f = [&](Tensor x) {
    return call(
        x.type(),
        [&](float v) {
          seen.push_back(v);
          return v + 1;
        },
        x);
  };
  EXPECT_EQ(jit(f)(Tensor(0.0f)).item<float>(), 1);
  EXPECT_EQ(seen, (Floats{0}));
  EXPECT_EQ(jit(f, {.mode = Mode::evaluate})(Tensor(0.0f)).item<float>(), 1);
  EXPECT_EQ(seen, (Floats{0, 0}));
  EXPECT_EQ(f(Tensor(0.0f)).item<float>(), 1);
  EXPECT_EQ(seen, (Floats{0, 0, 0}));
}

TEST(Call, TemplatesOfEveryForm) {
  RecordProperty("covers", "CALL-03");
  auto text = [](auto out, Type type) {
    auto program = jit([=](Tensor x) {
                     return leaves(call(
                         out, [](float v, View<float> r) { r[0] = v; }, x));
                   }).program(abstract(postern::type<float>()));
    EXPECT_EQ(program.outputs(), std::vector{type});
    return program.text();
  };
  const Type scalar = type<float>();
  const std::string want = text(scalar, scalar);
  EXPECT_EQ(text(7.0f, scalar), want);
  EXPECT_EQ(text(Tensor(7.0f), scalar), want);
  EXPECT_EQ(text(abstract(scalar), scalar), want);
  EXPECT_TRUE(has(text(std::vector{scalar}, scalar), "f32[]"));
  EXPECT_TRUE(
      has(text(std::tuple(std::map<std::string, Type>{{"a", type<float>({2})}}), type<float>({2})),
          "f32[2]"));
}

TEST(Call, ABadTemplateIsRefusedWithItsPathAndSite) {
  RecordProperty("covers", "CALL-03");
  auto refused = [](auto out, std::initializer_list<std::string_view> parts) {
    auto f = [=](Tensor x) {
      return leaves(call(
                        {.name = "shaped"}, out, [](float, View<float>, View<float>) {}, x))
          .front();
    };
    expect_error<TypeError>([&] { jit(f)(Tensor(1.0f)); }, parts);
    expect_error<TypeError>([&] { f(Tensor(1.0f)); }, parts);
  };
  const Type good = type<float>();
  refused(std::tuple(good, Type{DType::f32, {2, -1}}), {"shaped", "[1]", "-1", "call_test.cc"});
  refused(std::tuple(good, Type{DType::token, {}}), {"shaped", "[1]", "token", "call_test.cc"});
  refused(std::vector<Tensor>{abstract(good), Tensor()}, {"shaped", "[1]", "call_test.cc"});
  refused(std::map<std::string, Type>{{"a", good}, {"b", {DType::f32, {-3}}}},
          {"shaped", ".b", "-3", "call_test.cc"});
}

TEST(Call, TracingAndCompilingFireNothing) {
  RecordProperty("covers", "CALL-04 IR-02");
  int fired = 0;
  auto f = jit([&](Tensor x) {
    return call(
        {.effect = Effect::ordered}, x.type(),
        [&](float v) {
          ++fired;
          return v;
        },
        x);
  });
  f.program(Tensor(1.0f)).text();
  f.lower(Tensor(1.0f)).stablehlo();
  if (plugin_info().calls_back) f.compile(abstract(type<float>()));
  EXPECT_EQ(fired, 0);
  f(Tensor(1.0f)).block_until_ready();
  EXPECT_EQ(fired, 1);
}

TEST(Call, ResultsMayDifferFromOperands) {
  RecordProperty("covers", "CALL-05");
  auto f = jit([](Tensor x) {
    return std::pair(call(
                         type<float>({3}),
                         [](View<const int> in, View<float> out) {
                           std::copy(in.begin(), in.end(), out.begin());
                         },
                         x),
                     call(
                         type<double>({2, 2}),
                         [](View<const int> in, View<double> out) {
                           out(1, 0) = in[2];
                           out(0, 1) = 0.5;
                         },
                         x));
  });
  auto [same, other] = f(tensor<int>({1, 2, 3}));
  EXPECT_EQ(same.to_vector<float>(), (Floats{1, 2, 3}));
  EXPECT_EQ(to_string(other.type()), "f64[2,2]");
  EXPECT_EQ(other.to_vector<double>()[2], 3);
}

TEST(Call, ContainersKeepTheirStructure) {
  RecordProperty("covers", "CALL-07");
  auto swap = [](float a, float b, View<float> first, View<float> second) {
    first[0] = b;
    second[0] = a;
  };
  auto f = jit([&](Tensor x) {
    auto [first, second] = call(std::pair(x, x), swap, std::pair(x, x + 1.0f));
    return 2.0f * first + 3.0f * second;
  });
  EXPECT_EQ(f(Tensor(10.0f)).item<float>(), 2 * 11 + 3 * 10);

  auto nested = jit([](Tensor x) {
    return call(
        std::pair(x, std::pair(x, x)),
        [](float v, View<float> a, View<float> b, View<float> c) {
          a[0] = v;
          b[0] = v + 1;
          c[0] = v + 2;
        },
        x);
  });
  auto [a, bc] = nested(Tensor(1.0f));
  EXPECT_EQ(a.item<float>() + 10 * bc.first.item<float>() + 100 * bc.second.item<float>(), 321);

  using Lists = std::map<std::string, std::vector<Tensor>>;
  auto keyed = jit([](std::vector<Tensor> xs) {
    return call(
        Lists{{"sum", {xs[0]}}, {"both", {xs[0], xs[1]}}},
        [](float u, float v, View<float> both0, View<float> both1, View<float> sum) {
          both0[0] = u;
          both1[0] = v;
          sum[0] = u + v;
        },
        xs);
  });
  Lists out = keyed({Tensor(1.0f), Tensor(2.0f)});
  EXPECT_EQ(out.at("both")[1].item<float>(), 2);
  EXPECT_EQ(out.at("sum")[0].item<float>(), 3);
  EXPECT_EQ(out.size(), 2u);
}

TEST(Call, NoOperandsNoResults) {
  RecordProperty("covers", "CALL-08");
  auto ones = jit([] {
    return call(type<float>({4}), [](View<float> out) { std::fill(out.begin(), out.end(), 1.0f); });
  });
  EXPECT_EQ(ones().to_vector<float>(), (Floats{1, 1, 1, 1}));
  auto by_value = jit([] { return call(type<float>({2}), [] { return Floats{1, 2}; }); });
  EXPECT_EQ(by_value().to_vector<float>(), (Floats{1, 2}));

  for (Effect effect : {Effect::unordered, Effect::ordered}) {
    int fired = 0;
    auto f = jit([&](Tensor x) {
      call(
          {.effect = effect}, std::tuple<>(), [&](float) { ++fired; }, x);
      return x;
    });
    for (int i = 1; i <= 3; ++i) {
      f(Tensor(1.0f)).block_until_ready();
      EXPECT_EQ(fired, i);
    }
  }
  int alone = 0;
  auto nothing =
      jit([&] { call({.effect = Effect::unordered}, std::vector<Tensor>(), [&] { ++alone; }); });
  nothing();
  barrier();
  EXPECT_EQ(alone, 1);
  auto never = [](Tensor x) {
    call(
        {.name = "in vain"}, std::tuple<>(), [](float) {}, x);
    return x;
  };
  expect_error<TypeError>([&] { jit(never)(Tensor(1.0f)); }, {"in vain", "call_test.cc", "effect"});
  expect_error<TypeError>([&] { never(Tensor(1.0f)); }, {"in vain", "call_test.cc"});
}

TEST(Call, ClosuresKeepState) {
  RecordProperty("covers", "CALL-09");
  int count = 0;
  auto f = jit([&](Tensor x) {
    return call(
        x.type(), [&count](float v) { return v + float(++count); }, x);
  });
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(f(Tensor(0.0f)).item<float>(), float(i));
  auto own = jit([](Tensor x) {
    return call(
        x.type(), [n = 0](float v) mutable { return v + float(++n); }, x);
  });
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(own(Tensor(0.0f)).item<float>(), float(i));
}

struct Scaler {
  float factor;
  float scale(float v) const { return v * factor; }
  float operator()(float v) const noexcept { return v * factor; }
};

TEST(Call, CallablesOfEveryKind) {
  RecordProperty("covers", "CALL-09");
  auto gives = [](auto make) {
    auto f = jit([&](Tensor x) { return call(x.type(), make(), x); });
    return f(Tensor(3.0f)).template item<float>();
  };
  EXPECT_EQ(gives([] { return [p = std::make_unique<float>(2)](float v) { return v * *p; }; }), 6)
      << "move-only";
  EXPECT_EQ(gives([] { return Scaler{3}; }), 9) << "function object";
  static const Scaler four{4};
  EXPECT_EQ(
      gives([] { return std::function<float(float)>(std::bind_front(&Scaler::scale, &four)); }), 12)
      << "member function";
  EXPECT_EQ(gives([] { return &add_one; }), 4) << "function pointer";
  EXPECT_EQ(gives([]() -> decltype(auto) { return (add_one); }), 4) << "function";
  EXPECT_EQ(gives([] { return +[](float v) noexcept { return v; }; }), 3) << "noexcept";
}

TEST(Call, ANullFunctionIsRefused) {
  RecordProperty("covers", "ERR-17");
  auto f = [](auto fn) { return [fn](Tensor x) { return call(x.type(), fn, x); }; };
  expect_error<TypeError>([&] { jit(f(std::function<float(float)>()))(Tensor(1.0f)); },
                          {"null", "call_test.cc"});
  float (*none)(float) = nullptr;
  expect_error<TypeError>([&] { jit(f(none))(Tensor(1.0f)); }, {"null", "call_test.cc"});
  expect_error<TypeError>([&] { f(none)(Tensor(1.0f)); }, {"null", "call_test.cc"});
}

TEST(Call, UnusedPureCallsAreDropped) {
  RecordProperty("covers", "CALL-11");
  int pure = 0, unordered = 0, ordered = 0;
  auto f = [&](Tensor x) {
    call(
        x.type(),
        [&](float v) {
          ++pure;
          return v;
        },
        x);
    call(
        {.effect = Effect::unordered}, x.type(),
        [&](float v) {
          ++unordered;
          return v;
        },
        x);
    call(
        {.effect = Effect::ordered}, x.type(),
        [&](float v) {
          ++ordered;
          return v;
        },
        x);
    return x;
  };
  jit(f)(Tensor(1.0f)).block_until_ready();
  jit(f, {.mode = Mode::evaluate})(Tensor(1.0f));
  EXPECT_EQ(pure, 0);
  EXPECT_EQ(unordered, 2);
  EXPECT_EQ(ordered, 2);
  f(Tensor(1.0f));
  EXPECT_EQ(pure, 1) << "at once there is no program to prune";
}

TEST(Call, TwoCallsAreTwoSites) {
  RecordProperty("covers", "CALL-12");
  int fired = 0;
  auto fn = [&](float v) {
    ++fired;
    return v;
  };
  auto f = [&](Tensor x) { return call(x.type(), fn, x) + call(x.type(), fn, x); };
  EXPECT_EQ(jit(f)(Tensor(1.0f)).item<float>(), 2);
  EXPECT_EQ(fired, 2);
  EXPECT_EQ(jit(f, {.mode = Mode::evaluate})(Tensor(1.0f)).item<float>(), 2);
  EXPECT_EQ(fired, 4);
  f(Tensor(1.0f));
  EXPECT_EQ(fired, 6);
  auto loop = jit([&](Tensor x) {  // one place, three sites
    Tensor total = x;
    for (int i = 0; i < 3; ++i) total = total + call(x.type(), fn, x);
    return total;
  });
  loop(Tensor(1.0f)).block_until_ready();
  EXPECT_EQ(fired, 9);
}

TEST(Call, OrderedCallsKeepProgramOrder) {
  std::string order;
  auto f = jit([&](Tensor x) {
    std::vector<Tensor> out;
    for (char c = 'a'; c <= 'h'; ++c)
      out.push_back(call(
          {.effect = Effect::ordered}, x.type(),
          [&order, c](float v) {
            order += c;
            return v;
          },
          c % 2 ? x : out.front()));
    return out.back();
  });
  for (int i = 0; i < 3; ++i) f(Tensor(1.0f)).block_until_ready();
  EXPECT_EQ(order, "abcdefghabcdefghabcdefgh");
}

TEST(Call, AtOnceOnTheCallersThread) {
  RecordProperty("covers", "CALL-13");
  std::thread::id where;
  Tensor y = call(
      type<float>({2}),
      [&](float v) {
        where = std::this_thread::get_id();
        return Floats{v, v};
      },
      Tensor(1.0f));
  EXPECT_EQ(where, std::this_thread::get_id());
  EXPECT_EQ(y.to_vector<float>(), (Floats{1, 1}));
  auto wrong = [](Tensor x) {
    return call(
        {.name = "short"}, type<float>({3}),
        [](float) {
          return Floats{1, 2};
        },
        x);
  };
  const auto now = error_of<CallbackError>([&] { wrong(Tensor(1.0f)); });
  const auto compiled =
      error_of<CallbackError>([&] { jit(wrong)(Tensor(1.0f)).block_until_ready(); });
  ASSERT_TRUE(now && compiled);
  EXPECT_STREQ(now->what(), compiled->what());
  EXPECT_EQ(now->code(), ErrorCode::bad_result);
  // A function that looks for itself may say so too.
  auto says = [](Tensor x) {
    return call(
        x.type(), [](float) -> float { throw Error(ErrorCode::bad_result, "two things"); }, x);
  };
  const auto said = error_of<CallbackError>([&] { jit(says)(Tensor(1.0f)).block_until_ready(); });
  ASSERT_TRUE(said);
  EXPECT_EQ(said->code(), ErrorCode::bad_result);
}

TEST(Call, WhatTheFunctionIsTold) {
  RecordProperty("covers", "CALL-16");
  struct Told {
    std::string name, place;
    int device;
    std::uint64_t run;
    std::int64_t element;
    void* context;
  };
  std::vector<Told> told;
  const std::uint32_t line = __LINE__ + 4;
  auto f = jit([&](Tensor x) {
    return call(
        {.name = "spy"}, x.type(),
        // the function's line is the site
        [&](const CallInfo& info, float v) {
          told.push_back({std::string(info.name), to_string(info.place), info.device, info.run,
                          info.element, info.context});
          return v;
        },
        x);
  });
  for (int i = 0; i < 2; ++i) f(Tensor(1.0f)).block_until_ready();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].name, "spy");
  EXPECT_TRUE(has(told[0].place, "call_test.cc:")) << told[0].place;
  EXPECT_NEAR(double(std::stoul(told[0].place.substr(told[0].place.find(':') + 1))), line, 8);
  EXPECT_EQ(told[0].device, 0);
  EXPECT_EQ(told[0].element, -1);
  EXPECT_EQ(told[0].context, nullptr);
  EXPECT_LT(told[0].run, told[1].run);
}

TEST(Call, ManyThreadsRunOneProgram) {
  RecordProperty("covers", "CALL-18");
  auto f = jit([](Tensor x) {
    return call(
               x.type(),
               [](View<const int> in, View<int> out) {
                 out[0] = in[0] * 2;
                 out[1] = in[1];
               },
               x) +
           1;
  });
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 100; ++i)
          right += f(tensor<int>({t * 1000 + i, t})).to_vector<int>() ==
                   Ints{2 * (t * 1000 + i) + 1, t + 1};
      });
  }
  EXPECT_EQ(right, 800);
}

}  // namespace
}  // namespace postern
