// The C interface and its bridge: answers, wrong answers, late ones, and hosts that go.
#include <poll.h>
#include <postern/c.h>

#include <atomic>
#include <optional>
#include <thread>

#include "support.h"

namespace postern::test {
namespace {

using Floats = std::vector<float>;

/// A bridge that serves "bridge_test.f", and a saved program that calls it: f32[4] to f32[4].
class CInterface : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pn_bridge_create(&bridge), PN_OK);
    ASSERT_EQ(pn_bridge_serve(bridge, "bridge_test.f", 1), PN_OK);
    program = made({});
  }
  void TearDown() override {
    pn_bridge_free(bridge);
    pn_program_free(program);
    unregister_function("bridge_test.f");
  }
  static pn_program* made(const CallOptions& options) {
    const auto f = jit([&](Tensor x) {
      CallOptions o = options;
      o.name = "f";
      return call(o, x.type(), Named{"bridge_test.f", {{"n", 2}}}, x + 1.0f);
    });
    const std::string text = saved_text(f.lower(iota<float>(4)));
    pn_program* out = nullptr;
    EXPECT_EQ(pn_load_text(text.data(), text.size(), &out), PN_OK) << pn_last_error();
    return out;
  }
  pn_tensor* argument(float first = 0) {
    const std::int64_t dims[] = {4};
    Floats v{first, first + 1, first + 2, first + 3};
    const pn_array array{PN_F32, 1, dims, v.data(), 16};
    pn_tensor* out = nullptr;
    EXPECT_EQ(pn_tensor_copy(&array, &out), PN_OK);
    return out;
  }
  /// Code, text and first number of a run.
  struct Outcome {
    int code = -1;
    std::string text;
    Floats values;
  };
  Outcome run(const pn_program* p, float first = 0) {
    Outcome o;
    pn_tensor *x = argument(first), *y = nullptr;
    o.code = pn_run(p, &x, 1, &y);
    if (o.code != PN_OK) o.text = pn_last_error();
    pn_array view{};
    if (y && pn_tensor_view(y, &view) == PN_OK)
      o.values.assign(static_cast<const float*>(view.data),
                      static_cast<const float*>(view.data) + 4);
    pn_tensor_free(x);
    pn_tensor_free(y);
    return o;
  }
  const pn_request* next() {
    const pn_request* r = nullptr;
    EXPECT_EQ(pn_bridge_next(bridge, 20'000'000'000, &r), PN_OK) << pn_last_error();
    return r;
  }
  static void fill(const pn_request* r, float factor) {
    for (int i = 0; i < 4; ++i)
      static_cast<float*>(r->firing.results[0].data)[i] =
          factor * static_cast<const float*>(r->firing.operands[0].data)[i];
  }

  pn_bridge* bridge = nullptr;
  pn_program* program = nullptr;
};

TEST_F(CInterface, AProgramInC) {
  RecordProperty("covers", "BRIDGE-15 IR-10");
  register_function("demo.scale",
                    [](const Attributes& a, View<const float> in, View<float> out) {
                      for (std::int64_t i = 0; i < in.size(); ++i)
                        out[i] = in[i] * static_cast<float>(a.get<double>("factor"));
                    },
                    {.replace = true});
  const auto f = jit([](Tensor x) {
    return sum(tap({.name = "scaled"}, call(x.type(), Named{"demo.scale", {{"factor", 3.0}}}, x),
                   Named{"demo.log"}));
  });
  const TemporaryFolder folder;
  save(folder.path() + "/p.mlir", f.lower(tensor<float>({1, 2, 3})));
  unregister_function("demo.scale");
  const Ended ended = run_program("c_client", {folder.path() + "/p.mlir"});
  EXPECT_EQ(ended.out, "5 f32[3] f32[] demo.scale 18 60 1 1 1 2 1\n") << ended.err;
  EXPECT_EQ(ended.code, 0);
}

TEST_F(CInterface, ARequestSaysWhatIsAskedAndIsAnsweredOnce) {
  RecordProperty("covers", "BRIDGE-01 BRIDGE-02 BRIDGE-05");
  std::thread caller([&] {
    const Outcome o = run(program);
    EXPECT_EQ(o.code, PN_OK) << o.text;
    EXPECT_EQ(o.values, (Floats{2, 4, 6, 8}));
  });
  const pn_request* r = next();
  EXPECT_STREQ(r->firing.function, "bridge_test.f");
  EXPECT_STREQ(r->firing.site, "f");
  EXPECT_STREQ(r->firing.attributes, R"({"n":{"int64":2}})");
  EXPECT_EQ(r->firing.operand_count, 1u);
  EXPECT_EQ(r->firing.operands[0].bytes, 16u);
  EXPECT_EQ(r->firing.operands[0].dims[0], 4);
  EXPECT_EQ(pn_bridge_stopped(bridge, r->tag), 0);
  const std::uint64_t tag = r->tag;
  EXPECT_EQ(pn_bridge_reply(bridge, 0, nullptr, 0), PN_NOT_FOUND);
  EXPECT_EQ(pn_bridge_reply(bridge, tag + 1, nullptr, 0), PN_NOT_FOUND);
  fill(r, 2);
  EXPECT_EQ(pn_bridge_reply(bridge, tag, nullptr, 0), PN_OK);
  caller.join();
  EXPECT_EQ(pn_bridge_reply(bridge, tag, nullptr, 0), PN_NOT_FOUND) << "a second reply";
  EXPECT_TRUE(has(pn_last_error(), std::to_string(tag)));
  EXPECT_EQ(pn_bridge_stopped(bridge, tag), -1);
}

TEST_F(CInterface, AHostThatLacksTheFunctionSaysSo) {
  RecordProperty("covers", "BRIDGE-06");
  std::thread caller([&] {
    const Outcome o = run(program);
    EXPECT_EQ(o.code, PN_UNREGISTERED);
    EXPECT_TRUE(has(o.text, "call 'f' at c_interface_test.cc:") &&
                has(o.text, "nothing called bridge_test.f"))
        << o.text;
  });
  EXPECT_EQ(pn_bridge_fail(bridge, next()->tag, PN_UNREGISTERED, "nothing called bridge_test.f"),
            PN_OK);
  caller.join();
  pn_bridge_close(bridge);
  unregister_function("bridge_test.f");
  EXPECT_EQ(run(program).code, PN_UNREGISTERED);
}

TEST_F(CInterface, AReplyThatDoesNotFitLeavesTheRequestOpen) {
  RecordProperty("covers", "BRIDGE-03 BRIDGE-07");
  std::thread caller([&] { EXPECT_EQ(run(program).values, (Floats{5, 6, 7, 8})); });
  const pn_request* r = next();
  const std::int64_t four[] = {4}, five[] = {5}, negative[] = {-4};
  Floats v{5, 6, 7, 8, 9};
  auto reply = [&](pn_array a, std::size_t count = 1) {
    const pn_array list[] = {a, a};
    return pn_bridge_reply(bridge, r->tag, list, count);
  };
  EXPECT_EQ(reply({PN_F32, 1, four, v.data(), 16}, 2), PN_BAD_RESULT);
  EXPECT_TRUE(has(pn_last_error(), "has 1 results, the reply has 2"));
  EXPECT_EQ(reply({PN_F32, 1, five, v.data(), 20}), PN_BAD_RESULT);
  EXPECT_TRUE(has(pn_last_error(), "result 0 of call 'f' is f32[4], the reply has f32[5]"));
  EXPECT_EQ(reply({PN_S32, 1, four, v.data(), 16}), PN_BAD_RESULT);
  for (const pn_array bad :
       {pn_array{PN_F32, 1, four, v.data(), 12}, pn_array{PN_F32, 1, negative, v.data(), 16},
        pn_array{99, 1, four, v.data(), 16}, pn_array{PN_F32, -1, four, v.data(), 16},
        pn_array{PN_F32, 1, nullptr, v.data(), 16}, pn_array{PN_F32, 1, four, nullptr, 16}})
    EXPECT_EQ(reply(bad), PN_INVALID_ARGUMENT) << pn_last_error();
  EXPECT_EQ(reply({PN_F32, 1, four, v.data(), 16}), PN_OK);
  caller.join();
}

TEST_F(CInterface, AFailureIsTheRuns) {
  RecordProperty("covers", "BRIDGE-04");
  std::thread caller([&] {
    const Outcome o = run(program);
    EXPECT_EQ(o.code, PN_THREW);
    EXPECT_TRUE(has(o.text, "call 'f' at c_interface_test.cc") && has(o.text, "KeyError: 'price'"))
        << o.text;
  });
  EXPECT_EQ(pn_bridge_fail(bridge, next()->tag, PN_NOT_FOUND, "KeyError: 'price'"), PN_OK);
  caller.join();
}

TEST_F(CInterface, ClosingFailsWhatWaitsAndWhatComes) {
  RecordProperty("covers", "BRIDGE-08");
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i)
    callers.emplace_back([&] {
      const Outcome o = run(program);
      EXPECT_EQ(o.code, PN_CLOSED) << o.text;
      EXPECT_TRUE(has(o.text, "bridge") && has(o.text, "closed")) << o.text;
    });
  const pn_request* taken = next();
  const std::uint64_t tag = taken->tag;
  std::thread asker([&] {
    const pn_request* r = nullptr;
    while (pn_bridge_next(bridge, -1, &r) == PN_OK) {
    }
    EXPECT_TRUE(has(pn_last_error(), "closed"));
  });
  pn_bridge_close(bridge);
  for (std::thread& t : callers) t.join();
  asker.join();
  EXPECT_EQ(pn_bridge_reply(bridge, tag, nullptr, 0), PN_NOT_FOUND);
  EXPECT_EQ(run(program).code, PN_CLOSED);
}

