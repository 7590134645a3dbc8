// What taps are told under transformations: recomputed ones in blocks, leaves without derivatives.
#include <postern/block.h>

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
  for (const Mode mode : {Mode::compiled, Mode::staged, Mode::evaluate}) {
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
    const auto [y, m] =
        tap({.derivatives = true}, std::pair{x * x, n},
            [&](const TapInfo& info, std::span<const AnyView> leaves) {
              std::string text = to_string(info.transforms) + ":";
              for (const AnyView& leaf : leaves) {
                text += " " +
                        to_string(Type{leaf.dtype(), Dims(leaf.dims().begin(), leaf.dims().end())});
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
  for (const Mode mode : {Mode::compiled, Mode::evaluate}) {
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

}  // namespace
}  // namespace postern::test
