// Runs that wait for one another, end the process or drop their own program, each in the way that
// the argument says. Ends with code 0 when all went as it should.
#include <postern/postern.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace pn = postern;
using namespace std::chrono_literals;

namespace {

using Scalar = std::function<float(float)>;

/// x -> x + 1, by a host function that does `inside` first.
auto calling(std::function<void()> inside, pn::CallOptions options = {}) {
  return pn::jit([=](pn::Tensor x) {
    return pn::call(
        options, x.type(),
        [inside](float v) {
          inside();
          return v + 1;
        },
        x);
  });
}

/// Waits until no function is running any more: they use what is on the callers' stacks.
struct Settled {
  ~Settled() {
    try {
      pn::barrier(20s);
    } catch (const pn::Error&) {  // those of the runs
    }
  }
};

/// Whether `act` throws CallbackError(reentry) within a second (ten on a busy machine).
int refused(const std::function<void()>& act) {
  const Settled settled;
  const auto start = std::chrono::steady_clock::now();
  try {
    act();
    std::puts("nothing was refused");
  } catch (const pn::CallbackError& e) {
    const bool quick = std::chrono::steady_clock::now() - start < 10s;
    std::printf("%s\n", e.what());
    if (e.code() == pn::ErrorCode::reentry && quick) return 0;
    std::printf("code %s, %s\n", to_string(e.code()), quick ? "in time" : "late");
  }
  return 1;
}

using Started = std::optional<pn::Run<pn::Tensor>>;

void wait_for(const Started& run, const std::atomic<bool>& there) {
  while (!there) std::this_thread::sleep_for(1ms);
  run->wait();
}

int two_runs() {
  Started a, b;
  std::atomic<bool> there = false;
  const auto f = calling([&] { wait_for(b, there); }), g = calling([&] { wait_for(a, there); });
  a = f.start(pn::Tensor(1.0f));
  b = g.start(pn::Tensor(1.0f));
  there = true;
  const int first = refused([&] { a->result(); });
  return first + refused([&] { b->result(); });
}

int three_runs() {
  Started runs[3];
  std::atomic<bool> there = false;
  for (int i = 0; i < 3; ++i)
    runs[i] = calling([&, i] { wait_for(runs[(i + 1) % 3], there); }).start(pn::Tensor(1.0f));
  there = true;
  return refused([&] { runs[0]->result(); });
}

/// A function starts a run, whose function waits for the first.
int through_start(pn::CallOptions options) {
  Started outer;
  std::atomic<bool> there = false;
  const auto inner = calling([&] { wait_for(outer, there); });
  const auto f = calling([&] { inner.start(pn::Tensor(1.0f)).wait(); }, options);
  outer = f.start(pn::Tensor(1.0f));
  there = true;
  return refused([&] { outer->result(); });
}

/// A function waits for its own run, in each way that a program can run.
int own_run(pn::Mode mode, pn::CallOptions options) {
  Started own;
  std::atomic<bool> there = false;
  const auto f = pn::jit(
      [&](pn::Tensor x) {
        return pn::call(
            options, x.type(),
            [&](float v) {
              wait_for(own, there);
              return v;
            },
            pn::sin(x));
      },
      {.mode = mode});
  own = f.start(pn::Tensor(1.0f));
  there = true;
  return refused([&] { own->result(); });
}

/// A result that is computed from the run's own.
int own_result() {
  const auto f = pn::jit([](pn::Tensor x) {
    const pn::Tensor work = pn::fori_loop(
        0, 500, [&](pn::Tensor, pn::Tensor v) { return pn::tanh(pn::matmul(v, x)); }, x);
    return pn::hook({.name = "own", .live = true}, pn::sum(work));
  });
  const pn::Tensor m = pn::full(pn::type<float>({300, 300}), 0.01f);
  f.compile(m);
  const pn::Tensor out = f(m);
  const pn::Listening on =
      pn::live_hooks().at(0).turn_on([&](float) { (out + 1.0f).item<float>(); });
  return refused([&] { out.item<float>(); });
}

int drop(pn::Mode mode) {
  for (int i = 0; i < 20; ++i) {
    using F = std::function<pn::Tensor(pn::Tensor)>;
    std::optional<decltype(pn::jit(F()))> f;
    f.emplace(pn::jit(F([&](pn::Tensor x) {
                        return pn::call(
                            {.effect = pn::Effect::ordered}, x.type(),
                            [&](float v) {
                              f.reset();
                              return v + 1;
                            },
                            x * 2.0f);
                      }),
                      {.mode = mode}));
    const float got = (*f)(pn::Tensor(1.0f)).item<float>();
    if (got != 3 || f) {
      std::printf("got %g\n", got);
      return 1;
    }
  }
  return 0;
}

/// std::exit in a call while others compute.
int exit_inside() {
  const auto busy = calling([] { std::this_thread::sleep_for(2ms); });
  const auto heavy = pn::jit([](pn::Tensor x) {
    for (int i = 0; i < 20; ++i) x = pn::matmul(x, x) * 1e-3f;
    return pn::call(
        x.type(),
        [](pn::View<const float> in, pn::View<float> out) {
          std::copy(in.begin(), in.end(), out.begin());
        },
        x);
  });
  const pn::Tensor x = pn::ones(pn::type<float>({400, 400}));
  for (int i = 0; i < 6; ++i) {
    heavy.start(x);
    busy.start(pn::Tensor(1.0f));
  }
  calling([] { std::exit(0); })(pn::Tensor(1.0f)).item<float>();
  return 1;
}

/// Whether who waits for a run looks for its end all the time, which takes processor time.
int look(bool looks) {
  pn::configure({.look = 100ms});
  const auto slow = calling([] { std::this_thread::sleep_for(30ms); });
  slow.start(pn::Tensor(1.0f)).wait();  // compiles
  const std::clock_t before = std::clock();
  for (int i = 0; i < 10; ++i) slow.start(pn::Tensor(1.0f)).wait();
  const double seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  if ((seconds > 0.06) == looks) return 0;
  std::printf("%g s of processor time\n", seconds);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  if (how == "two runs") return two_runs();
  if (how == "three runs") return three_runs();
  if (how == "through start") return through_start({});
  if (how == "through start limited") return through_start({.timeout = 50s});
  if (how == "own run") return own_run(pn::Mode::automatic, {});
  if (how == "own run limited") return own_run(pn::Mode::automatic, {.timeout = 50s});
  if (how == "own run staged") return own_run(pn::Mode::staged, {});
  if (how == "own run evaluated") return own_run(pn::Mode::evaluate, {});
  if (how == "own result") return own_result();
  if (how == "drop") return drop(pn::Mode::automatic);
  if (how == "drop staged") return drop(pn::Mode::staged);
  if (how == "drop evaluated") return drop(pn::Mode::evaluate);
  if (how == "exit inside") return exit_inside();
  if (how == "looks") return look(true);
  if (how == "looks never") return look(false);
  std::printf("unknown: %s\n", how.c_str());
  return 2;
}
