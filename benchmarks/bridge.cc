// Saved programs and the bridge: a round trip to a host's own thread, payloads, and how soon a
// saved program gives its first result.
#include <postern/c.h>
#include <postern/postern.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "harness.h"

namespace bench {

namespace pn = postern;

namespace {

/// A bridge with threads that answer each call at once, in place.
class Host {
 public:
  explicit Host(int threads) {
    pn_bridge_create(&bridge_);
    pn_bridge_serve(bridge_, "bench.echo", 1);
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([this] {
        const pn_request* request = nullptr;
        while (pn_bridge_next(bridge_, -1, &request) == PN_OK)
          pn_bridge_reply(bridge_, request->tag, nullptr, 0);
      });
  }
  ~Host() {
    pn_bridge_close(bridge_);
    for (std::thread& t : threads_) t.join();
    pn_bridge_free(bridge_);
    pn::unregister_function("bench.echo");
  }
  Host(const Host&) = delete;

 private:
  pn_bridge* bridge_ = nullptr;
  std::vector<std::thread> threads_;
};

/// Two bare threads that pass a number to and fro: the least that a round trip to a thread can
/// take. `Pass` gives the number on, and waits for the next one that it is to have.
template <class Pass>
Side ping_pong() {
  return [](std::int64_t trips) {
    Pass pass;
    std::thread other([&] {
      for (std::int64_t i = 0; i < trips; ++i) {
        pass.await(2 * i + 1);
        pass.give(2 * i + 2);
      }
    });
    for (std::int64_t i = 0; i < trips; ++i) {
      pass.give(2 * i + 1);
      pass.await(2 * i + 2);
    }
    other.join();
  };
}

struct Sleeping {
  std::mutex guard;
  std::condition_variable changed;
  std::int64_t number = 0;
  void give(std::int64_t n) {
    const std::scoped_lock lock(guard);
    number = n;
    changed.notify_one();
  }
  void await(std::int64_t n) {
    std::unique_lock lock(guard);
    changed.wait(lock, [&] { return number == n; });
  }
};

struct Spinning {
  std::atomic<std::int64_t> number{0};
  void give(std::int64_t n) { number.store(n, std::memory_order_release); }
  void await(std::int64_t n) const {
    while (number.load(std::memory_order_acquire) != n) continue;
  }
};

auto echo_loop(std::int64_t steps) {
  return pn::jit([steps](pn::Tensor x) {
    return pn::fori_loop(
        0, steps,
        [](pn::Tensor, pn::Tensor v) {
          return pn::call({.effect = pn::Effect::unordered}, v.type(), pn::Named{"bench.echo"}, v);
        },
        x);
  });
}

}  // namespace

void bridge(Report& report) {
  constexpr std::int64_t steps = 2000;
  const auto loop = echo_loop(steps);
  const pn::Tensor x(0.0f);
  double sleeping_trip_us = 0;
  {
    const Host host(1);
    // The bare threads make as many trips a turn, so that starting them does not count.
    const auto bare = [](const Side& side) -> Side {
      return [side](std::int64_t n) { side(n * steps); };
    };
    const auto ns = race({[&](std::int64_t n) {
                            while (n-- > 0) loop(x).block_until_ready();
                          },
                          bare(ping_pong<Sleeping>()), bare(ping_pong<Spinning>())});
    const double trip = ns[0] / steps / 1e3, asleep = ns[1] / steps / 1e3,
                 awake = ns[2] / steps / 1e3;
    sleeping_trip_us = asleep;
    report.add({"bridge", trip, "us", "two bare threads and a condition variable", asleep,
                "a scalar's round trip to a thread of the host; 0.25 is the aim"});
    report.add({"bridge/awake", trip, "us", "two bare threads that spin, four times, and 1 us",
                4 * awake + 1, "the same; 1 is the aim"});
    for (const std::int64_t bytes : {std::int64_t{4}, std::int64_t{16} << 20}) {
      const auto longer = echo_loop(201), shorter = echo_loop(1);
      const pn::Tensor v = pn::zeros(pn::type<float>({bytes / 4})).block_until_ready();
      const auto took = race({[&](std::int64_t n) {
                                while (n-- > 0) longer(v).block_until_ready();
                              },
                              [&](std::int64_t n) {
                                while (n-- > 0) shorter(v).block_until_ready();
                              }},
                             5, 20);
      report.add({"bridge/" + std::to_string(bytes) + "B", (took[0] - took[1]) / 200 / 1e3, "us",
                  "", 0, "the same with the payload; no copy, so it is to stay"});
    }
  }
  const Host host(2);
  const auto run_both = [&](std::int64_t n) {
    std::vector<std::thread> callers;
    for (int i = 0; i < 2; ++i)
      callers.emplace_back([&] {
        for (std::int64_t k = 0; k < n; ++k) loop(x).block_until_ready();
      });
    for (std::thread& t : callers) t.join();
  };
  run_both(1);
  const auto ns = race({run_both}, 9, 50);
  report.add({"bridge/rate", 2 * steps / (ns[0] / 1e9), "per s",
              "two bare threads and a condition variable", 1e6 / sleeping_trip_us,
              "two programs, two serving threads; 5 is the aim"});
  pn::jit([](pn::Tensor v) { return pn::tap({.mode = pn::TapMode::async}, v, [](float) {}); })(x);
  pn::barrier();
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  report.add({"bridge/idle", 1e3 * static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC,
              "ms", "", 0,
              "processor time of a second in which two serving threads and a listener's wait"});
}

void python(Report& report) {
  constexpr std::int64_t steps = 2000;
  const auto loop = pn::jit([](pn::Tensor x) {
    return pn::fori_loop(
        0, steps,
        [](pn::Tensor, pn::Tensor v) {
          return pn::call({.effect = pn::Effect::unordered}, v.type(), pn::Named{"bench.negative"},
                          v);
        },
        x);
  });
  const auto file =
      std::filesystem::temp_directory_path() / ("postern_bench_" + std::to_string(getpid()));
  pn::save(file, loop.lower(pn::tensor<float>({1, 1, 1, 1})));
  // The system's interpreter, for which the module was built.
  const std::string text =
      output_of("PYTHONPATH='" POSTERN_BENCH_PYTHON "' /usr/bin/python3 '" POSTERN_BENCH_FOLDER
                "/python_side.py' '" +
                file.string() + "' " + std::to_string(steps));
  std::filesystem::remove(file);
  const double us = std::strtod(text.c_str(), nullptr);
  if (us <= 0) throw std::runtime_error("python: the package did not run: " + text);
  for (const char* peer : {"python/pure_callback", "python/io_callback"})
    report.add_jax(
        {peer, us, "us", "", 0,
         "a call of a NumPy function of f32[4] in a compiled loop; at most 0.33 is the aim"},
        "python");
  report.add_output_of("PYTHONPATH='" POSTERN_BENCH_PYTHON
                       "' /usr/bin/python3 '" POSTERN_BENCH_FOLDER
                       "/python_jax.py' '" POSTERN_BENCH_FOLDER "/../examples/jax'");
}

void jax_door(Report& report) {
  report.add_output_of("PYTHONPATH='" POSTERN_BENCH_PYTHON
                       "' /usr/bin/python3 '" POSTERN_BENCH_FOLDER
                       "/python_door.py' '" POSTERN_BENCH_DOOR "'");
}

void load(Report& report) {
  pn::register_function("bench.same", [](pn::View<const float> in, pn::View<float> out) {
    std::copy(in.begin(), in.end(), out.begin());
  });
  auto network = [](pn::Tensor x) {
    for (int i = 0; i < 50; ++i) x = pn::tanh(pn::matmul(x, x) * 0.1f + x);
    return pn::call(x.type(), pn::Named{"bench.same"}, x);
  };
  const pn::Tensor x = pn::zeros(pn::type<float>({16, 16}));
  const std::string text = pn::saved_text(pn::jit(network).lower(x));
  // Compilation is shared by equal texts in a process, so this is what stands around it.
  const auto ns = race({[&](std::int64_t n) {
                          while (n-- > 0) pn::load_text(text)(x).at(0).block_until_ready();
                        },
                        [&](std::int64_t n) {
                          while (n-- > 0) pn::jit(network)(x).block_until_ready();
                        }});
  report.add({"load", ns[0] / 1e3, "us", "traced anew", ns[1] / 1e3,
              "a saved program's text to its first result, compilation apart"});
}

}  // namespace bench