TEST_F(CInterface, LimitsAndCancelling) {
  RecordProperty("covers", "BRIDGE-11");
  pn_program* limited = made({.timeout = 1s});
  const Outcome late = run(limited);
  EXPECT_EQ(late.code, PN_TIMEOUT) << late.text;
  // Taken, but answered after the limit: nobody is harmed.
  std::thread caller([&] { EXPECT_EQ(run(limited).code, PN_TIMEOUT); });
  const pn_request* r = next();
  caller.join();
  EXPECT_EQ(pn_bridge_stopped(bridge, r->tag), 1);
  fill(r, 1);
  EXPECT_EQ(pn_bridge_reply(bridge, r->tag, nullptr, 0), PN_OK);
  pn_program_free(limited);
  // A run that is cancelled before anybody took its call ends at once.
  pn_tensor* x = argument();
  pn_started* started = nullptr;
  ASSERT_EQ(pn_start(program, &x, 1, &started), PN_OK);
  EXPECT_EQ(pn_started_wait(started, 20'000'000, nullptr), PN_EMPTY);
  EXPECT_EQ(pn_started_cancel(started), PN_OK);
  pn_tensor* y = nullptr;
  EXPECT_EQ(pn_started_wait(started, -1, &y), PN_CANCELLED);
  EXPECT_EQ(y, nullptr);
  pn_started_free(started);
  pn_tensor_free(x);
  EXPECT_EQ(pn_barrier(-1), PN_OK) << pn_last_error();
  const pn_request* none = nullptr;
  EXPECT_EQ(pn_bridge_next(bridge, 0, &none), PN_EMPTY);
}

