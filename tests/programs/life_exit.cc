// Ends in the way that its argument says, with code 7, while runs are in flight or have failed.
#include <postern/postern.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace pn = postern;
using namespace std::chrono_literals;

namespace {

void start_lines() {
  auto f = pn::jit([](pn::Tensor x) {
    for (const char* word : {"one", "two", "three"})
      pn::call({.effect = pn::Effect::ordered}, std::tuple<>(), [word] {
        std::this_thread::sleep_for(30ms);
        std::puts(word);
        std::fflush(stdout);
      });
    return x;
  });
  f.start(pn::Tensor(1.0f));
}

auto lookup() {
  return pn::jit([](pn::Tensor x) {
    return pn::call(
        {.name = "lookup"}, x.type(),
        [](float) -> float { throw std::out_of_range("no such key"); }, x);
  });
}

/// Destroyed after main has returned, and after the library's own end.
struct Statics {
  pn::Tensor host = pn::Tensor(1.0f), device;
  std::function<pn::Tensor(pn::Tensor)> function;
  std::optional<pn::Run<pn::Tensor>> run;
};
Statics statics;

/// Looked at by a function that goes on while the process ends.
struct Ended {
  std::atomic<bool> gone{false};
  ~Ended() {
    gone = true;
    std::this_thread::sleep_for(300ms);
  }
};
Ended ended;

/// Ends inside of a call, behind the limit, while another run computes and calls.
int beside() {
  pn::configure({.exit_limit = 300ms});
  auto busy = pn::jit([](pn::Tensor m) {
    return pn::fori_loop(
        0, 20'000,
        [m](pn::Tensor, pn::Tensor v) {
          pn::call({.effect = pn::Effect::ordered}, std::tuple<>(), [] {
            if (ended.gone) std::abort();
          });
          return pn::matmul(v, m);
        },
        m);
  });
  auto run = busy.start(pn::full(pn::type<float>({300, 300}), 0.01f));
  std::this_thread::sleep_for(50ms);
  std::fputs("said before", stdout);
  auto leave = pn::jit([](pn::Tensor x) {
    return pn::call(
        x.type(),
        [](float v) {
          std::exit(7);
          return v;
        },
        x);
  });
  leave(pn::Tensor(1.0f)).block_until_ready();
  return 1;
}

int inside(bool limited) {
  auto f = pn::jit([=](pn::Tensor x) {
    return pn::call(
        {.timeout = limited ? 10s : 0s}, x.type(),
        [](float v) {
          std::exit(7);
          return v;
        },
        x);
  });
  f(pn::Tensor(1.0f)).block_until_ready();
  return 1;
}

/// Ends inside of a call of one of several devices: the others' parts are of the same run.
int inside_several() {
  pn::configure({.cpu_devices = 4});
  const auto leave = [](const pn::CallInfo& info, pn::View<const float> in, pn::View<float> out) {
    if (info.device == 0) std::exit(7);
    out[0] = in[0];
  };
  auto f = pn::jit(pn::shard_map([=](pn::Tensor x) { return pn::call({}, x.type(), leave, x); },
                                 pn::Mesh({{"d", 4}}), {.in = {pn::P("d")}, .out = {pn::P("d")}}));
  f(pn::iota<float>(4)).block_until_ready();
  return 1;
}

/// Other threads compile, and run what they have compiled, while main returns.
void compile_beside() {
  for (int t = 0; t < 2; ++t)
    std::thread([t] {
      for (int i = 0;; ++i) {
        const auto f = pn::jit([=](pn::Tensor x) {
          for (int k = 0; k < 12; ++k)
            x = pn::sin(x * static_cast<float>(1000 * t + i)) + pn::sum(pn::exp(x));
          return x;
        });
        f(pn::ones(pn::type<float>({16}))).block_until_ready();
      }
    }).detach();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "return";
  if (how == "return" || how == "exit") start_lines();
  if (how == "exit") std::exit(7);
  if (how == "inside") return inside(false);
  if (how == "inside limited") return inside(true);
  if (how == "inside several") return inside_several();
  if (how == "beside") return beside();
  if (how == "compiling") {
    compile_beside();
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(argv[2])));
  }
  if (how == "stuck") {
    pn::configure({.exit_limit = 300ms});
    auto f = pn::jit([](pn::Tensor x) {
      return pn::call(
          x.type(),
          [](float v) {
            std::this_thread::sleep_for(1h);
            return v;
          },
          x);
    });
    f.start(pn::Tensor(1.0f));
    std::this_thread::sleep_for(50ms);
  }
  if (how == "unseen") lookup().start(pn::Tensor(1.0f));
  if (how == "seen") {
    lookup().start(pn::Tensor(1.0f));
    try {
      pn::barrier();
    } catch (const pn::CallbackError&) {
    }
    try {
      lookup()(pn::Tensor(1.0f)).item<float>();
    } catch (const pn::CallbackError&) {
    }
  }
  if (how == "throw") lookup()(pn::Tensor(1.0f)).item<float>();
  if (how == "busy") {  // a computation that nobody waits for, its result dropped
    auto f = pn::jit([](pn::Tensor x) {
      for (int i = 0; i < 30; ++i) x = pn::matmul(x, x) * 1e-3f;
      return x;
    });
    f(pn::ones(pn::type<float>({500, 500})));
  }
  if (how == "statics") {
    auto f = pn::jit([](pn::Tensor x) {
      return pn::call(
          x.type(),
          [](float v) {
            std::this_thread::sleep_for(20ms);
            return v + 1;
          },
          x);
    });
    statics.device = f(statics.host) + 1.0f;
    statics.run = f.start(statics.device);
    statics.function = f;
  }
  return 7;
}
