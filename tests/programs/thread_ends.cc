// Host functions that try to end their thread, on each kind of thread. Ends with code 0 when all
// went as it should.
#include <postern/postern.h>
#include <postern/shard.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace pn = postern;
using namespace std::chrono_literals;

namespace {

std::atomic<std::thread::id> entered_on;

/// What a function does with its thread. Has a destructor to unwind past.
float leave(float v) {
  const std::vector<float> unwound(10, v);
  entered_on = std::this_thread::get_id();
  pthread_exit(nullptr);
  return unwound[0];
}
float cancel_oneself(float v) {
  const std::vector<float> unwound(10, v);
  entered_on = std::this_thread::get_id();
  pthread_cancel(pthread_self());
  pthread_testcancel();
  return unwound[0];
}

/// 0 when `act` fails as a run does whose function tried to end its thread.
int refused(const std::function<void()>& act) {
  try {
    act();
    std::puts("nothing was refused");
  } catch (const pn::CallbackError& e) {
    if (e.code() == pn::ErrorCode::threw &&
        std::string(e.what()).find("tried to end its thread") != std::string::npos)
      return 0;
    std::printf("%s: %s\n", to_string(e.code()), e.what());
  }
  return 1;
}

int here(bool same) {
  const bool is = entered_on.load() == std::this_thread::get_id();
  if (is != same) std::printf("the function ran on %s thread\n", is ? "the caller's" : "another");
  return is != same;
}

template <class F>
int several_times(const F& f, const pn::Tensor& x, bool same, int times = 3) {
  int failed = 0;
  for (int i = 0; i < times; ++i) {
    failed += refused([&] { f(x).block_until_ready(); });
    failed += here(same);
  }
  return failed;
}
/// A thread can be cancelled once; it comes first.
int times(float (*end)(float)) { return end == leave ? 3 : 1; }

auto calling(float (*end)(float), pn::CallOptions options = {}, pn::JitOptions how = {}) {
  return pn::jit([=](pn::Tensor x) { return pn::call(options, x.type(), end, x); }, how);
}

int on_xla() {
  const pn::Mesh mesh({{"x", 2}});
  int failed = 0;
  for (const auto end : {cancel_oneself, leave}) {
    const auto f = pn::jit([=](pn::Tensor x) {
      return pn::shard_map(
          [=](pn::Tensor part) {
            return pn::call(
                part.type(),
                [=](pn::View<const float> in, pn::View<float> out) { out[0] = end(in[0]); }, part);
          },
          mesh, {.in = {pn::P("x")}, .out = {pn::P("x")}})(x);
    });
    failed += several_times(f, pn::ones(pn::type<float>({2})), false, times(end));
  }
  return failed;
}

int tap() {
  int failed = 0;
  for (const auto end : {cancel_oneself, leave}) {
    const auto f = pn::jit([=](pn::Tensor x) {
      return pn::tap({.mode = pn::TapMode::async}, x + 1.0f, [=](float v) { end(v); });
    });
    for (int i = 0; i < times(end); ++i) {
      f(pn::Tensor(1.0f)).block_until_ready();
      failed += refused([] { pn::barrier(); });
      failed += here(false);
    }
  }
  return failed;
}

int elements() {
  const auto f = pn::jit(pn::vmap([](pn::Tensor x) {
    return pn::call({.vmap = pn::VmapMethod::parallel}, x.type(), leave, x);
  }));
  int failed = 0;
  for (int i = 0; i < 3; ++i)
    failed += refused([&] { f(pn::ones(pn::type<float>({8}))).block_until_ready(); });
  return failed;
}

/// Work that is shared out, by the lowest of its parts that fails.
int shared() {
  for (int i = 0; i < 3; ++i) try {
      pn::parallel_for(8, [](std::int64_t part) { leave(static_cast<float>(part)); });
      return 1;
    } catch (const pn::Error& e) {
      if (e.code() != pn::ErrorCode::failed_precondition) return 1;
    }
  return 0;
}

/// What saves a state, while a checkpoint is kept.
int state(const std::filesystem::path& folder) {
  const pn::RegisteredState kept = pn::register_state(
      "state", [] { return std::to_string(leave(1)); }, [](std::string_view) {});
  const auto f = pn::jit(
      [&](pn::Tensor x) { return pn::tap({.name = "x"}, x, pn::listen::checkpoint(folder)); });
  int failed = 0;
  for (int i = 0; i < 3; ++i) failed += refused([&] { f(pn::Tensor(1.0f)).block_until_ready(); });
  return failed;
}

/// A thread of the user's own is cancelled while it runs a program: it ends when that has ended.
int cancelled() {
  static std::atomic<int> entered{0}, returned{0}, results{0};
  const auto f = pn::jit([](pn::Tensor x) {
    return pn::call(
        x.type(),
        [](float v) {
          ++entered;
          usleep(200'000);
          ++returned;
          return v;
        },
        x);
  });
  static std::function<void()> work;
  work = [&] {
    f(pn::Tensor(1.0f)).block_until_ready();
    ++results;
  };
  for (int i = 1; i <= 3; ++i) {
    pthread_t thread{};
    const auto run = [](void*) -> void* {
      work();
      while (true) pthread_testcancel();
    };
    pthread_create(&thread, nullptr, run, nullptr);
    while (entered < i) std::this_thread::sleep_for(1ms);
    pthread_cancel(thread);
    void* how = nullptr;
    pthread_join(thread, &how);
    if (how != PTHREAD_CANCELED || returned != i || results != i) {
      std::printf("%d returned, %d results\n", returned.load(), results.load());
      return 1;
    }
  }
  return 0;
}

int run(const std::string& how) {
  const pn::Tensor x(1.0f);
  if (how == "caller") return several_times(calling(leave), x, true);
  if (how == "at once")
    return several_times([](const pn::Tensor& t) { return pn::call(t.type(), leave, t); }, x, true);
  if (how == "evaluated")
    return several_times(calling(leave, {}, {.mode = pn::Mode::evaluate}), x, true);
  if (how == "staged")
    return several_times(calling(leave, {}, {.mode = pn::Mode::staged}), x, true);
  if (how == "started") {
    const auto f = calling(leave);
    return refused([&] { f.start(x).wait(); }) + here(false);
  }
  if (how == "limited")
    return several_times(calling(cancel_oneself, {.timeout = 50s}), x, false, 1) +
           several_times(calling(leave, {.timeout = 50s}), x, false);
  if (how == "tap") return tap();
  if (how == "elements") return elements();
  if (how == "xla") return on_xla();
  if (how == "cancelled") return cancelled();
  if (how == "shared") return shared();
  if (how == "state") {
    const auto folder =
        std::filesystem::temp_directory_path() / ("postern_ends_" + std::to_string(getpid()));
    const int failed = state(folder);
    std::filesystem::remove_all(folder);
    return failed;
  }
  return 2;
}

}  // namespace

int main(int, char** argv) {
  pn::configure({.cpu_devices = 2});
  const int failed = run(argv[1]);
  // Threads that went on still serve.
  const auto good = pn::jit([](pn::Tensor x) {
    return pn::call(
        {.timeout = 50s}, x.type(), [](float v) { return v + 1; }, x);
  });
  return failed + (good(pn::Tensor(1.0f)).item<float>() == 2 ? 0 : 1);
}