/// A call that fails, and whose large result is filled in again and again until it is answered.
class CInterfaceFilled : public CInterface {
 protected:
  void begin(std::string_view why, std::optional<ErrorCode> code = {}) {
    caller = std::thread([=] {
      const Tensor x = zeros(type<float>({4 << 20}));
      const auto f = jit(
          [](Tensor v) { return call({.name = "large"}, v.type(), Named{"bridge_test.f"}, v); });
      expect_error<CallbackError>([&] { f(x).block_until_ready(); }, {"large", why}, code);
    });
    tag = next()->tag;
    std::this_thread::sleep_for(20ms);  // the caller has gone to sleep
    for (std::thread& filler : fillers)
      filler = std::thread([this] {
        const std::int64_t dims[] = {4 << 20};
        Floats ones(4 << 20, 1.0f);
        const pn_array result{PN_F32, 1, dims, ones.data(), ones.size() * sizeof(float)};
        while (pn_bridge_fill(bridge, tag, &result, 1) == PN_OK) ++filled;
      });
    EXPECT_TRUE(wait_until([&] { return filled > 0; }));
  }
  void TearDown() override {
    pn_bridge_close(bridge);
    for (std::thread& filler : fillers) filler.join();
    caller.join();
    CInterface::TearDown();
  }

