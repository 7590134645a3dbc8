// call: what functions may take and return, and functions by name.
#include "support.h"

#include <Eigen/Core>

#include <numeric>

namespace postern {
namespace {

using test::error_of, test::expect_error, test::has;
using Floats = std::vector<float>;
using Ints = std::vector<int>;

/// What a call of `out` with this function gives for operands.
template <class Out, class F, class... X>
auto through(Out out, F fn, X... x) {
  return jit([&](X... traced) { return call(out, fn, traced...); })(x...);
}

TEST(Call, ReturnsOfEveryForm) {
  RecordProperty("covers", "CALL-22");
  const Type scalar = type<float>(), two = type<float>({2}), square = type<float>({2, 2});
  EXPECT_EQ(through(scalar, [] { return 42.0f; }).item<float>(), 42);
  EXPECT_EQ(through(scalar, [] { return Array<float>{{}, {42}}; }).item<float>(), 42);
  EXPECT_EQ(through(scalar, [] { return Tensor(42.0f); }).item<float>(), 42);
  EXPECT_EQ(through(two, [] { return Floats{4, 2}; }).to_vector<float>(), (Floats{4, 2}));
  EXPECT_EQ(through(two, [] { return std::array{4.0f, 2.0f}; }).to_vector<float>(), (Floats{4, 2}));
  EXPECT_EQ(through(two,
                    [] {
                      return tensor<float>({1, 2}) * 2.0f;
                    })
                .to_vector<float>(),
            (Floats{2, 4}))
      << "computed on a device";
  EXPECT_EQ(through(square,
                    [] {
                      return Array<float>{{2, 2}, {1, 2, 3, 4}};
                    })
                .to_vector<float>(),
            (Floats{1, 2, 3, 4}));
  EXPECT_EQ(through(
                square, [](View<const float> v) { return v; }, tensor<float>({1, 2, 3, 4}, {2, 2}))
                .to_vector<float>(),
            (Floats{1, 2, 3, 4}));
  EXPECT_EQ(through(type<bool>({3}),
                    [] {
                      return std::vector<bool>{true, false, true};
                    })
                .to_vector<bool>(),
            (std::vector<bool>{true, false, true}));
  EXPECT_EQ(through(type<bool>(), [] { return true; }).item<bool>(), true);
  const auto [a, b, c] = through(std::tuple(scalar, two, type<int>()), [] {
    return std::tuple(1.0f, Floats{2, 3}, 4);
  });
  EXPECT_EQ(a.item<float>(), 1);
  EXPECT_EQ(b.to_vector<float>(), (Floats{2, 3}));
  EXPECT_EQ(c.item<int>(), 4);
  const auto [d, e] = through(
      std::pair(scalar, type<double>()), [](float v) { return std::pair(v, double(v) / 2); },
      Tensor(3.0f));
  EXPECT_EQ(e.item<double>(), 1.5);
  EXPECT_EQ(through(std::vector{scalar}, [] { return std::tuple(1.0f); }).front().item<float>(), 1)
      << "a tuple of one";
}

TEST(Call, ParametersOfEveryForm) {
  Tensor x = tensor<float>({1, 2, 3}), n = Tensor(5);
  const Type out = type<float>();
  EXPECT_EQ(through(
                out, [](View<const float> v, int k) { return v[2] + float(k); }, x, n)
                .item<float>(),
            8);
  EXPECT_EQ(
      through(
          out, [](AnyView v, AnyView k) { return v.as<float>()[1] + float(k.as<int>()[0]); }, x, n)
          .item<float>(),
      7);
  EXPECT_EQ(
      through(
          out,
          [](std::span<const AnyView> all) { return all[0].as<float>()[0] + float(all.size()); }, x,
          n)
          .item<float>(),
      3);
  EXPECT_EQ(through(
                out,
                [](std::span<const AnyView> all, View<float> r) {
                  r[0] = all[0].as<float>()[0] + float(all[1].as<int>()());
                },
                x, n)
                .item<float>(),
            6);
  EXPECT_EQ(through(
                out,
                [](std::span<const AnyView>, std::span<const AnyMutableView> r) {
                  r[0].as<float>()[0] = 9;
                },
                x, n)
                .item<float>(),
            9);
  EXPECT_EQ(through(
                out,
                [](View<const float> v, AnyView, std::span<const AnyMutableView> r) {
                  r[0].as<float>()[0] = v[0];
                },
                x, n)
                .item<float>(),
            1);
  EXPECT_EQ(through(
                out,
                [](const View<const float>& v, const int& k, const AnyMutableView& r) {
                  r.as<float>()[0] = v[0] + float(k);
                },
                x, n)
                .item<float>(),
            6);
  EXPECT_EQ(
      through(
          out, [](const CallInfo&, const View<const float> v, int, View<float> r) { r[0] = v[1]; },
          x, n)
          .item<float>(),
      2);
}

TEST(Call, AnyViewsDescribeThemselves) {
  through(
      type<int>(),
      [](AnyView v) {
        EXPECT_EQ(v.dtype(), DType::f32);
        EXPECT_EQ(v.type(), type<float>({2, 3}));
        EXPECT_EQ(v.size(), 6);
        EXPECT_EQ(v.rank(), 2);
        EXPECT_EQ(v.byte_size(), 24u);
        EXPECT_EQ(v.as<float>()(1, 2), 6);
        expect_error<TypeError>([&] { v.as<double>(); }, {"f32", "f64"});
        return 0;
      },
      tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3}))
      .block_until_ready();
}

