// Runs seen through the PJRT boundary: handlers, the context that a run carries to them, events.
#include "pjrt_test.h"

#include <thread>

namespace postern::internal::pjrt {
namespace {

using namespace std::chrono_literals;

TEST(PjrtFfi, RunsFindTheirOwnUserData) {
  register_handlers();
  const Executable offset = client().compile(offset_text);
  const Buffer input = to_device(one_to_four, {4});
  Probe one{.offset = 1000}, two{.offset = 2000};
  ExecuteContext first(plugin()), second(plugin());
  first.add(probe_type(), &one);
  second.add(probe_type(), &two);
  auto many = [&](const ExecuteContext& context, float expected) {
    for (int i = 0; i < 200; ++i)
      EXPECT_EQ(to_host(run(offset, {&input}, {.context = &context}))[0], expected);
  };
  std::thread other([&] { many(second, 2101); });
  many(first, 1101);
  other.join();
  EXPECT_EQ(one.calls, 200);
  EXPECT_EQ(two.calls, 200);
}

TEST(PjrtFfi, OneContextServesRunsAtOnce) {
  register_handlers();
  const Executable offset = client().compile(offset_text);
  const Buffer input = to_device(one_to_four, {4});
  Probed with;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i)
        run(offset, {&input}, {.context = &with.context}).ready().await();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(with.probe.calls, 800);
}

TEST(PjrtFfi, AContextHoldsOnePointerForEachType) {
  Probed with;
  ExecuteContext moved = std::move(with.context);
  EXPECT_FALSE(with.context);
  EXPECT_THROW(moved.add(probe_type(), &with.probe), Error);
}

TEST(PjrtFfi, MissingUserDataIsSeen) {
  register_handlers();
  const Executable offset = client().compile(offset_text);
  const Buffer input = to_device(one_to_four, {4});
  const ExecuteContext empty(plugin());
  for (const Launch& launch : {Launch{}, Launch{.context = &empty}}) {
    const auto error = error_of<Error>([&] { run(offset, {&input}, launch).ready().await(); });
    EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
    EXPECT_TRUE(contains(error.what(), "this run has no probe")) << error.what();
  }
}

TEST(PjrtFfi, AHandlersErrorKeepsCodeAndText) {
  register_handlers();
  // Run inline, the call itself throws; run on a thread, the output's event has the error.
  const Executable cheap = client().compile(call_text("pjrt_test_refuse"));
  const auto thrown = error_of<Error>([&] { cheap.execute({}, {}); });
  EXPECT_EQ(thrown.code(), ErrorCode::out_of_range);
  EXPECT_TRUE(contains(thrown.what(), "the bridge is out")) << thrown.what();

  const Executable heavy = client().compile(heavy_text("pjrt_test_refuse"));
  const Buffer input = heavy_input();
  Event complete;
  const Buffer output = run(heavy, {&input}, {.complete = &complete});
  const auto waited = error_of<Error>([&] { output.ready().await(); });
  EXPECT_EQ(waited.code(), ErrorCode::out_of_range);
  EXPECT_TRUE(contains(waited.what(), "the bridge is out")) << waited.what();
  EXPECT_TRUE(complete.wait_for(10s));
  ASSERT_TRUE(complete.error());
  EXPECT_TRUE(contains(complete.error()->text, "the bridge is out"));
  EXPECT_THROW(to_host(output), Error);
  EXPECT_NO_THROW(run(client().compile(heavy_text("pjrt_test_sleep")), {&input})
                      .ready()
                      .await());  // the client stays usable
}

TEST(PjrtFfi, ANameKeepsItsHandler) {
  register_handlers();
  EXPECT_NO_THROW(register_handler(plugin(), "pjrt_test_sleep", sleep, "Host"));
  EXPECT_EQ(
      error_of<Error>([] { register_handler(plugin(), "pjrt_test_sleep", refuse, "Host"); }).code(),
      ErrorCode::already_exists);
}

TEST(PjrtEvent, TimedWaits) {
  register_handlers();
  const Executable heavy = client().compile(heavy_text("pjrt_test_sleep"));
  const Buffer input = heavy_input();
  Event complete;
  const Buffer output = run(heavy, {&input}, {.complete = &complete});
  EXPECT_FALSE(complete.is_ready());
  EXPECT_FALSE(complete.wait_for(10ms));
  EXPECT_FALSE(complete.wait_for(-1ns));
  EXPECT_FALSE(complete.error());
  EXPECT_TRUE(complete.wait_for(std::chrono::nanoseconds::max()));
  EXPECT_TRUE(complete.is_ready());
  EXPECT_TRUE(complete.wait_for(0ns));
  EXPECT_FALSE(complete.error());
  EXPECT_NO_THROW(complete.await());
}

TEST(PjrtEvent, DroppedBeforeItIsReady) {
  register_handlers();
  const Executable heavy = client().compile(heavy_text("pjrt_test_sleep"));
  const Buffer input = heavy_input();
  Buffer output;
  {
    Event complete;
    output = run(heavy, {&input}, {.complete = &complete});
    EXPECT_FALSE(complete.wait_for(1ms));  // its waiter outlives it
  }
  EXPECT_NO_THROW(output.ready().await());
}

TEST(PjrtEvent, CallbacksComeWithTheError) {
  register_handlers();
  struct Seen {
    std::atomic<int> calls{0};
    ErrorCode code = ErrorCode::ok;
    std::string text;
  } seen;
  const Executable heavy = client().compile(heavy_text("pjrt_test_refuse"));
  const Buffer input = heavy_input();
  const Buffer output = run(heavy, {&input});
  auto note = [](void* user, const Failure* failure) noexcept {
    auto* to = static_cast<Seen*>(user);
    if (failure) {
      to->code = failure->code;
      to->text = failure->text;
    }
    to->calls.fetch_add(1, std::memory_order_release);
  };
  Event ready = output.ready();
  ready.on_ready(note, &seen);
  ASSERT_TRUE(ready.wait_for(10s));
  for (int i = 0; i < 1000 && seen.calls.load(std::memory_order_acquire) == 0; ++i)
    std::this_thread::sleep_for(1ms);
  ASSERT_EQ(seen.calls, 1);
  EXPECT_EQ(seen.code, ErrorCode::out_of_range);
  EXPECT_TRUE(contains(seen.text, "the bridge is out")) << seen.text;
  Seen late;
  input.ready().on_ready(note, &late);  // already ready: at once
  EXPECT_EQ(late.calls, 1);
  EXPECT_EQ(late.code, ErrorCode::ok);
}

}  // namespace
}  // namespace postern::internal::pjrt