  std::thread caller, fillers[2];
  std::atomic<int> filled{0};
  std::uint64_t tag = 0;
};

TEST_F(CInterfaceFilled, ABridgeMayBeClosedMeanwhile) {
  RecordProperty("covers", "BRIDGE-08");
  begin("closed", ErrorCode::closed);
}

TEST_F(CInterfaceFilled, TheRequestIsOpenMeanwhile) {
  RecordProperty("covers", "BRIDGE-08");
  begin("given up");
  int known = 0;
  for (int i = 0; i < 1000; ++i) known += pn_bridge_stopped(bridge, tag) == 0;
  EXPECT_EQ(known, 1000);
  EXPECT_EQ(pn_bridge_fail(bridge, tag, PN_THREW, "given up"), PN_OK) << pn_last_error();
  EXPECT_EQ(pn_bridge_stopped(bridge, tag), -1);
}

TEST_F(CInterface, AServingThreadRunsProgramsThatItServes) {
  RecordProperty("covers", "BRIDGE-12");
  std::thread caller([&] { EXPECT_EQ(run(program, 10).values, (Floats{3, 4, 5, 6})); });
  const pn_request* outer = next();
  pn_tensor *x = argument(2), *y = nullptr;
  pn_started* inner = nullptr;
  ASSERT_EQ(pn_start(program, &x, 1, &inner), PN_OK);
  int code = PN_EMPTY;
  while ((code = pn_started_wait(inner, 0, &y)) ==
         PN_EMPTY) {  // serves its own queue while it waits
    const pn_request* r = nullptr;
    if (pn_bridge_next(bridge, 1'000'000, &r) != PN_OK) continue;
    fill(r, 1);
    EXPECT_EQ(pn_bridge_reply(bridge, r->tag, nullptr, 0), PN_OK);
  }
  EXPECT_EQ(code, PN_OK) << pn_last_error();
  pn_array view{};
  ASSERT_EQ(pn_tensor_view(y, &view), PN_OK);
  EXPECT_EQ(pn_bridge_reply(bridge, outer->tag, &view, 1), PN_OK);
  caller.join();
  pn_started_free(inner);
  pn_tensor_free(x);
  pn_tensor_free(y);
}

TEST_F(CInterface, ManyThreadsOfBothSides) {
  RecordProperty("covers", "BRIDGE-10 BRIDGE-14");
  std::vector<std::thread> servers, callers;
  std::atomic<int> served{0};
  for (int i = 0; i < 4; ++i)
    servers.emplace_back([&] {
      const pn_request* r = nullptr;
      while (pn_bridge_next(bridge, -1, &r) == PN_OK) {
        fill(r, 3);
        ++served;
        pn_bridge_reply(bridge, r->tag, nullptr, 0);
      }
    });
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&, i] {
      for (int k = 0; k < 100; ++k) {
        const auto first = static_cast<float>(100 * i + k);
        ASSERT_EQ(run(program, first).values[0], 3 * (first + 1));
      }
    });
  for (std::thread& t : callers) t.join();
  pn_bridge_close(bridge);
  for (std::thread& t : servers) t.join();
  EXPECT_EQ(served, 400);
}

