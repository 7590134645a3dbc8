// Hooks and functions that one run is given, through the C interface.
#include <postern/c.h>

#include <atomic>
#include <cstddef>
#include <mutex>

#include "support.h"

namespace postern::test {
namespace {

/// What a function of the host has seen, and whether it was let go of.
struct Seen {
  std::mutex guard;
  std::vector<float> first;
  std::string names;
  bool asynchronous = false;
  std::atomic<int> released{0};
  std::chrono::milliseconds takes{0};
};
int see(void* user, const pn_firing* f) {
  Seen& seen = *static_cast<Seen*>(user);
  std::this_thread::sleep_for(seen.takes);
  const std::scoped_lock lock(seen.guard);
  const float x = *static_cast<const float*>(f->operands[0].data);
  seen.first.push_back(x);
  seen.names += std::string(f->function) + "/" + f->site + " ";
  seen.asynchronous = f->asynchronous != 0;
  if (f->result_count > 0) *static_cast<float*>(f->results[0].data) = x * 10;
  return PN_OK;
}
pn_binding bound(const char* name, Seen& seen) {
  return {name, see, nullptr, &seen, [](void* user) { ++static_cast<Seen*>(user)->released; }};
}

class CBindings : public testing::Test {
 protected:
  template <class F>
  void load(F f) {
    const std::string text = saved_text(jit(f).lower(Tensor(1.0f)));
    ASSERT_EQ(pn_load_text(text.data(), text.size(), &program), PN_OK) << pn_last_error();
  }
  void SetUp() override {
    float one = 1;
    const pn_array array{PN_F32, 0, nullptr, &one, sizeof one};
    ASSERT_EQ(pn_tensor_copy(&array, &argument), PN_OK);
    options.size = sizeof options;
  }
  void TearDown() override {
    pn_program_free(program);
    pn_tensor_free(argument);
  }
  void give(const pn_binding* hooks, std::size_t hook_count, const pn_binding* functions = nullptr,
            std::size_t function_count = 0) {
    options.hooks = hooks;
    options.hook_count = hook_count;
    options.functions = functions;
    options.function_count = function_count;
  }
  int start(pn_started** run) { return pn_start_with(program, &argument, 1, &options, run); }
  float run() {
    pn_started* run = nullptr;
    EXPECT_EQ(start(&run), PN_OK) << pn_last_error();
    pn_tensor* result = nullptr;
    if (pn_started_wait(run, -1, &result) != PN_OK) {
      ADD_FAILURE() << pn_last_error();
      return 0;
    }
    pn_array array{};
    EXPECT_EQ(pn_tensor_view(result, &array), PN_OK);
    const float out = *static_cast<const float*>(array.data);
    pn_tensor_free(result);
    pn_started_free(run);
    return out;
  }