TEST(Call, ViewsIndexAndIterate) {
  auto f = [](View<const int> v) {
    EXPECT_EQ(v.size(), 24);
    EXPECT_EQ(v.dims()[2], 4);
    EXPECT_EQ(v(1, 2, 3), 23);
    EXPECT_EQ(v(0, 1, 2), 6);
    EXPECT_EQ(v[7], 7);
    EXPECT_EQ(v.span().back(), 23);
    return std::accumulate(v.begin(), v.end(), 0);
  };
  EXPECT_EQ(through(type<int>(), f, reshape(iota<int>(24), {2, 3, 4})).item<int>(), 276);
}

TEST(Call, ManyLeaves) {
  constexpr int n = 40;  // more than fit any small buffer
  std::vector<Tensor> in;
  for (int i = 0; i < n; ++i) in.push_back(Tensor(i));
  auto reverse = [](std::span<const AnyView> x, std::span<const AnyMutableView> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i].as<int>()[0] = x[x.size() - 1 - i].as<int>()[0];
  };
  auto f = jit([&](std::vector<Tensor> xs) { return call(xs, reverse, xs); });
  for (int round = 0; round < 2; ++round) {
    auto out = f(in);
    ASSERT_EQ(out.size(), std::size_t(n));
    for (int i = 0; i < n; ++i) EXPECT_EQ(out[std::size_t(i)].item<int>(), n - 1 - i);
  }
  EXPECT_EQ(call(in, reverse, in).front().item<int>(), n - 1) << "at once";
}