TEST_F(CInterface, TheDescriptorTellsOfWaitingCalls) {
  RecordProperty("covers", "BRIDGE-12");
  pollfd p{pn_bridge_descriptor(bridge), POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, 0), 0);
  std::thread caller([&] { EXPECT_EQ(run(program).code, PN_OK); });
  ASSERT_EQ(poll(&p, 1, 20'000), 1);
  const pn_request* r = next();
  EXPECT_EQ(poll(&p, 1, 0), 0) << "nothing waits to be taken";
  fill(r, 1);
  pn_bridge_reply(bridge, r->tag, nullptr, 0);
  caller.join();
}

TEST_F(CInterface, TheDescriptorTellsOfCallsThatCameBeforeItWasAskedFor) {
  RecordProperty("covers", "BRIDGE-12");
  std::thread caller([&] { EXPECT_EQ(run(program).code, PN_OK); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // most likely it waits now
  pollfd p{pn_bridge_descriptor(bridge), POLLIN, 0};
  ASSERT_EQ(poll(&p, 1, 20'000), 1);
  const pn_request* r = next();
  EXPECT_EQ(poll(&p, 1, 0), 0);
  fill(r, 1);
  pn_bridge_reply(bridge, r->tag, nullptr, 0);
  caller.join();
}

TEST_F(CInterface, OneWhoIsToldIsToldOnceForEachTimeThatNothingWaited) {
  std::atomic<int> told{0};
  const auto tell = [](void* count) { ++*static_cast<std::atomic<int>*>(count); };
  ASSERT_EQ(pn_bridge_notify(bridge, tell, &told), PN_OK);
  const auto served = [&](int times_told) {
    const int before = told;  // the caller may tell before it is waited for
    std::thread caller([&] { EXPECT_EQ(run(program).code, PN_OK); });
    EXPECT_TRUE(wait_until([&] { return told >= before + times_told; }));
    const pn_request* const r = next();
    fill(r, 1);
    pn_bridge_reply(bridge, r->tag, nullptr, 0);
    caller.join();
  };
  const pn_request* none = nullptr;
  served(0);
  EXPECT_EQ(told, 0) << "nobody was told that nothing waits";
  for (const std::int64_t limit : {0, 1000}) {
    EXPECT_EQ(pn_bridge_next(bridge, limit, &none), PN_EMPTY);
    served(1);
    served(0);
  }
  EXPECT_EQ(told, 2);
  EXPECT_EQ(pn_bridge_next(bridge, 0, &none), PN_EMPTY);
  pn_bridge_end(bridge);
  EXPECT_EQ(told, 3) << "the end is told too";
  pn_bridge_close(bridge);
  EXPECT_EQ(told, 3);
  EXPECT_EQ(pn_bridge_next(bridge, 0, &none), PN_CLOSED);
}

TEST_F(CInterface, OneWhoWantsToBeToldNoMoreIsNot) {
  std::atomic<int> told{0};
  const auto tell = [](void* count) { ++*static_cast<std::atomic<int>*>(count); };
  const pn_request* none = nullptr;
  ASSERT_EQ(pn_bridge_notify(bridge, tell, &told), PN_OK);
  EXPECT_EQ(pn_bridge_next(bridge, 0, &none), PN_EMPTY);
  ASSERT_EQ(pn_bridge_notify(bridge, nullptr, nullptr), PN_OK);
  std::thread caller([&] { EXPECT_EQ(run(program).code, PN_OK); });
  const pn_request* const r = next();
  fill(r, 1);
  pn_bridge_reply(bridge, r->tag, nullptr, 0);
  caller.join();
  ASSERT_EQ(pn_bridge_notify(bridge, tell, &told), PN_OK);
  EXPECT_EQ(pn_bridge_next(bridge, 0, &none), PN_EMPTY);
  pn_bridge_free(std::exchange(bridge, nullptr));
  EXPECT_EQ(told, 0) << "who frees it knows";
}

TEST_F(CInterface, DtypesHaveNames) {
  EXPECT_STREQ(pn_dtype_name(PN_PRED), "pred");
  EXPECT_STREQ(pn_dtype_name(PN_F4E2M1FN), "f4e2m1fn");
  EXPECT_EQ(pn_dtype_name(-1), nullptr);
  EXPECT_EQ(pn_dtype_name(PN_F4E2M1FN + 1), nullptr);
}

TEST_F(CInterface, Tensors) {
  alignas(64) float data[16] = {1, 2, 3};
  const std::int64_t dims[] = {16};
  int released = 0;
  pn_tensor* t = nullptr;
  const pn_array array{PN_F32, 1, dims, data, sizeof data};
  ASSERT_EQ(pn_tensor_borrow(
                &array, [](void* n) { ++*static_cast<int*>(n); }, &released, &t),
            PN_OK);
  pn_array view{};
  ASSERT_EQ(pn_tensor_view(t, &view), PN_OK);
  EXPECT_EQ(view.data, data) << "no copy";
  EXPECT_EQ(view.rank, 1);
  pn_tensor_free(t);
  EXPECT_EQ(released, 1);
  pn_array wrong = array;
  wrong.bytes = 12;
  t = nullptr;
  EXPECT_EQ(pn_tensor_copy(&wrong, &t), PN_INVALID_ARGUMENT);
  EXPECT_TRUE(has(pn_last_error(), "f32[16]") && has(pn_last_error(), "64 bytes, 12"))
      << pn_last_error();
  EXPECT_EQ(t, nullptr);
  EXPECT_EQ(pn_tensor_copy(nullptr, &t), PN_INVALID_ARGUMENT);
  EXPECT_EQ(pn_run(nullptr, nullptr, 0, nullptr), PN_INVALID_ARGUMENT);
  EXPECT_EQ(pn_unregister("bridge_test.nothing"), PN_NOT_FOUND);
  EXPECT_EQ(pn_register(
                "bridge_test.f", [](void*, const pn_firing*) { return 0; }, nullptr, nullptr, 0),
            PN_ALREADY_EXISTS)
      << "taken";
  pn_program* p = nullptr;
  EXPECT_EQ(pn_load_text("nonsense", 8, &p), PN_INVALID_ARGUMENT);
}

TEST_F(CInterface, OneHandleIsReadByManyThreads) {
  const auto plus = jit([](Tensor x) { return x * 2.0f + 1.0f; });
  const std::string text = saved_text(plus.lower(iota<float>(4)));
  pn_program* pure = nullptr;
  ASSERT_EQ(pn_load_text(text.data(), text.size(), &pure), PN_OK) << pn_last_error();
  for (int round = 0; round < 50; ++round) {
    pn_tensor *x = argument(), *y = nullptr;
    ASSERT_EQ(pn_run(pure, &x, 1, &y), PN_OK) << pn_last_error();
    std::atomic<int> ready{0}, wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&] {
        ++ready;
        while (ready < 8) std::this_thread::yield();
        for (int i = 0; i < 20; ++i) {
          pn_array view{};
          pn_tensor* z = nullptr;
          if (pn_tensor_view(y, &view) != PN_OK || view.bytes != 16 ||
              static_cast<const float*>(view.data)[3] != 7)
            ++wrong;
          if (i == 0 && (pn_run(pure, &y, 1, &z) != PN_OK || pn_tensor_view(z, &view) != PN_OK ||
                         static_cast<const float*>(view.data)[1] != 7))
            ++wrong;
          pn_tensor_free(z);
          if (pn_program_inputs(pure) != 1 || std::string(pn_program_output(pure, 0)) != "f32[4]")
            ++wrong;
        }
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0);
    pn_tensor_free(x);
    pn_tensor_free(y);
  }
  pn_program_free(pure);
}

}  // namespace
}  // namespace postern::test
