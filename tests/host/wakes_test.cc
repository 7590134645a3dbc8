// Every wait has a waker: who sleeps is not woken again and again, and goes on when what it waits
// for comes, when its run is to stop, and when its time is over.
#include "host/stop.h"

#include <fcntl.h>
#include <poll.h>
#include <postern/c.h>
#include <postern/checkpoint.h>
#include <postern/record.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "host/queue.h"
#include "host/run_state.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using namespace std::chrono_literals;
using detail::StopState, host::Woken, test::TemporaryFolder, test::wait_until;
using Clock = std::chrono::steady_clock;

/// How often threads of this process have gone to sleep in the next 300 ms. One that looks every
/// 5 ms does so 60 times.
long sleeps() {
  const auto count = [] {
    long all = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream status(task.path() / "status");
      for (std::string word; status >> word;)
        if (long n = 0; word == "voluntary_ctxt_switches:" && status >> n) all += n;
    }
    return all;
  };
  const long before = count();
  std::this_thread::sleep_for(300ms);
  return count() - before;
}
/// Whether nobody looks again and again, once what has begun is under way.
bool is_quiet() {
  return wait_until([] { return sleeps() < 25; }, 5s);
}

/// What functions wait at, without looking again and again. It opens at the end of its scope.
class Door {
 public:
  ~Door() { open(); }
  void open() {
    if (!std::exchange(is_open_, true)) opened_.set_value();
  }
  auto waiter() const {
    return [f = future_] { f.wait(); };
  }

 private:
  std::promise<void> opened_;
  std::shared_future<void> future_{opened_.get_future()};
  bool is_open_ = false;
};

/// Cancels a run of which a thread waits, and that so many others do not end with.
template <class Run>
void expect_woken(Run& run, std::size_t left = 0) {
  EXPECT_TRUE(is_quiet());
  run.cancel();
  EXPECT_TRUE(wait_until([&] { return barrier(0ms) == left; })) << "its threads have gone on";
}

// --- alone ---

struct Place {
  Mutex guard;
  StopCondition changed;
  bool done = false;
  std::atomic<int> looks{0};

  Woken wait(const StopState* state, Clock::time_point limit = host::never) {
    std::unique_lock lock(guard);
    const auto look = [&] {
      ++looks;
      return done;
    };
    return host::wait_at(changed, lock, state, look, limit);
  }
  auto waits(const StopState& state) {
    return std::async(std::launch::async, [&] { return wait(&state); });
  }
};

TEST(Wakes, AWaitSaysWhyItIsOver) {
  Place p;
  StopState state, stopped;
  EXPECT_EQ(p.wait(&state, Clock::now() + 5ms), Woken::late);
  EXPECT_EQ(p.wait(nullptr, Clock::now() + 5ms), Woken::late);
  auto waits = p.waits(stopped);
  stopped.request_stop();
  EXPECT_EQ(waits.get(), Woken::stopped);
  EXPECT_EQ(p.wait(&stopped), Woken::stopped) << "at once";
  auto done = p.waits(state);
  {
    const std::scoped_lock lock(p.guard);
    p.done = true;
    p.changed.notify_all();
  }
  EXPECT_EQ(done.get(), Woken::done);
  EXPECT_EQ(p.wait(&stopped, Clock::now() - 1s), Woken::done) << "what is there counts";
}

TEST(Wakes, NobodyIsWokenByWhatIsNotHis) {
  Place p;
  StopState mine;
  auto waits = p.waits(mine);
  ASSERT_TRUE(wait_until([&] { return p.looks > 0; }));
  std::this_thread::sleep_for(10ms);
  const int before = p.looks;
  StopState().request_stop();
  EXPECT_TRUE(is_quiet());
  EXPECT_EQ(p.looks, before);
  mine.request_stop();
  EXPECT_EQ(waits.get(), Woken::stopped);
}

// A stop comes at any moment of a wait: if one were missed this would never end.
TEST(Wakes, NoStopIsMissed) {
  Place p;
  for (int i = 0; i < 2'000; ++i) {
    StopState first, second;
    auto a = p.waits(first), b = p.waits(second);
    first.request_stop();
    second.request_stop();
    EXPECT_EQ(a.get(), Woken::stopped);
    EXPECT_EQ(b.get(), Woken::stopped);
  }
}

