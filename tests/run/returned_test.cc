// A call of a program has ended when it returns: what its host functions capture may go then,
// however heavy XLA thinks the program.
#include <postern/c.h>
#include <postern/file.h>
#include <postern/transforms.h>

#include <atomic>
#include <sstream>

#include "support.h"

namespace postern {
namespace {

using test::all_modes, test::wait_until;
using namespace std::chrono_literals;

constexpr int steps = 3;
/// The first is run on the caller's thread, the last on one of XLA's.
constexpr std::int64_t sizes[] = {4, 128, 512};

/// Sees `show` in each step of a loop, beside a product of matrices of w's size.
Tensor loop(const Tensor& w, const std::function<Tensor(Tensor)>& show) {
  return fori_loop(
      0, steps, [&](Tensor, Tensor v) { return matmul(v, v) * 0.0f + show(sum(v) * 0.0f + 1.0f); },
      w);
}
Tensor matrix(std::int64_t size) { return ones(type<float>({size, size})); }

/// What a host function does: it is slow, and counts at the end.
struct Slow {
  std::atomic<int> count{0};
  std::atomic<bool> elsewhere{false};
  const std::thread::id caller = std::this_thread::get_id();
  auto function() {
    return [this](float v) {
      elsewhere = elsewhere || std::this_thread::get_id() != caller;
      std::this_thread::sleep_for(5ms);
      ++count;
      return v;
    };
  }
  auto shown() {
    return [f = function()](float v) { f(v); };
  }
};

/// By what sites a program sees its host.
struct Way {
  const char* name;
  std::function<Tensor(Slow& slow, const Tensor& x)> show;
};
const Way ways[] = {
    {"call", [](Slow& s, const Tensor& x) { return call(x.type(), s.function(), x); }},
    {"unordered",
     [](Slow& s, const Tensor& x) {
       call({.effect = Effect::unordered}, x.type(), s.function(), x);
       return x;
     }},
    {"ordered",
     [](Slow& s, const Tensor& x) {
       return call({.effect = Effect::ordered}, x.type(), s.function(), x);
     }},
    {"limited",
     [](Slow& s, const Tensor& x) { return call({.timeout = 20s}, x.type(), s.function(), x); }},
    {"tap", [](Slow& s, const Tensor& x) { return tap(x, s.shown()); }},
    {"tap without order",
     [](Slow& s, const Tensor& x) { return tap({.ordered = false}, x, s.shown()); }},
    {"hook", [](Slow& s, const Tensor& x) { return hook("x", x, s.shown()); }},
    {"live hook",
     [](Slow& s, const Tensor& x) { return hook({.name = "x", .live = true}, x, s.shown()); }},
    {"started and waited for",
     [](Slow& s, const Tensor& x) { return wait(start_call(x.type(), s.function(), x)); }},
    {"nested",
     [](Slow& s, const Tensor& x) {
       const auto inner = jit([&s](Tensor v) {
         return sum(matmul(matrix(300), matrix(300))) * 0.0f + call(v.type(), s.function(), v);
       });
       return call(
           x.type(),
           [inner](float v) {
             inner(Tensor(v));
             return v;
           },
           x);
     }},
};

TEST(Returned, AllItsFunctionsHave) {
  bool elsewhere = false;
  for (const Way& way : ways)
    for (const Mode mode : all_modes)
      for (const std::int64_t size : sizes) {
        if (mode != Mode::compiled && size == 128) continue;
        Slow slow;
        const auto f =
            jit([&](Tensor w) { return loop(w, [&](Tensor x) { return way.show(slow, x); }); },
                {.mode = mode});
        const Tensor y = f(matrix(size));
        EXPECT_EQ(slow.count, steps) << way.name << " " << size << " " << static_cast<int>(mode);
        EXPECT_EQ(y.to_vector<float>()[0], 1);
        elsewhere = elsewhere || (slow.elsewhere && mode == Mode::compiled);
      }
  EXPECT_TRUE(elsewhere || !plugin_info().calls_back) << "XLA thinks none of them heavy";
}

TEST(Returned, LinesOfPrintsAreThere) {
  for (const std::int64_t size : sizes) {
    std::ostringstream out;
    const auto f = jit([&](Tensor w) {
      return loop(w, [&](Tensor x) {
        print_value({.stream = &out}, x);
        return x;
      });
    });
    f(matrix(size));
    EXPECT_EQ(out.str(), "f32[] 1\nf32[] 1\nf32[] 1\n") << size;
  }
}

TEST(Returned, SavedProgramsAndThoseOfC) {
  for (const std::int64_t size : sizes) {
    Slow slow;
    register_function("returned_test.slow", slow.function(), {.replace = true});
    const auto f = jit([](Tensor w) {
      return loop(w, [](Tensor x) { return call(x.type(), Named{"returned_test.slow"}, x); });
    });
    const std::string text = saved_text(f.lower(matrix(size)));
    load_text(text)(matrix(size));
    EXPECT_EQ(slow.count, steps) << size;

    pn_program* program = nullptr;
    ASSERT_EQ(pn_load_text(text.data(), text.size(), &program), PN_OK) << pn_last_error();
    const std::int64_t dims[] = {size, size};
    const std::vector<float> ones(static_cast<std::size_t>(size * size), 1.0f);
    const pn_array array{PN_F32, 2, dims, const_cast<float*>(ones.data()), ones.size() * 4};
    pn_tensor *x = nullptr, *y = nullptr;
    ASSERT_EQ(pn_tensor_copy(&array, &x), PN_OK);
    ASSERT_EQ(pn_run(program, &x, 1, &y), PN_OK) << pn_last_error();
    EXPECT_EQ(slow.count, 2 * steps) << size;
    pn_tensor_free(x);
    pn_tensor_free(y);
    pn_program_free(program);
    unregister_function("returned_test.slow");
  }
}

TEST(Returned, AFailureComesAtTheCall) {
  std::vector<std::string> said;
  for (const std::int64_t size : sizes) {
    const auto f = jit([&](Tensor w) {
      return loop(w, [](Tensor x) {
        return call(
            x.type(), [](float) -> float { throw std::runtime_error("no disk"); }, x);
      });
    });
    const auto error = test::error_of<CallbackError>([&] { f(matrix(size)); });
    said.push_back(error ? error->what() : "");
  }
  EXPECT_EQ(said[0], said[1]);
  EXPECT_EQ(said[0], said[2]);
  barrier();  // it has been seen
}

/// Until its gate is open a function does not return.
struct Gate {
  std::atomic<bool> open{false};
  std::atomic<int> through{0};
  auto function() {
    return [this](float v) {
      through += wait_until([&] { return open.load(); });
      return v;
    };
  }
};

TEST(Returned, AsynchronousTapsAndStartedFunctionsGoOn) {
  if (test::skipped_in_stages("a run in stages ends behind what it starts")) return;
  for (const std::int64_t size : sizes) {
    Gate gate;
    const auto f = jit([&](Tensor w) {
      return loop(w, [&](Tensor x) {
        tap({.mode = TapMode::async}, x, [g = gate.function()](float v) { g(v); });
        start_call(x.type(), gate.function(), x);
        return x;
      });
    });
    f(matrix(size));
    EXPECT_EQ(gate.through, 0) << size;
    gate.open = true;
    barrier();
    EXPECT_EQ(gate.through, 2 * steps) << size;
  }
}

TEST(Returned, ProgramsWithoutFunctionsOfTheUsersGoOn) {
  if (test::skipped_in_stages("a run in stages is driven by its caller")) return;
  const auto far = [](Tensor w) {  // with loop tapes, in reverse
    return std::get<1>(while_loop([](Tensor i, Tensor) { return i < 300; },
                                  [&](Tensor i, Tensor v) {
                                    return std::tuple{i + 1, tanh(matmul(v, w))};
                                  },
                                  std::tuple{Tensor(0), w}));
  };
  const auto sleeping = [&](Tensor w) { return hook({.name = "x", .live = true}, far(w)); };
  const auto shown = [&](Tensor w) {
    return tap({.mode = TapMode::async}, far(w), [](View<const float>) {});
  };
  const auto back = grad([&](Tensor w) { return sum(far(w)); });
  const std::vector<std::pair<const char*, std::function<Tensor(Tensor)>>> programs = {
      {"plain", far}, {"sleeping hook", sleeping}, {"asynchronous tap", shown}, {"tapes", back}};
  for (const auto& [name, program] : programs) {
    const auto f = jit(program);
    const Tensor w = matrix(300) * 1e-3f;
    f(w).block_until_ready();
    bool goes_on = false;
    for (int i = 0; i < 5 && !goes_on; ++i) {  // a busy machine may keep the core from us
      const auto begin = std::chrono::steady_clock::now();
      const Tensor y = f(w);
      const double returned = test::seconds_since(begin);
      y.block_until_ready();
      goes_on = returned < test::seconds_since(begin) / 2;
    }
    EXPECT_TRUE(goes_on) << name;
  }
}

}  // namespace
}  // namespace postern
