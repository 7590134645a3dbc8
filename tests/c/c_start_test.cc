// Runs that are started with more said: who is told of their end and prints, devices, deadlines;
// and bridges that take nothing more.
#include <postern/c.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "support.h"

namespace postern::test {
namespace {

using namespace std::chrono_literals;

/// What runs tell their host, which is there until none can tell it any more.
struct Told {
  Told() = default;
  ~Told() {
    EXPECT_TRUE(wait_until([&] { return released == started; })) << "some may still tell";
  }
  Told(const Told&) = delete;

  std::mutex guard;
  std::string text;
  std::atomic<int> ended{0}, released{0};
  int started = 0;
};
pn_start_options options_for(Told& told) {
  pn_start_options options{};
  options.size = sizeof options;
  options.print = [](void* user, const char* text, std::size_t size) {
    Told& t = *static_cast<Told*>(user);
    const std::scoped_lock lock(t.guard);
    t.text.append(text, size);
  };
  options.ended = [](void* user) { ++static_cast<Told*>(user)->ended; };
  options.release = [](void* user) { ++static_cast<Told*>(user)->released; };
  options.user = &told;
  return options;
}

/// A saved program of one f32[4], and an argument.
class CStart : public testing::Test {
 protected:
  template <class F>
  void load(F f) {
    const std::string text = saved_text(jit(f).lower(iota<float>(4)));
    ASSERT_EQ(pn_load_text(text.data(), text.size(), &program), PN_OK) << pn_last_error();
  }
  void SetUp() override {
    const std::int64_t dims[] = {4};
    const float numbers[] = {0, 1, 2, 3};
    const pn_array array{PN_F32, 1, dims, const_cast<float*>(numbers), sizeof numbers};
    ASSERT_EQ(pn_tensor_copy(&array, &argument), PN_OK);
    ASSERT_EQ(pn_bridge_create(&bridge), PN_OK);
    ASSERT_EQ(pn_bridge_serve(bridge, "start_test.f", 1), PN_OK);
  }
  void TearDown() override {
    pn_bridge_free(bridge);
    pn_unregister("start_test.f");
    pn_program_free(program);
    pn_tensor_free(argument);
  }
  int start(const pn_start_options& options, pn_started** run) {
    const int code = pn_start_with(program, &argument, 1, &options, run);
    if (code == PN_OK) ++static_cast<Told*>(options.user)->started;
    return code;
  }
  static Tensor called(const Tensor& x) {
    return call({.name = "f"}, x.type(), Named{"start_test.f"}, x);
  }
  const pn_request* next() {
    const pn_request* r = nullptr;
    EXPECT_EQ(pn_bridge_next(bridge, 20'000'000'000, &r), PN_OK) << pn_last_error();
    return r;
  }

  pn_program* program = nullptr;
  pn_tensor* argument = nullptr;
  pn_bridge* bridge = nullptr;
};

TEST_F(CStart, TellsOfPrintsAndOfTheEnd) {
  load([](Tensor x) {
    print("sum {}", sum(x));
    print("first\nsecond");
    return x + 1.0f;
  });
  Told told;
  pn_started* run = nullptr;
  ASSERT_EQ(start(options_for(told), &run), PN_OK) << pn_last_error();
  ASSERT_TRUE(wait_until([&] { return told.ended == 1; }));
  EXPECT_EQ(told.released, 0);
  pn_tensor* y = nullptr;
  EXPECT_EQ(pn_started_wait(run, 0, &y), PN_OK) << "it has ended";
  EXPECT_TRUE(has(told.text, "sum 6\n") && has(told.text, "first\nsecond\n")) << told.text;
  pn_tensor_free(y);
  pn_started_free(run);
  EXPECT_TRUE(wait_until([&] { return told.released == 1; }));
  EXPECT_EQ(told.ended, 1);
}

TEST_F(CStart, TellsOfACancelledRunAtOnceAndLetsGoWhenItIsOver) {
  load([](Tensor x) {
    Tensor y = called(x);
    print("after {}", sum(y));
    return y;
  });
  Told told;
  pn_started* run = nullptr;
  ASSERT_EQ(start(options_for(told), &run), PN_OK) << pn_last_error();
  const pn_request* const r = next();
  EXPECT_EQ(told.ended, 0);
  EXPECT_EQ(pn_started_cancel(run), PN_OK);
  EXPECT_TRUE(wait_until([&] { return told.ended == 1; })) << "while the call is open";
  EXPECT_EQ(pn_started_wait(run, 0, nullptr), PN_CANCELLED);
  pn_started_free(run);
  EXPECT_EQ(told.released, 0) << "the program goes on, and may print";
  pn_bridge_reply(bridge, r->tag, nullptr, 0);
  EXPECT_TRUE(wait_until([&] { return told.released == 1; }));
  EXPECT_EQ(told.ended, 1);
}

/// What `ended` does, and what it finds.
struct InEnded {
  std::atomic<pn_started*> run{nullptr};
  std::atomic<int> waited{-1}, ended{0}, too_early{0};
  const std::thread::id caller = std::this_thread::get_id();
  bool frees = false;

  static void ended_now(void* user) {
    InEnded& e = *static_cast<InEnded*>(user);
    e.too_early += std::this_thread::get_id() == e.caller;
    EXPECT_TRUE(wait_until([&] { return e.run.load() != nullptr; }));
    pn_tensor* y = nullptr;
    e.waited = pn_started_wait(e.run, 1'000'000'000, &y);
    pn_tensor_free(y);
    if (e.frees) pn_started_free(e.run);
    ++e.ended;
  }
};

TEST_F(CStart, WhoIsToldOfTheEndMayWaitForItAndFreeTheRun) {
  load([](Tensor x) { return x * 2.0f; });
  for (const bool frees : {false, true})
    for (int i = 0; i < 50; ++i) {
      InEnded e;
      e.frees = frees;
      pn_start_options options{};
      options.size = sizeof options;
      options.ended = InEnded::ended_now;
      options.user = &e;
      pn_started* run = nullptr;
      ASSERT_EQ(pn_start_with(program, &argument, 1, &options, &run), PN_OK) << pn_last_error();
      e.run = run;
      if (!frees) {
        pn_tensor* y = nullptr;
        EXPECT_EQ(pn_started_wait(run, 20'000'000'000, &y), PN_OK) << pn_last_error();
        pn_tensor_free(y);
      }
      ASSERT_TRUE(wait_until([&] { return e.ended == 1; })) << frees;
      EXPECT_EQ(e.waited, PN_OK);
      EXPECT_EQ(e.too_early, 0) << "it comes from a thread of the library";
      if (!frees) pn_started_free(run);
    }
}

TEST_F(CStart, TheEndIsToldOnALibrarysThreadAlsoWhereItHasLongCome) {
  load([](Tensor x) { return x * 2.0f; });
  std::mutex of_the_host;  // which the host holds while it starts and cancels
  struct User {
    std::mutex& guard;
    std::atomic<int> ended{0};
  } user{of_the_host};
  pn_start_options options{};
  options.size = sizeof options;
  options.user = &user;
  options.ended = [](void* u) {
    const std::scoped_lock lock(static_cast<User*>(u)->guard);
    ++static_cast<User*>(u)->ended;
  };
  constexpr int runs = 2000;
  for (int i = 0; i < runs; ++i) {
    pn_started* run = nullptr;
    {
      const std::scoped_lock lock(of_the_host);
      ASSERT_EQ(pn_start_with(program, &argument, 1, &options, &run), PN_OK) << pn_last_error();
      if (i % 2) pn_started_cancel(run);
    }
    pn_started_free(run);
  }
  EXPECT_TRUE(wait_until([&] { return user.ended == runs; })) << user.ended;
  const std::scoped_lock last(of_the_host);  // which the last one has left then
}

TEST_F(CStart, TheEndIsThatOfTheFunctionsThatTheRunStartedToo) {
  if (test::skipped_in_stages("of a saved program, started calls are no stages")) return;
  std::atomic<bool> goes_on{false}, returned{false};
  register_function("start_test.beside",
                    [&](View<const float>) {
                      wait_until([&] { return goes_on.load(); });
                      returned = true;
                    },
                    {.replace = true});
  load([](Tensor x) {
    start_call({.effect = Effect::unordered}, std::tuple<>(), Named{"start_test.beside"}, x);
    return x * 2.0f;
  });
  Told told;
  pn_started* run = nullptr;
  ASSERT_EQ(start(options_for(told), &run), PN_OK) << pn_last_error();
  EXPECT_EQ(pn_started_wait(run, 50'000'000, nullptr), PN_EMPTY) << "one is inside";
  EXPECT_EQ(told.ended, 0);
  goes_on = true;
  pn_tensor* y = nullptr;
  EXPECT_EQ(pn_started_wait(run, 20'000'000'000, &y), PN_OK) << pn_last_error();
  EXPECT_TRUE(returned);
  EXPECT_TRUE(wait_until([&] { return told.ended == 1; }));
  pn_tensor_free(y);
  pn_started_free(run);
  unregister_function("start_test.beside");
}

TEST_F(CStart, RefusesWhatMeansNothingAndLeavesTheUser) {
  load([](Tensor x) { return x + 1.0f; });
  Told told;
  pn_started* run = nullptr;
  pn_start_options options = options_for(told);
  options.size = 8;
  EXPECT_EQ(start(options, &run), PN_INVALID_ARGUMENT);
  EXPECT_TRUE(has(pn_last_error(), "8 bytes")) << pn_last_error();
  options = options_for(told);
  options.deadline_ns = -1;
  EXPECT_EQ(start(options, &run), PN_INVALID_ARGUMENT);
  std::size_t devices = 0;
  ASSERT_EQ(pn_device_count(&devices), PN_OK);
  options = options_for(told);
  options.device = static_cast<std::int32_t>(devices);
  EXPECT_NE(start(options, &run), PN_OK);
  options.device = -1;
  EXPECT_NE(start(options, &run), PN_OK);
  EXPECT_EQ(pn_start_with(program, &argument, 1, nullptr, &run), PN_INVALID_ARGUMENT);
  EXPECT_EQ(run, nullptr);
  EXPECT_EQ(told.ended + told.released, 0);
}

TEST_F(CStart, HasADeadline) {
  load([](Tensor x) { return called(x); });
  Told told;
  pn_started* run = nullptr;
  pn_start_options options = options_for(told);
  options.deadline_ns = 50'000'000;
  ASSERT_EQ(start(options, &run), PN_OK) << pn_last_error();
  EXPECT_EQ(pn_started_wait(run, 20'000'000'000, nullptr), PN_TIMEOUT);
  EXPECT_TRUE(wait_until([&] { return told.ended == 1; }));
  pn_started_free(run);
  pn_bridge_close(bridge);  // the function is still under way
}

TEST_F(CStart, ABridgeThatIsEndedTakesNothingMoreAndKeepsWhatWasTaken) {
  load([](Tensor x) { return called(x); });
  Told told;
  pn_started *taken = nullptr, *waiting = nullptr, *later = nullptr;
  ASSERT_EQ(start(options_for(told), &taken), PN_OK) << pn_last_error();
  const pn_request* const r = next();
  ASSERT_EQ(start(options_for(told), &waiting), PN_OK) << pn_last_error();
  pn_bridge_end(bridge);
  EXPECT_EQ(pn_started_wait(waiting, 20'000'000'000, nullptr), PN_CLOSED) << pn_last_error();
  ASSERT_EQ(start(options_for(told), &later), PN_OK) << pn_last_error();
  EXPECT_EQ(pn_started_wait(later, 20'000'000'000, nullptr), PN_CLOSED);
  const pn_request* none = nullptr;
  EXPECT_EQ(pn_bridge_next(bridge, -1, &none), PN_CLOSED);
  EXPECT_EQ(pn_started_wait(taken, 20'000'000, nullptr), PN_EMPTY) << "it is still open";
  static_cast<float*>(r->firing.results[0].data)[3] =
      static_cast<const float*>(r->firing.operands[0].data)[3] + 4;
  EXPECT_EQ(pn_bridge_reply(bridge, r->tag, nullptr, 0), PN_OK) << pn_last_error();
  pn_tensor* y = nullptr;
  EXPECT_EQ(pn_started_wait(taken, 20'000'000'000, &y), PN_OK) << pn_last_error();
  pn_array view{};
  ASSERT_EQ(pn_tensor_view(y, &view), PN_OK);
  EXPECT_EQ(static_cast<const float*>(view.data)[3], 7);
  pn_tensor_free(y);
  for (pn_started* run : {taken, waiting, later}) pn_started_free(run);
  pn_bridge_end(nullptr);
}

TEST_F(CStart, ResultsAreFilledBeforeTheRequestIsAnswered) {
  load([](Tensor x) { return called(x); });
  Told told;
  pn_started* run = nullptr;
  ASSERT_EQ(start(options_for(told), &run), PN_OK) << pn_last_error();
  const pn_request* const r = next();
  const std::int64_t dims[] = {4}, other[] = {2};
  float numbers[] = {5, 6, 7, 8};
  const pn_array wrong{PN_F32, 1, other, numbers, 8};
  EXPECT_EQ(pn_bridge_fill(bridge, r->tag, &wrong, 1), PN_BAD_RESULT);
  EXPECT_TRUE(has(pn_last_error(), "is f32[4], the reply has f32[2]")) << pn_last_error();
  const pn_array array{PN_F32, 1, dims, numbers, sizeof numbers};
  EXPECT_EQ(pn_bridge_fill(bridge, r->tag, &array, 1), PN_OK) << pn_last_error();
  numbers[2] = 0;
  EXPECT_EQ(pn_started_wait(run, 20'000'000, nullptr), PN_EMPTY) << "it is still open";
  const std::uint64_t tag = r->tag;
  EXPECT_EQ(pn_bridge_reply(bridge, tag, nullptr, 0), PN_OK) << pn_last_error();
  EXPECT_EQ(pn_bridge_fill(bridge, tag, &array, 1), PN_NOT_FOUND);
  pn_tensor* y = nullptr;
  EXPECT_EQ(pn_started_wait(run, 20'000'000'000, &y), PN_OK) << pn_last_error();
  pn_array view{};
  ASSERT_EQ(pn_tensor_view(y, &view), PN_OK);
  EXPECT_EQ(static_cast<const float*>(view.data)[2], 7);
  pn_tensor_free(y);
  pn_started_free(run);
}

TEST_F(CStart, FailuresThatHaveCodesOfTheirOwnKeepThem) {
  load([](Tensor x) { return called(x); });
  for (const auto& [given, told_as] : {std::pair{PN_THREW, PN_THREW},
                                       {PN_NOT_FOUND, PN_THREW},
                                       {PN_TIMEOUT, PN_TIMEOUT},
                                       {PN_CLOSED, PN_CLOSED},
                                       {PN_BAD_RESULT, PN_BAD_RESULT},
                                       {PN_UNREGISTERED, PN_UNREGISTERED}}) {
    Told told;
    pn_started* run = nullptr;
    ASSERT_EQ(start(options_for(told), &run), PN_OK) << pn_last_error();
    EXPECT_EQ(pn_bridge_fail(bridge, next()->tag, given, "out of stock"), PN_OK);
    EXPECT_EQ(pn_started_wait(run, 20'000'000'000, nullptr), told_as) << given;
    EXPECT_TRUE(has(pn_last_error(), "call 'f'") && has(pn_last_error(), "out of stock"))
        << pn_last_error();
    pn_started_free(run);
    EXPECT_TRUE(wait_until([&] { return told.released == 1; }));
  }
}

}  // namespace
}  // namespace postern::test