TEST(Call, NumbersAndCapturedTensorsAreOperands) {
  EXPECT_EQ(jit([](Tensor x) {
              return call(
                  x.type(), [](float a, float b, int c) { return a + b * float(c); }, x, 2.0f, 3);
            })(Tensor(1.0f))
                .item<float>(),
            7);
  const Tensor small = tensor<float>({1, 2}), large = iota<float>(100'000);
  auto f = jit([&](Tensor x) {
    return call(
        x.type(),
        [](float v, View<const float> s, View<const float> l) { return v + s[1] + l[99'999]; }, x,
        small, large);
  });
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 1 + 2 + 99'999);
  EXPECT_EQ(f(Tensor(2.0f)).item<float>(), 2 + 2 + 99'999);
}

TEST(Call, OperandsAreRowMajorWhateverTheLayout) {
  RecordProperty("covers", "CALL-14 TYPE-05");
  Tensor x = reshape(iota<float>(24), {2, 3, 4});
  auto f = jit([](Tensor v) {
    Tensor t = transpose(v * 1.0f, {2, 0, 1});
    return call(
        t.type(),
        [](View<const float> in, View<float> out) {
          EXPECT_EQ(in(3, 1, 2), 23);
          EXPECT_EQ(in(1, 0, 2), 9);
          std::copy(in.begin(), in.end(), out.begin());
        },
        t);
  });
  Tensor y = f(x);
  EXPECT_EQ(to_string(y.type()), "f32[4,2,3]");
  EXPECT_EQ(y.to_vector<float>(), transpose(x, {2, 0, 1}).to_vector<float>());
  EXPECT_EQ(transpose(y, {1, 2, 0}).to_vector<float>(), x.to_vector<float>());
  // Results in an order that the program turns around.
  auto turned = jit([](Tensor v) {
    return reverse(transpose(call(
                       v.type(), [](View<const float> in) { return in; }, v)),
                   {0});
  });
  EXPECT_EQ(turned(tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3})).to_vector<float>(),
            (Floats{3, 6, 2, 5, 1, 4}));
}

TEST(Call, InsideNestedJitAndOfAnothersResult) {
  auto inner = jit([](Tensor x) {
    return call(
        x.type(), [](float v) { return v + 1; }, x);
  });
  auto outer = jit([&](Tensor x) { return inner(inner(x)) * 2.0f; });
  EXPECT_EQ(outer(Tensor(1.0f)).item<float>(), 6);
  Tensor y = inner(Tensor(1.0f));  // perhaps not ready when it is used
  EXPECT_EQ(inner(inner(y)).item<float>(), 4);
}

TEST(Call, KeepsACopyWithCopyOf) {
  RecordProperty("covers", "LIFE-08");
  Tensor kept, any;
  through(
      type<int>(),
      [&](View<const float> v) {
        kept = Tensor::copy_of(v);
        any = Tensor::copy_of(AnyView(DType::f32, reinterpret_cast<const std::byte*>(v.data()),
                                      v.dims().data(), 2, 4));
        return 0;
      },
      tensor<float>({1, 2, 3, 4}, {2, 2}))
      .block_until_ready();
  EXPECT_EQ(to_string(kept.type()), "f32[2,2]");
  EXPECT_EQ(kept.to_vector<float>(), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(any.to_vector<float>(), (Floats{1, 2, 3, 4}));
}

TEST(Call, ByNameWithAttributes) {
  RecordProperty("covers", "CALL-10");
  register_function("call_test.scale", [](const Attributes& a, const CallInfo& info,
                                          View<const float> in, View<float> out) {
    EXPECT_TRUE(info.name == "times" || info.name == "call") << info.name;
    for (std::int64_t i = 0; i < in.size(); ++i)
      out[i] = in[i] * float(a.get<std::int64_t>("factor"));
  });
  auto named = [](Attributes attributes) {
    return jit([=](Tensor x) {
      return call({.name = "times"}, x.type(), Named{"call_test.scale", attributes}, x);
    });
  };
  EXPECT_EQ(named({{"factor", 3}})(Tensor(2.0f)).item<float>(), 6);
  EXPECT_EQ(
      call(type<float>(), Named{"call_test.scale", {{"factor", 4}}}, Tensor(2.0f)).item<float>(), 8)
      << "at once";
  for (const Attributes& wrong :
       {Attributes{}, Attributes{{"factor", 3.0}}, Attributes{{"factor", "three"}}}) {
    const auto e = error_of<CallbackError>([&] { named(wrong)(Tensor(2.0f)).item<float>(); });
    ASSERT_TRUE(e);
    EXPECT_TRUE(has(e->what(), "factor") && has(e->what(), "times")) << e->what();
    EXPECT_TRUE(test::cause_of<TypeError>(*e));
  }
  unregister_function("call_test.scale");
}

TEST(Call, AttributesOfEveryKind) {
  const Attributes all{{"yes", true},
                       {"int", 3},
                       {"real", 0.5},
                       {"text", "abc"},
                       {"ints", std::vector<std::int64_t>{1, 2}},
                       {"reals", std::vector<double>{0.5}},
                       {"words", std::vector<std::string>{"a", "b"}},
                       {"bits", std::vector<bool>{true, false}}};
  Attributes seen;
  register_function("call_test.attributes", [&](const Attributes& a) {
    seen = a;
    return 0;
  });
  through(type<int>(), Named{"call_test.attributes", all}).block_until_ready();
  EXPECT_EQ(seen, all);
  EXPECT_EQ(seen.get<std::vector<std::string>>("words")[1], "b");
  expect_error<TypeError>([&] { seen.get<double>("int"); }, {"int"});
  expect_error<TypeError>([&] { seen.get<double>("absent"); }, {"absent"});
  EXPECT_FALSE(seen.has("absent"));
  unregister_function("call_test.attributes");
}

TEST(Call, ParametersMustFitTheOperands) {
  RecordProperty("covers", "ERR-17 TYPE-12");
  auto refused = [](Type out, auto fn, Type in, std::initializer_list<std::string_view> parts) {
    auto f = [=](Tensor x) { return call({.name = "typed"}, out, fn, x); };
    expect_error<TypeError>([&] { jit(f).program(abstract(in)); }, parts,
                            ErrorCode::invalid_argument);
    expect_error<TypeError>([&] { f(zeros(in)); }, parts);
  };
  const Type scalar = type<float>(), three = type<int>({3});
  EXPECT_EQ(through(
                scalar, [](float v) { return v; }, Tensor(1.0f))
                .item<float>(),
            1);
  refused(scalar, [](float v) { return v; }, three,
          {"typed", "f32", "s32[3]", "call_test_forms.cc"});
  refused(scalar, [](float v) { return v; }, type<float>({1}), {"typed", "f32[1]"});
  refused(scalar, [](View<const float> v) { return v[0]; }, type<double>(),
          {"typed", "f32", "f64[]"});
  refused(scalar, [](float, float) { return 0.0f; }, scalar, {"typed", "2", "1", "f32[]"});
  refused(scalar, [] { return 0.0f; }, scalar, {"typed", "0", "1"});
  refused(scalar, [](float, View<float>, View<float>) {}, scalar, {"typed", "3"});
  refused(scalar, [](float) {}, scalar, {"typed", "result"});
  refused(scalar, [](float, View<double>) {}, scalar, {"typed", "f64", "f32[]"});
  refused(scalar, [](View<float>, View<float>) {}, scalar, {"typed", "f32"});
  refused(scalar, [](float, View<const float>) {}, scalar, {"typed", "f32"});
  refused(scalar, [](const TapInfo&, float v) { return v; }, scalar, {"typed", "TapInfo"});
  refused(scalar, [](const Attributes&, float v) { return v; }, scalar, {"typed", "Attributes"});
  refused(scalar, [](std::int64_t) { return 0.0f; }, type<int>(), {"typed", "s64", "s32"});
}

TEST(Call, OptionsOutOfRangeAreRefused) {
  RecordProperty("covers", "TIME-10");
  auto refused = [](CallOptions options, std::string_view part) {
    auto f = [=](Tensor x) {
      return call(
          options, x.type(), [](float v) { return v; }, x);
    };
    expect_error<TypeError>([&] { jit(f)(Tensor(1.0f)); }, {"odd", part, "call_test_forms.cc"});
  };
  using namespace std::chrono_literals;
  refused({.name = "odd", .timeout = -1ms}, "timeout");
  refused({.name = "odd", .warn_after = -1ms}, "warn_after");
  refused({.name = "odd", .device = -2}, "device");
  refused({.name = "odd", .device = 99}, "there is no device 99");
}

}  // namespace
}  // namespace postern
