// What is the user's - functions, their ends, what they throw, the texts of that - is come to under
// no lock of the library, at every door. Entering a function is asserted where it happens; this
// sweep looks at what is not called by its name.
#include "core/mutex.h"

#include <postern/block.h>
#include <postern/checkpoint.h>
#include <postern/live.h>

#include <functional>

#include "block/block_test.h"
#include "host/live_test.h"

namespace postern {
namespace {

using test::all_modes, test::counting, test::only, test::Steps, test::wait_until;
using namespace std::chrono_literals;

std::atomic<int> looks{0}, under_a_lock{0};
void look() {
  ++looks;
#ifndef NDEBUG
  under_a_lock += internal::locks_held > 0;
#endif
}

/// In what functions capture.
struct Watched {
  Watched() = default;
  Watched(const Watched&) { look(); }
  ~Watched() { look(); }
  Watched& operator=(const Watched&) = delete;
};
struct Thrown : std::exception {
  Thrown() = default;
  Thrown(const Thrown&) { look(); }
  ~Thrown() override { look(); }
  const char* what() const noexcept override {
    look();
    return "thrown";
  }
};

const Tensor one(1.0f);

auto adds(const Watched& w) {
  return [w](float v) { return v + 1; };
}

void expect_throws(const std::function<void()>& f) { EXPECT_THROW(f(), Error); }

void throwing_calls() {
  for (const Mode mode : all_modes)
    for (const auto limit : {0ms, 60'000ms}) {
      const auto f = jit(
          [&](Tensor x) {
            return call(
                {.timeout = limit}, x.type(), [](float) -> float { throw Thrown(); }, x);
          },
          {.mode = mode});
      expect_throws([&] { f(one).block_until_ready(); });
      auto run = f.start(one);
      expect_throws([&] { run.wait(); });
    }
}

void throwing_elements() {
  const auto f = jit(vmap([](Tensor x) {
    return call(
        {.vmap = VmapMethod::parallel}, x.type(), [](float) -> float { throw Thrown(); }, x);
  }));
  expect_throws([&] { f(iota<float>(64)).block_until_ready(); });
}

void throwing_started_calls() {
  for (const bool waits : {true, false})
    for (const Mode mode : all_modes) {
      const auto f = jit(
          [&](Tensor x) {
            const auto later = start_call(
                {.effect = Effect::unordered}, x.type(), [](float) -> float { throw Thrown(); }, x);
            start_call(
                {.effect = Effect::unordered}, std::tuple<>(), [](float) { throw Thrown(); }, x);
            return waits ? wait(later) : x + 1.0f;
          },
          {.mode = mode});
      expect_throws([&] {
        f(one).block_until_ready();
        barrier();
      });
      try {
        barrier();
      } catch (const Error&) {
      }
    }
}

void throwing_taps() {
  const auto f =
      jit([](Tensor x) { return tap({.mode = TapMode::async}, x, [](float) { throw Thrown(); }); });
  for (int i = 0; i < 40; ++i) f(one).block_until_ready();
  expect_throws([] { barrier(); });
}

/// Firings that are lost let go of what has kept the listener.
void lost_firings() {
  for (int i = 0; i < 3; ++i) {
    Steps steps;
    const auto run = counting(steps, 60).start(one);
    ASSERT_TRUE(steps.go_to(1));
    Listening on =
        only(hooks_of(run))
            .turn_on(Callee([w = Watched()](float) { std::this_thread::sleep_for(1ms); }),
                     {.mode = TapMode::async, .keep_last = 2});
    ASSERT_TRUE(steps.go_to(20));
    on.off();
    steps.finish();
    run.wait();
    barrier();
  }
}

void named_functions() {
  register_function("locks_test.f", adds(Watched()));
  const auto f = jit([](Tensor x) { return call({}, x.type(), Named{"locks_test.f"}, x); });
  EXPECT_EQ(f(one).item<float>(), 2);
  register_function("locks_test.f", adds(Watched()), {.replace = true});
  EXPECT_EQ(f(one).item<float>(), 2);
  expect_throws([] { register_function("locks_test.f", adds(Watched())); });
  EXPECT_TRUE(unregister_function("locks_test.f"));
  expect_throws([&] { f(one); });
}

void live_listeners() {
  Steps steps;
  const auto run = counting(steps, 30).start(one);
  ASSERT_TRUE(steps.go_to(1));
  const LiveHook hook = only(hooks_of(run));
  Listening on = hook.turn_on(Callee([w = Watched()](float) {}));
  on.change({.every = 2});
  const Listening until = hook.turn_on(Callee([w = Watched()](float) {}), {.until = 1});
  ASSERT_TRUE(steps.go_to(5));
  on = hook.turn_on(Callee([w = Watched()](float) {}));
  on.off();
  steps.finish();
  run.wait();
}

void the_programs_own_listener() {
  register_function("locks_test.own", [w = Watched()](float) {});
  const auto f =
      jit([](Tensor x) { return hook("own", x, {.live = true}, Named{"locks_test.own"}) + 1.0f; });
  f(one).block_until_ready();
  const LiveHook own = live_hooks().back();
  for (int i = 1; i < 4; ++i) {
    own.change({.every = i});
    register_function("locks_test.own", [w = Watched()](float) {}, {.replace = true});
    f(one).block_until_ready();
  }
  unregister_function("locks_test.own");
}

void overrides() {
  for (const Mode mode : all_modes) {
    const auto handle = override_block<test::Scale>(
        {.platform = "cpu",
         .when =
             [w = Watched()](const test::Scale&, std::span<const Type>) {
               look();
               return true;
             },
         .kernel =
             [w = Watched()](const test::Scale& s, View<const float> in, View<float> out) {
               for (std::int64_t i = 0; i < in.size(); ++i)
                 out[i] = in[i] * static_cast<float>(s.factor);
             }});
    const auto f = jit([](Tensor x) { return test::scale(x, 3); }, {.mode = mode});
    EXPECT_EQ(f(tensor<float>({1, 2})).to_vector<float>(), (std::vector<float>{3, 6}));
    EXPECT_TRUE(handle.remove());
  }
}

void where_to_cut() {
  const auto f = jit([](Tensor x) { return test::host_plus_one(x * 2.0f) * 3.0f; },
                     {.mode = Mode::staged,
                      .cut =
                          [w = Watched()](const StageNode&) {
                            look();
                            return Cut::none;
                          },
                      .stage_device =
                          [w = Watched()](const StageInfo&) {
                            look();
                            return -1;
                          }});
  EXPECT_EQ(f(one).item<float>(), 9);
}

void states() {
  const test::TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path());
  {
    const auto state = register_state(
        "locks_test",
        [w = Watched()] {
          look();
          return std::string("state");
        },
        [w = Watched()](std::string_view) { look(); });
    jit([&](Tensor x) { return tap(x, keep); })(one).block_until_ready();
    keep.wait();
    EXPECT_TRUE(resume<Tensor>(folder.path()));
  }
  barrier();
}

void prints() {
  const auto f = jit([](Tensor x) {
    print({.log = [w = Watched()](const PrintRecord&) { look(); }}, "{}", x);
    return x;
  });
  f(one).block_until_ready();
  barrier();
}

/// A run's own functions, and what is thrown in the last moment.
void runs_that_are_let_go() {
  const auto f = jit([w = Watched()](Tensor x) {
    return call({.name = "f"}, x.type(), adds(w), hook("h", x, {.live = true}));
  });
  for (int i = 0; i < 5; ++i) {
    auto run = f.start_with({.hooks = {{"h", Callee([w = Watched()](float) {})}}}, one);
    if (i % 2) run.cancel();
  }
  barrier();
  const auto late = jit([](Tensor x) {
    return call(
        {.timeout = 5ms}, x.type(),
        [w = Watched()](const CallInfo& info, float) -> float {
          wait_until([&] { return info.stop.stop_requested(); });
          throw Thrown();
        },
        x);
  });
  expect_throws([&] { late(one).block_until_ready(); });
  barrier();
}

TEST(Locks, NoneIsHeldWhereTheUsersCodeIsComeTo) {
  constexpr std::pair<const char*, void (*)()> doors[] = {
      {"calls that throw", throwing_calls},
      {"elements that throw", throwing_elements},
      {"started calls that throw", throwing_started_calls},
      {"taps that throw", throwing_taps},
      {"firings that are lost", lost_firings},
      {"named functions", named_functions},
      {"live listeners", live_listeners},
      {"the program's own listener", the_programs_own_listener},
      {"overrides", overrides},
      {"where to cut", where_to_cut},
      {"states", states},
      {"prints", prints},
      {"runs that are let go", runs_that_are_let_go},
  };
  for (const auto& [name, door] : doors) {
    looks = under_a_lock = 0;
    door();
    EXPECT_EQ(under_a_lock, 0) << name;
    EXPECT_GT(looks, 0) << name;
  }
}

}  // namespace
}  // namespace postern
