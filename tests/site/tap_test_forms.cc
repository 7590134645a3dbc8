// What taps are told under transformations: recomputed ones in blocks, leaves without derivatives.
#include <fmt/format.h>
#include <postern/block.h>

#include <algorithm>
#include <mutex>

#include "support.h"

namespace postern::test {
namespace {

using Words = std::vector<std::string>;

struct Squared {
  static constexpr const char* name = "squared";
};

TEST(Tap, ATapInABlockUnderCheckpointIsToldThatItIsRecomputed) {
  Words seen;
  auto f = [&](Tensor x) {
    return checkpoint([&](Tensor v) {
      return block(
          Squared(),
          [&](Tensor w) {
            const Tensor s = tap(sin(w), [&](const TapInfo& info, float) {
              seen.push_back(info.recomputed ? "again" : "first");
            });
            return s * s;
          },
          v);
    })(x);
  };
  const Words want{"first", "again"};
  for (const Mode mode : test::all_modes) {
    jit(grad(f), {.mode = mode})(Tensor(2.0f)).item<float>();
    EXPECT_EQ(std::exchange(seen, {}), want) << "mode " << int(mode);
  }
  grad(f)(Tensor(2.0f)).item<float>();
  EXPECT_EQ(seen, want) << "at once";
}

TEST(Tap, FailuresInEqualBlocksNameTheirOwnLines) {
  register_function("tap_test.fails", [](float) { throw std::runtime_error("no"); },
                    {.replace = true});
  auto at = [](bool second, Tensor x) {
    return block(
        Squared(),
        [&](Tensor v) {
          return second ? tap(v, Named{"tap_test.fails"})  // their lines differ
                        : tap(v, Named{"tap_test.fails"});
        },
        x);
  };
  std::string texts[2];
  for (const bool second : {false, true}) {
    const auto e = error_of<CallbackError>([&] {
      at(second, Tensor(1.0f)).item<float>();
      barrier();
    });
    if (e) texts[second] = e->what();
  }
  EXPECT_NE(texts[0], texts[1]);
}

TEST(Tap, LeavesWithoutDerivativesShowZerosOfTheirShape) {
  Words seen;
  auto f = [&](Tensor x, Tensor n) {
    const auto [y, m] = tap(
        {.derivatives = true}, std::pair{x * x, n},
        [&](const TapInfo& info, std::span<const AnyView> leaves) {
          std::string text = to_string(info.transforms) + ":";
          for (const AnyView& leaf : leaves) {
            text +=
                " " + to_string(Type{leaf.dtype(), Dims(leaf.dims().begin(), leaf.dims().end())});
            const std::byte* bytes = leaf.data();
            if (leaf.dtype() == DType::pred &&
                std::any_of(bytes, bytes + leaf.size(), [](auto b) { return b != std::byte{}; }))
              text += " not zero";
          }
          seen.push_back(text);
        });
    return sum(y);
  };
  const Tensor x = tensor<float>({1, 2}), n = tensor<std::int32_t>({4, 5, 6});
  const Tensor xs = tensor<float>({1, 2, 3, 4}, {2, 2}),
               ns = tensor<std::int32_t>({4, 5, 6, 7, 8, 9}, {2, 3});
  auto tangent = [&](Tensor a, Tensor b) {
    return jvp([&](Tensor v) { return f(v, b); }, std::tuple{a}, std::tuple{a}).second;
  };
  auto gradient = [&](Tensor a, Tensor b) { return grad([&](Tensor v) { return f(v, b); })(a); };
  for (const Mode mode : test::both_modes) {
    SCOPED_TRACE(int(mode));
    auto run = [&](auto g, const Tensor& a, const Tensor& b) {
      jit(g, {.mode = mode})(a, b).block_until_ready();
      return std::exchange(seen, {});
    };
    EXPECT_EQ(run(tangent, x, n), (Words{"jvp: f32[2] s32[3] f32[2] pred[3]"}));
    EXPECT_EQ(run(gradient, x, n), (Words{": f32[2] s32[3]", "jvp,transpose: f32[2] pred[3]"}));
    EXPECT_EQ(run(vmap(tangent), xs, ns),
              (Words{"jvp,batch(0): f32[2,2] s32[2,3] f32[2,2] pred[2,3]"}));
    EXPECT_EQ(run(vmap(gradient), xs, ns),
              (Words{"batch(0): f32[2,2] s32[2,3]", "jvp,transpose,batch(0): f32[2,2] pred[2,3]"}));
  }
}

TEST(Tap, TangentsAloneAreShownForEachElement) {
  Words seen;
  auto show = [&](const TapInfo& info, std::span<const AnyView> leaves) {
    std::string text = to_string(info.transforms) + ":";
    for (const AnyView& leaf : leaves)
      text += " " + to_string(Type{leaf.dtype(), Dims(leaf.dims().begin(), leaf.dims().end())});
    seen.push_back(text);
  };
  auto pushed = [&](Tensor x, Tensor n) {
    auto of_x = [&](Tensor v) {
      return tap({.derivatives = true}, std::pair{n, v * v}, show).second;
    };
    const auto [y, push] = linearize(of_x, x);
    return push(x);
  };
  const Tensor xs = tensor<float>({1, 2, 3, 4}, {2, 2}),
               ns = tensor<std::int32_t>({4, 5, 6, 7, 8, 9}, {2, 3});
  for (const Mode mode : test::both_modes) {
    jit(vmap(pushed), {.mode = mode})(xs, ns).block_until_ready();
    EXPECT_EQ(std::exchange(seen, {}),
              (Words{"batch(0): s32[2,3] f32[2,2]", "jvp,batch(0): pred[2,3] f32[2,2]"}))
        << "mode " << int(mode);
  }
}

/// What fires of a function of one vector is the same in each mode and at once, also in order.
template <class G>
void expect_same_in_all_modes(const std::string& what, bool in_order, G make, const Tensor& x) {
  Words first;
  for (const char* mode : {"compiled", "staged", "evaluate", "at once"}) {
    Words seen;
    std::mutex guard;
    auto show = [&](const TapInfo& info, std::span<const AnyView> leaves) {
      const std::scoped_lock lock(guard);
      std::string text = to_string(info.transforms) + (info.recomputed ? " again:" : ":");
      for (const AnyView& leaf : leaves)
        for (std::int64_t i = 0; i < leaf.size(); ++i)
          text += fmt::format(" {:.4g}", leaf.as<float>().data()[i]);
      seen.push_back(text);
    };
    auto f = make(Callee(show));
    const std::string m = mode;
    if (m == "at once") f(x).block_until_ready();
    if (m == "compiled") jit(f)(x).block_until_ready();
    if (m == "staged") jit(f, {.mode = Mode::staged})(x).block_until_ready();
    if (m == "evaluate") jit(f, {.mode = Mode::evaluate})(x).block_until_ready();
    barrier();
    if (!in_order) std::ranges::sort(seen);
    if (m == "compiled") first = seen;
    EXPECT_GE(seen.size(), 2u);
    EXPECT_EQ(seen, first) << what << ", " << mode;
  }
}

TEST(Tap, UnderGradOfCheckpointAndVmapAllModesAgree) {
  const Tensor x = tensor<float>({0, 1, 2, 3});
  for (const bool async : {false, true})
    for (const int kind : {0, 1, 2}) {
      const bool ordered = kind != 1, derivatives = kind == 2;
      SCOPED_TRACE(fmt::format("async {} ordered {} derivatives {}", async, ordered, derivatives));
      const TapOptions options{.mode = async ? TapMode::async : TapMode::sync,
                               .ordered = ordered,
                               .derivatives = derivatives};
      auto f = [=](const Callee& show) {
        return [=](Tensor v) { return tap(options, sin(v), show) * tap(options, v, show); };
      };
      auto linear = [=](const Callee& show) {
        return [=](Tensor v) { return tap(options, v * 2.0f, show) + 1.0f; };
      };
      auto all = [&](const char* what, auto of) {
        expect_same_in_all_modes(
            fmt::format("{} a", what), ordered,
            [=](const Callee& show) {
              return grad([=](Tensor v) { return sum(checkpoint(vmap(of(show)))(v)); });
            },
            x);
        expect_same_in_all_modes(
            fmt::format("{} b", what), ordered,
            [=](const Callee& show) {
              return grad([=](Tensor v) { return sum(vmap(checkpoint(of(show)))(v)); });
            },
            x);
        expect_same_in_all_modes(
            fmt::format("{} c", what), ordered,
            [=](const Callee& show) { return vmap(grad(checkpoint(of(show)))); }, x);
        expect_same_in_all_modes(
            fmt::format("{} d", what), ordered,
            [=](const Callee& show) {
              return grad([=](Tensor v) {
                return sum(checkpoint(vmap([=](Tensor w) { return sin(of(show)(w)); }))(v));
              });
            },
            x);
      };
      all("f", f);
      all("linear", linear);
    }
}

}  // namespace
}  // namespace postern::test
