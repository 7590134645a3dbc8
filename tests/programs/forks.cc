// Forks, and has the child do what the argument says, after the parent has used the library in all
// of its ways ("before": without). Ends with 0 when each child ended by itself, and well.
#include <postern/postern.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

namespace pn = postern;
using namespace std::chrono_literals;

#ifdef __SANITIZE_ADDRESS__
const pid_t first = getpid();
/// The leak checker asks this. A child lacks the threads whose stacks hold what they allocated.
extern "C" int __lsan_is_turned_off() { return getpid() != first; }
#endif

namespace {

pn::Tensor plus_one(const pn::Tensor& x) {
  return pn::call(
      x.type(), [](float v) { return v + 1; }, x);
}
const auto calling = pn::jit([](pn::Tensor x) { return plus_one(x) * 2.0f; });
const auto plain = pn::jit([](pn::Tensor x) { return pn::sin(x); });
const auto limited = pn::jit([](pn::Tensor x) {
  return pn::call(
      {.timeout = 5s}, x.type(), [](float v) { return v; }, x);
});
const auto tapping =
    pn::jit([](pn::Tensor x) { return pn::tap({.mode = pn::TapMode::async}, x, [](float) {}); });
std::atomic<bool> may_end{false};
const auto slow = pn::jit([](pn::Tensor x) {
  const auto wait = [](float v) {
    while (!may_end) std::this_thread::sleep_for(1ms);
    return v;
  };
  return pn::call(x.type(), wait, x);
});
const auto driven = pn::jit(plus_one, {.mode = pn::Mode::evaluate});
const auto unused = pn::jit([](pn::Tensor x) { return pn::cos(x); });

/// 0 when `act` throws what says that it is a forked process.
int refused(const char* what, const std::function<void()>& act) {
  try {
    act();
  } catch (const pn::Error& e) {
    if (e.code() == pn::ErrorCode::failed_precondition &&
        std::string(e.what()).find("forked") != std::string::npos)
      return 0;
    std::printf("%s: %s\n", what, e.what());
    return 1;
  }
  std::printf("%s: nothing was refused\n", what);
  return 1;
}

/// The child's exit code, or that it had to be killed.
int in_child(const char* what, const std::function<int()>& act) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) std::exit(act());
  int status = 0;
  for (int i = 0; i < 2000; ++i, std::this_thread::sleep_for(10ms))
    if (waitpid(child, &status, WNOHANG) == child) {
      if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        std::printf("%s: the child ended with status %d\n", what, status);
        return 1;
      }
      return 0;
    }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  std::printf("%s: the child hung\n", what);
  return 1;
}

int before() {
  const auto use = [] { return calling(pn::Tensor(1.0f)).item<float>() == 4 ? 0 : 1; };
  return in_child("fork before", use) + use();
}

int after() {
  const pn::Tensor x(1.0f);
  const pn::Tensor there = plain(x), called = calling(x);
  limited(x).block_until_ready();
  tapping(x).block_until_ready();
  driven(x).block_until_ready();
  there.block_until_ready();
  called.block_until_ready();
  auto done = calling.start(x);
  done.wait();
  auto run = slow.start(x);
  const std::map<const char*, std::function<void()>> acts{
      {"run", [&] { plain(x).block_until_ready(); }},
      {"call", [&] { calling(x).block_until_ready(); }},
      {"limited call", [&] { limited(x).block_until_ready(); }},
      {"asynchronous tap", [&] { tapping(x).block_until_ready(); }},
      {"driven", [&] { driven(x).block_until_ready(); }},
      {"new program", [&] { unused(x).block_until_ready(); }},
      {"at once", [&] { (x + x).block_until_ready(); }},
      {"call at once", [&] { plus_one(x).block_until_ready(); }},
      {"start", [&] { calling.start(x).wait(); }},
      {"wait", [&] { run.wait(); }},
      {"wait for a while", [&] { run.wait(10s); }},
      {"result", [&] { run.result(); }},
      {"cancel", [&] { run.cancel(); }},
      {"barrier", [] { pn::barrier(); }},
      {"barrier for a while", [] { pn::barrier(10s); }},
      {"devices", [] { pn::devices(); }}};
  int failed = 0;
  for (const auto& [what, act] : acts)
    failed += in_child(what, [&, name = what, &call = act] { return refused(name, call); });
  failed += in_child("data", [&] {  // that is there already
    if (x.item<float>() != 1 || called.item<float>() != 4 || there.item<float>() < 0.8f) return 1;
    return done.result().item<float>() == 4 && run.status() == pn::RunStatus::running ? 0 : 1;
  });
  failed += in_child("exec", [] {
    execl("/bin/true", "true", nullptr);
    return 1;
  });
  failed += in_child("a child of the child", [&] {
    return in_child("its child", [&] { return refused("run", [&] { plain(x); }); });
  });
  may_end = true;
  run.wait();
  pn::barrier();
  return failed + (calling(x).item<float>() == 4 ? 0 : 1);
}

/// A host function forks.
int inside() {
  int failed = 0;
  const auto f = pn::jit([&](pn::Tensor x) {
    return pn::call(
        x.type(),
        [&](float v) {
          failed += in_child("at once", [] {
            return refused("at once", [] { (pn::Tensor(1.0f) + 1.0f).block_until_ready(); });
          });
          failed += in_child("exit", [] { return 0; });
          return v + 1;
        },
        x);
  });
  const bool right = f(pn::Tensor(1.0f)).item<float>() == 2;
  return failed + !right;
}

}  // namespace

int main(int, char** argv) {
  const std::string how = argv[1];
  if (how == "before") return before();
  if (how == "after") return after();
  if (how == "inside") return inside();
  return 2;
}
