// Mode::evaluate, the reference: host functions, errors, hooks, streams and blocks behave as in
// compiled programs.
#include "support.h"

namespace postern {
namespace {

using test::both_modes, test::error_of;
using Floats = std::vector<float>;
using Words = std::vector<std::string>;

TEST(Evaluate, HostFunctionsRunOnTheCallersThread) {
  RecordProperty("covers", "EVAL-02");
  std::vector<std::thread::id> threads;
  auto f = [&](Tensor x) {
    Tensor y = call(
        {.effect = Effect::ordered}, x.type(),
        [&](float a) {
          threads.push_back(std::this_thread::get_id());
          return a + 1;
        },
        x);
    return tap({}, y, [&](float) { threads.push_back(std::this_thread::get_id()); });
  };
  EXPECT_EQ(jit(f, {.mode = Mode::evaluate})(1.0f).item<float>(), 2);
  EXPECT_EQ(threads, std::vector(2, std::this_thread::get_id()));
}

TEST(Evaluate, ErrorsHaveTheSameKindAndText) {
  RecordProperty("covers", "EVAL-02");
  const auto wrong_shape = [](Tensor x) {
    return call(
        {.name = "wrong"}, type<float>({3}),
        [](float) {
          return Floats{1, 2};
        },
        x);
  };
  const auto throws = [](Tensor x) {
    return call(
        {.name = "throws"}, x.type(),
        [](float a) -> float { throw std::out_of_range("no " + std::to_string(int(a))); }, x);
  };
  const auto check = [](const auto& f, ErrorCode code) {
    const auto now = error_of<CallbackError>([&] { f(Tensor(7.0f)).block_until_ready(); });
    ASSERT_TRUE(now);
    EXPECT_EQ(now->code(), code) << now->what();
    for (const Mode mode : both_modes) {
      const auto e =
          error_of<CallbackError>([&] { jit(f, {.mode = mode})(7.0f).block_until_ready(); });
      ASSERT_TRUE(e);
      EXPECT_STREQ(e->what(), now->what());
      EXPECT_EQ(e->code(), code);
    }
  };
  check(wrong_shape, ErrorCode::bad_result);
  check(throws, ErrorCode::threw);
}

TEST(Evaluate, HostFunctionsCannotChangeWhatIsStillNeeded) {
  RecordProperty("covers", "EVAL-04");
  for (const Mode mode : both_modes) {
    Floats own;
    auto f = jit(
        [&](Tensor x) {
          Tensor y = x * 2.0f;
          Tensor z = call(
              {.effect = Effect::ordered}, y.type(),
              [&](View<const float> in, View<float> out) {
                own.assign(in.begin(), in.end());
                for (float& v : own) v = -1;
                for (float& v : out) v = -2;
              },
              y);
          return std::tuple{x, y, z, y + 1.0f};
        },
        {.mode = mode});
    const Tensor x = tensor<float>({1, 2});
    const auto [same, y, z, next] = f(x);
    EXPECT_EQ(same.to_vector<float>(), (Floats{1, 2}));
    EXPECT_EQ(y.to_vector<float>(), (Floats{2, 4}));
    EXPECT_EQ(z.to_vector<float>(), (Floats{-2, -2}));
    EXPECT_EQ(next.to_vector<float>(), (Floats{3, 5}));
    EXPECT_EQ(x.to_vector<float>(), (Floats{1, 2}));
    EXPECT_EQ(own, (Floats{-1, -1}));
  }
}

TEST(Evaluate, HooksAndTheirReplacements) {
  RecordProperty("covers", "EVAL-05");
  const auto events_of = [](Mode mode, int replaced) {
    Words events;
    const auto note = [&](const std::string& who) {
      return [&events, who](float v) { events.push_back(who + std::to_string(int(v))); };
    };
    auto f = jit(
        [&](Tensor x) {
          Tensor y = hook("double", x * 2.0f, note("default "));
          return fori_loop(
              0, 2, [&](Tensor, Tensor v) { return hook("next", v + 1.0f, note("in the loop ")); },
              y);
        },
        {.mode = mode});
    std::vector<HookBinding> listeners;
    if (replaced > 0) listeners.push_back({"double", note("first ")});
    if (replaced > 1) listeners.push_back({"next", note("second ")});
    f.with_hooks(listeners)(1.0f).template item<float>();
    barrier();
    return events;
  };
  EXPECT_EQ(events_of(Mode::evaluate, 0), (Words{"default 2", "in the loop 3", "in the loop 4"}));
  for (int replaced = 0; replaced < 3; ++replaced)
    EXPECT_EQ(events_of(Mode::evaluate, replaced), events_of(Mode::automatic, replaced));
}

struct Triple {
  static constexpr std::string_view name = "triple";
};

TEST(Evaluate, OverridesOfBlocksAreUsed) {
  RecordProperty("covers", "EVAL-06");
  if (test::skipped_in_stages("kernels are custom calls")) return;
  int kernel_calls = 0;
  auto f = jit(
      [](Tensor x) {
        return block(
            Triple(), [](Tensor v) { return v * 3.0f; }, x);
      },
      {.mode = Mode::evaluate});
  EXPECT_EQ(f(2.0f).item<float>(), 6);
  {
    auto handle = override_block<Triple>({.kernel = [&](View<const float> in, View<float> out) {
      ++kernel_calls;
      out[0] = 3 * in[0];
    }});
    auto g = jit(
        [](Tensor x) {
          return block(
              Triple(), [](Tensor v) { return v * 3.0f; }, x);
        },
        {.mode = Mode::evaluate});
    EXPECT_EQ(g(2.0f).item<float>(), 6);
    EXPECT_EQ(kernel_calls, 1);
    handle.remove();
  }
  EXPECT_EQ(f(2.0f).item<float>(), 6);
  EXPECT_EQ(kernel_calls, 1);
}

}  // namespace
}  // namespace postern