// --- in the library ---

/// A program that fills the tap queue while the door is shut.
auto with_many_taps(Door& door) {
  return jit([wait = door.waiter()](Tensor x) {
    for (int i = 0; i < 100; ++i)
      x = tap({.mode = TapMode::async}, x + 1.0f, [wait](float) { wait(); });
    return x;
  });
}

TEST(Wakes, ProgramsAtAFullQueue) {
  devices();
  host::set_tap_queue_limit(1000);
  Door door;
  const auto f = with_many_taps(door);
  const auto fills = [] { return tap_queue_stats().bytes > 700; };
  auto run = f.start(Tensor(0.0f));
  ASSERT_TRUE(wait_until(fills));
  EXPECT_TRUE(is_quiet());
  run.cancel();
  EXPECT_TRUE(wait_until([&] { return barrier(0ms) == tap_queue_stats().pending; }));
  auto other = f.start(Tensor(0.0f));
  EXPECT_TRUE(is_quiet());
  host::set_tap_queue_limit(0);  // there is room for all
  EXPECT_EQ(other.wait(20s), RunStatus::done);
  door.open();
  barrier();
}

/// A run whose end looks at the tap queue, as what is the user's may.
struct LooksAtItsEnd : host::RunState {
  explicit LooksAtItsEnd(std::atomic<bool>& f) : finds_no_lock(f) {}
  ~LooksAtItsEnd() override {
    const auto looked = std::make_shared<std::promise<void>>();
    const std::future<void> looks = looked->get_future();
    std::thread([looked] {
      static_cast<void>(tap_queue_stats());
      looked->set_value();
    }).detach();
    finds_no_lock = looks.wait_for(10s) == std::future_status::ready;
  }
  std::atomic<bool>& finds_no_lock;
};

TEST(Wakes, ARunAroundOneAtAFullQueueGoesBehindItsLock) {
  devices();
  host::set_tap_queue_limit(1000);
  Door door;
  const auto f = with_many_taps(door);
  std::atomic<bool> finds_no_lock{false};
  std::shared_ptr<host::RunState> outer = std::make_shared<LooksAtItsEnd>(finds_no_lock);
  const std::weak_ptr<host::RunState> around = outer;
  auto inner = std::async(std::launch::async, [&] {
    const host::Beginning here{{nullptr, nullptr, nullptr, 0, 1}, {}, around};
    const host::NestingScope scope(&here);
    f(Tensor(0.0f)).block_until_ready();
  });
  EXPECT_TRUE(wait_until([&] { return around.use_count() > 1; })) << "whoever waits holds it";
  outer.reset();
  EXPECT_FALSE(around.expired());
  host::set_tap_queue_limit(0);  // there is room for all
  inner.get();
  EXPECT_TRUE(wait_until([&] { return around.expired() && finds_no_lock; }));
  door.open();
  barrier();
}

// A thread that ends because nothing came for a while must not leave what is being copied.
TEST(Wakes, WhatIsCopiedAsTheDeliveryThreadEndsIsDelivered) {
  const int before = host::TapQueue::idle_ms.exchange(1);
  std::atomic<int> delivered = 0;
  const auto f = jit([&](Tensor x) {
    return tap({.mode = TapMode::async}, x + 1.0f,
               [&](View<const float>) { delivered.fetch_add(1); });
  });
  const Tensor x = zeros(type<float>({1 << 24}));
  for (int i = 1; i <= 10; ++i) {
    f(x).block_until_ready();
    EXPECT_EQ(barrier(20s), 0u);
    EXPECT_EQ(delivered, i);
  }
  host::TapQueue::idle_ms = before;
}

TEST(Wakes, CallsWithALimit) {
  Door door;
  std::atomic<bool> entered = false;
  const auto f = jit([&, wait = door.waiter()](Tensor x) {
    return call(
        {.timeout = 3'600'000ms}, x.type(),
        [&entered, wait](float v) {
          entered = true;
          wait();
          return v;
        },
        x);
  });
  auto run = f.start(Tensor(0.0f));
  ASSERT_TRUE(wait_until([&] { return entered.load(); }));
  expect_woken(run);
  door.open();
}

