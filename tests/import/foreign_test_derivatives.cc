// Functions of another side that bring derivatives, types, state and memory of their own.
#include <dlpack/dlpack.h>
#include <postern/c.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "support.h"

namespace postern::test {
namespace {

/// The other side: knows 2x^3 and, when asked again, any derivative of it.
class Asked : public testing::Test {
 protected:
  void SetUp() override {
    register_function("other.cube", [this](const Attributes& a, float x) {
      ++asked[a.get<std::int64_t>("order")];
      float factor = 2;
      for (std::int64_t i = 0; i < a.get<std::int64_t>("order"); ++i)
        factor *= static_cast<float>(3 - i);
      return factor * std::pow(x, static_cast<float>(3 - a.get<std::int64_t>("order")));
    });
  }
  void TearDown() override { unregister_function("other.cube"); }

  static Tensor cube(const Tensor& x, std::int64_t order = 0) {
    const auto value = [order](Tensor v) {
      return call({.name = "cube"}, v.type(), Named{"other.cube", {{"order", order}}}, v);
    };
    return custom_vjp(
        value,
        [order](Tensor v) {
          return std::pair{cube(v, order), v};
        },
        [order](Tensor v, Tensor ct) { return cube(v, order + 1) * ct; })(x);
  }

  std::map<std::int64_t, int> asked;
};
using ForeignDerivatives = Asked;

Tensor foreign_sin(const Tensor& x) {
  return call_with_vjp(
      {.name = "foreign_sin"}, x.type(), [](float v) { return std::sin(v); },
      [](float v, float, float ct, View<float> to_v) { to_v[0] = std::cos(v) * ct; }, x);
}

TEST_F(ForeignDerivatives, AFunctionBringsItsOwnDerivative) {
  RecordProperty("covers", "FOREIGN-01 FOREIGN-07");
  EXPECT_NEAR(foreign_sin(Tensor(3.0f)).item<float>(), 0.14112, 1e-5);
  EXPECT_NEAR(jit(foreign_sin)(Tensor(3.0f)).item<float>(), 0.14112, 1e-5);
  auto f = [](Tensor x) { return 3.0f * foreign_sin(2.0f * x); };
  EXPECT_NEAR(jit(grad(f))(Tensor(4.0f)).item<float>(), -0.873000, 1e-5);
  EXPECT_EQ(jit(vmap(grad(f)))(tensor<float>({4, 4})).to_vector<float>()[1],
            jit(grad(f))(Tensor(4.0f)).item<float>());
  expect_error<TypeError>([&] { jvp(f, std::tuple{4.0f}, std::tuple{1.0f}); },
                          {"reverse mode only", "foreign_test_derivatives.cc"});
}

TEST_F(ForeignDerivatives, ContainersGoForwardAndBackward) {
  RecordProperty("covers", "FOREIGN-02");
  using Map = std::map<std::string, Tensor>;
  auto loss = [](std::vector<Tensor> x) {
    const Map y = call_with_vjp(
        Map{{"a", x[0]}, {"b", x[0]}},
        [](float v, float w) {
          return std::tuple{2 * v, v * w};
        },
        [](float v, float w, float, float, float ca, float cb, View<float> to_v, View<float> to_w) {
          to_v[0] = 2 * ca + w * cb;
          to_w[0] = v * cb;
        },
        x);
    return 3.0f * y.at("a") + 4.0f * y.at("b");
  };
  const auto g = jit(grad(loss))(std::vector{Tensor(5.0f), Tensor(6.0f)});
  EXPECT_EQ(g[0].item<float>(), 30);
  EXPECT_EQ(g[1].item<float>(), 20);
}

TEST_F(ForeignDerivatives, AnyOrderByAskingAgain) {
  RecordProperty("covers", "FOREIGN-03");
  auto f = [](Tensor x) { return cube(x); };
  const Tensor x(5.0f);
  EXPECT_EQ(jit(f)(x).item<float>(), 250);
  EXPECT_EQ(jit(grad(f))(x).item<float>(), 150);
  EXPECT_EQ(jit(grad(grad(f)))(x).item<float>(), 60);
  EXPECT_EQ(grad(grad(grad(f)))(x).item<float>(), 12);
  asked.clear();
  EXPECT_EQ(jit(grad(grad(grad(grad(f)))))(x).item<float>(), 0);
  EXPECT_EQ(asked, (std::map<std::int64_t, int>{{4, 1}})) << "lower orders are not needed";
}

TEST_F(ForeignDerivatives, InputsWithoutInfluenceAndIntegers) {
  RecordProperty("covers", "FOREIGN-05");
  int cotangents = 0;
  auto scaled = [&](auto vjp_fn) {
    return [&, vjp_fn](Tensor x, Tensor unused, Tensor times) {
      return call_with_vjp(
          {.name = "scaled"}, x.type(),
          [](float v, float, std::int32_t n) { return v * static_cast<float>(n); }, HostVjp(vjp_fn),
          x, unused, times);
    };
  };
  const Tensor x(3.0f), unused(7.0f), n(4);
  auto good = [&](float, float, std::int32_t times, float, float ct, View<float> to_x,
                  View<float> to_unused) {
    to_x[0] = ct * static_cast<float>(times);
    to_unused[0] = 0;  // says so
    ++cotangents;
  };
  const auto [to_x, to_unused] = jit(grad<0, 1>(scaled(good)))(x, unused, n);
  EXPECT_EQ(to_x.item<float>(), 4);
  EXPECT_EQ(to_unused.item<float>(), 0);
  EXPECT_EQ(cotangents, 1);
  auto missing = [](float, float, std::int32_t, float, float ct) {
    return std::tuple{Tensor(ct), Tensor()};
  };
  expect_error<CallbackError>(
      [&] { std::get<0>(jit(grad<0, 1>(scaled(missing)))(x, unused, n)).block_until_ready(); },
      {"call 'scaled vjp' at foreign_test_derivatives.cc", "(cotangent of operand 1)",
       "an empty Tensor"},
      ErrorCode::bad_result);
}

// What the other side keeps goes as a residual's values: it lives as long as they do, whatever
// becomes of the runs.
TEST_F(ForeignDerivatives, StateIsAResidual) {
  const Type state = type<std::uint8_t>({8});
  auto tape = [state](Tensor v) {
    return call(
        {.name = "forward"}, std::tuple{v.type(), state},
        [](float x, View<float> y, View<std::uint8_t> kept) {
          const double slope = std::exp(static_cast<double>(x));
          y[0] = static_cast<float>(slope);
          std::memcpy(kept.data(), &slope, sizeof slope);
        },
        v);
  };
  auto f = custom_vjp([=](Tensor v) { return std::get<0>(tape(v)); },
                      [=](Tensor v) {
                        const auto [y, kept] = tape(v);
                        return std::pair{y, kept};
                      },
                      [](Tensor kept, Tensor ct) {
                        return call(
                            {.name = "backward"}, ct.type(),
                            [](View<const std::uint8_t> bytes, float up) {
                              double slope = 0;
                              std::memcpy(&slope, bytes.data(), sizeof slope);
                              return up * static_cast<float>(slope);
                            },
                            kept, ct);
                      });
  const auto [y, pullback] = vjp(f, Tensor(1.0f));
  const float first = std::get<0>(pullback(Tensor(2.0f))).item<float>();
  EXPECT_NEAR(first, 2 * std::exp(1.0f), 1e-5);
  EXPECT_EQ(std::get<0>(pullback(Tensor(2.0f))).item<float>(), first);
  EXPECT_EQ(jit(grad(f))(Tensor(1.0f)).item<float>(), first / 2);
}

TEST_F(ForeignDerivatives, TypesOfResultsAreAskedForWhileTracing) {
  RecordProperty("covers", "FOREIGN-08");
  int asked_for_types = 0;
  auto shape_of = [&](const Type& in) {
    ++asked_for_types;
    return make_type(in.dtype, {in.dims[0] * 2});
  };
  const auto f = jit([&](Tensor v) {
    return call(
        {.name = "twice"}, shape_of(v.type()),
        [](View<const float> in) {
          return std::vector<float>(static_cast<std::size_t>(in.size() == 5 ? 9 : 2 * in.size()),
                                    in[0]);
        },
        v);
  });
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(f(tensor<float>({1, 2})).to_vector<float>(), (std::vector<float>{1, 1, 1, 1}));
  EXPECT_EQ(asked_for_types, 1);
  EXPECT_EQ(f(tensor<float>({3})).size(), 2);
  EXPECT_EQ(asked_for_types, 2);
  expect_error<CallbackError>(
      [&] {
        f(tensor<float>({1, 2, 3, 4, 5})).block_until_ready();
      },
      {"call 'twice' at foreign_test_derivatives.cc", "declared f32[10]", "f32[9]"},
      ErrorCode::bad_result);
}

TEST_F(ForeignDerivatives, MemoryAndThreadsAreTheOthers) {
  RecordProperty("covers", "FOREIGN-09");
  const auto f = jit([](Tensor v) { return call({.name = "f"}, v.type(), Named{"other.f"}, v); });
  const std::string text = saved_text(f.lower(iota<float>(1024)));
  pn_program* program = nullptr;
  pn_bridge* bridge = nullptr;
  ASSERT_EQ(pn_load_text(text.data(), text.size(), &program), PN_OK) << pn_last_error();
  ASSERT_EQ(pn_bridge_create(&bridge), PN_OK);
  ASSERT_EQ(pn_bridge_serve(bridge, "other.f", 0), PN_OK);
  std::set<const void*> seen;
  std::set<std::thread::id> threads;
  const void* filled = nullptr;
  std::thread host([&] {
    const pn_request* r = nullptr;
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(pn_bridge_next(bridge, 20'000'000'000, &r), PN_OK) << pn_last_error();
      threads.insert(std::this_thread::get_id());
      seen.insert(r->firing.operands[0].data);
      filled = r->firing.results[0].data;
      std::memset(r->firing.results[0].data, 0, 4096);
      if (i < 4)
        pn_bridge_reply(bridge, r->tag, nullptr, 0);
      else
        pn_bridge_fail(bridge, r->tag, PN_THREW, "jax.errors.ShapeError: not today");
    }
  });
  alignas(64) static float data[1024];
  std::int64_t dims[] = {1024};
  int freed = 0;
  DLManagedTensor managed{{data, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, dims, nullptr, 0},
                          &freed,
                          [](DLManagedTensor* self) { ++*static_cast<int*>(self->manager_ctx); }};
  pn_tensor* x = nullptr;
  ASSERT_EQ(pn_tensor_from_dlpack(&managed, &x), PN_OK) << pn_last_error();
  for (int i = 0; i < 4; ++i) {
    pn_tensor* y = nullptr;
    DLManagedTensor* shown = nullptr;
    ASSERT_EQ(pn_run(program, &x, 1, &y), PN_OK) << pn_last_error();
    ASSERT_EQ(pn_tensor_to_dlpack(y, &shown), PN_OK) << pn_last_error();
    EXPECT_EQ(shown->dl_tensor.data, filled);
    pn_tensor_free(y);
    static_cast<float*>(shown->dl_tensor.data)[0] = 1;  // still there
    shown->deleter(shown);
  }
  pn_tensor* y = nullptr;
  EXPECT_EQ(pn_run(program, &x, 1, &y), PN_THREW);
  EXPECT_TRUE(has(pn_last_error(), "jax.errors.ShapeError: not today")) << pn_last_error();
  host.join();
  EXPECT_EQ(seen, (std::set<const void*>{data}));
  EXPECT_EQ(threads.size(), 1u);
  pn_program_free(program);
  pn_bridge_free(bridge);
  EXPECT_EQ(freed, 0);
  pn_tensor_free(x);
  EXPECT_EQ(freed, 1);
  unregister_function("other.f");
}

}  // namespace
}  // namespace postern::test