  pn_start_options options{};
  pn_program* program = nullptr;
  pn_tensor* argument = nullptr;
};

TEST_F(CBindings, AreEnteredInOneRunAndLetGoBehindIt) {
  load([](Tensor x) {
    const Tensor y = hook("live", x + 1.0f, {.live = true});
    hook("default", y, Named{"bindings_test.default"});
    return call({.name = "f"}, y.type(), Named{"bindings_test.f"}, y);
  });
  EXPECT_STREQ(pn_program_hook(program, 0), "default");
  EXPECT_STREQ(pn_program_hook(program, 1), "live");
  EXPECT_EQ(pn_program_hook(program, 2), nullptr);
  Seen hooks, registered, own;
  const pn_binding by_hook[] = {bound("live", hooks), bound("default", hooks)};
  const pn_binding by_function[] = {bound("bindings_test.f", own)};
  give(by_hook, 2, by_function, 1);
  EXPECT_EQ(run(), 20) << "although nobody registered them";
  EXPECT_EQ(hooks.names, "live/live default/default ");
  EXPECT_EQ(own.names, "bindings_test.f/f ");
  EXPECT_TRUE(wait_until([&] { return hooks.released == 2 && own.released == 1; }));
  for (const char* name : {"bindings_test.f", "bindings_test.default"})
    ASSERT_EQ(pn_register(name, see, &registered, nullptr, 1), PN_OK);
  EXPECT_EQ(run(), 20);
  EXPECT_TRUE(registered.first.empty()) << registered.names;
  give(nullptr, 0);
  EXPECT_EQ(run(), 20);
  EXPECT_EQ(registered.first.size(), 2U) << "the others are of runs that are over";
  EXPECT_EQ(own.first.size(), 2U);
  options.size = offsetof(pn_start_options, hooks);
  EXPECT_EQ(run(), 20) << "of a client of version 6";
  for (const char* name : {"bindings_test.f", "bindings_test.default"}) pn_unregister(name);
}

TEST_F(CBindings, OfAsynchronousTapsAreLetGoWhenAllIsDelivered) {
  load([](Tensor x) {
    return fori_loop(
        0, 5,
        [](Tensor, Tensor v) {
          return hook("seen", v + 1.0f, {.mode = TapMode::async, .live = true});
        },
        x);
  });
  Seen seen;
  seen.takes = 20ms;
  struct Told {
    Seen& seen;
    std::size_t at_end = 99, at_delivery = 0;
    std::atomic<bool> delivered{false};
  } told{seen};
  const pn_binding hooks[] = {bound("seen", seen)};
  give(hooks, 1);
  options.user = &told;
  options.ended = [](void* user) {
    Told& t = *static_cast<Told*>(user);
    const std::scoped_lock lock(t.seen.guard);
    t.at_end = t.seen.first.size();
  };
  options.delivered = [](void* user) {
    Told& t = *static_cast<Told*>(user);
    {
      const std::scoped_lock lock(t.seen.guard);
      t.at_delivery = t.seen.first.size();
    }
    t.delivered = true;  // last: the test may end, and the lock go
  };
  EXPECT_EQ(run(), 6);
  EXPECT_LT(seen.released, 1) << "while firings wait";
  EXPECT_TRUE(wait_until([&] { return told.delivered && seen.released == 1; }));
  EXPECT_LT(told.at_end, 5U);
  EXPECT_EQ(told.at_delivery, 5U);
  EXPECT_EQ(seen.first, (std::vector<float>{2, 3, 4, 5, 6}));
  EXPECT_TRUE(seen.asynchronous);
}

TEST_F(CBindings, MayBeABridge) {
  load([](Tensor x) { return call({.name = "f"}, x.type(), Named{"bindings_test.f"}, x); });
  pn_bridge* bridge = nullptr;
  ASSERT_EQ(pn_bridge_create(&bridge), PN_OK);
  Seen seen;
  const pn_binding functions[] = {{"bindings_test.f", nullptr, bridge, &seen,
                                   [](void* user) { ++static_cast<Seen*>(user)->released; }}};
  give(nullptr, 0, functions, 1);
  std::thread serves([&] {
    const pn_request* r = nullptr;
    EXPECT_EQ(pn_bridge_next(bridge, 20'000'000'000, &r), PN_OK) << pn_last_error();
    EXPECT_EQ(see(&seen, &r->firing), PN_OK);
    EXPECT_EQ(pn_bridge_reply(bridge, r->tag, nullptr, 0), PN_OK);
  });
  EXPECT_EQ(run(), 10);
  serves.join();
  EXPECT_TRUE(wait_until([&] { return seen.released == 1; }));
  pn_bridge_free(bridge);
}

TEST_F(CBindings, ThatMeanNothingAreRefusedAndStayTheCallers) {
  load([](Tensor x) { return hook("shown", x, Named{"bindings_test.f"}); });
  Seen seen;
  const auto refused = [&](const pn_binding& hook, const char* part) {
    give(&hook, 1);
    pn_started* run = nullptr;
    EXPECT_EQ(start(&run), PN_INVALID_ARGUMENT);
    EXPECT_TRUE(has(pn_last_error(), part)) << pn_last_error();
    EXPECT_EQ(run, nullptr);
  };
  refused(bound("other", seen), "the program has no hook 'other'; its hooks are [shown]");
  refused(bound("bindings_test.f", seen), "no hook 'bindings_test.f'");
  refused(bound(nullptr, seen), "hook 0 must have a name");
  refused(pn_binding{"shown", nullptr, nullptr, nullptr, nullptr}, "a function or a bridge");
  const pn_binding twice[] = {bound("shown", seen), bound("shown", seen)};
  give(twice, 2);
  pn_started* run = nullptr;
  EXPECT_EQ(start(&run), PN_INVALID_ARGUMENT);
  EXPECT_TRUE(has(pn_last_error(), "two functions are given for hook 'shown'"));
  const pn_binding unknown = bound("shown", seen);
  give(nullptr, 0, &unknown, 1);
  EXPECT_EQ(start(&run), PN_INVALID_ARGUMENT);
  EXPECT_TRUE(has(pn_last_error(), "no function 'shown'; its functions are [bindings_test.f]"))
      << pn_last_error();
  give(nullptr, 1);
  EXPECT_EQ(start(&run), PN_INVALID_ARGUMENT);
  EXPECT_EQ(seen.released, 0);
}

}  // namespace
}  // namespace postern::test