TEST(Wakes, HooksWhoseEventsNobodyReads) {
  std::atomic<int> passed = 0;
  const auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 3000,
        [&](Tensor, Tensor v) {
          return tap(hook({.name = "h"}, v + 1.0f), [&](float) { ++passed; });
        },
        x);
  });
  auto stream = f.stream({"h"}, Tensor(0.0f));
  ASSERT_TRUE(wait_until([&] { return passed == 1024; }));
  expect_woken(stream.run());
}

TEST(Wakes, CallsThatNobodyTakesFromABridge) {
  pn_bridge* bridge = nullptr;
  ASSERT_EQ(pn_bridge_create(&bridge), PN_OK);
  ASSERT_EQ(pn_bridge_serve(bridge, "wakes_test.f", 1), PN_OK);
  const auto f = jit([](Tensor x) { return call({}, x.type(), Named{"wakes_test.f"}, x); });
  auto run = f.start(Tensor(0.0f));
  pollfd comes{pn_bridge_descriptor(bridge), POLLIN, 0};
  EXPECT_EQ(poll(&comes, 1, 20'000), 1);
  expect_woken(run);
  pn_bridge_free(bridge);
  unregister_function("wakes_test.f");
}

/// Whoever writes to stderr waits, since nobody reads what is in the pipe.
class FullStderr {
 public:
  FullStderr() : before_(dup(2)) {
    EXPECT_EQ(pipe2(ends_, O_NONBLOCK), 0);
    while (write(ends_[1], "-", 1) == 1) {
    }
    EXPECT_EQ(fcntl(ends_[1], F_SETFL, 0), 0);
    dup2(ends_[1], 2);
  }
  ~FullStderr() {
    dup2(before_, 2);
    ::close(before_);
    ::close(ends_[1]);
    fcntl(ends_[0], F_SETFL, 0);
    char bytes[4096];
    while (read(ends_[0], bytes, sizeof bytes) > 0) {  // until who is at it has written
    }
    ::close(ends_[0]);
  }
  FullStderr(const FullStderr&) = delete;

 private:
  const int before_;
  int ends_[2];
};

TEST(Wakes, TapsWhoseCheckpointsAreNotWrittenYet) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/file") << "no folder";
  const auto keep =
      listen::checkpoint(folder.path() + "/file/x", {.on_error = listen::OnError::go_on});
  std::atomic<int> passed = 0;
  const auto f = jit([&](Tensor x) {
    for (int i = 0; i < 4; ++i) x = tap(tap(x + 1.0f, keep), [&](float) { ++passed; });
    return x;
  });
  std::optional<FullStderr> full(std::in_place);  // where the log says that the first has failed
  auto run = f.start(Tensor(0.0f));
  EXPECT_TRUE(wait_until([&] { return passed == 2; }));
  expect_woken(run, 1);
  full.reset();
  barrier();
}

TEST(Wakes, CallsThatAreGivenWhileStatesAreLoaded) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/run.rec";
  Door door;
  int saved = 0;
  std::atomic<bool> loads = false;
  const auto state = register_state(
      "slow", [&] { return std::to_string(++saved); },
      [&, wait = door.waiter()](std::string_view) {
        loads = true;
        wait();
      });
  const auto f = jit([](Tensor x) { return test::host_plus_one(x); });
  {
    const Taping recording = record(file, {.resumable = true});
    for (int i = 0; i < 2; ++i) f(Tensor(1.0f)).block_until_ready();
  }
  const Taping recording = record(file, {.resumable = true});
  EXPECT_FALSE(resume<Tensor>(folder.path() + "/none", recording));
  auto first = f.start(Tensor(1.0f));
  ASSERT_TRUE(wait_until([&] { return loads.load(); }));
  auto second = f.start(Tensor(1.0f));
  expect_woken(second, 1);
  door.open();
  EXPECT_EQ(first.result().item<float>(), 2);
}

}  // namespace
}  // namespace postern
