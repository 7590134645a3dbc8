// Host functions compute as the thread that asked for their run does: subnormal numbers are
// numbers, and it rounds as that thread rounds. XLA computes as before.
#include <postern/file.h>
#include <postern/listen.h>
#include <postern/live.h>
#include <postern/shard.h>
#include <postern/transforms.h>

#include <cfenv>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>

#include "host/float_state.h"
#include "support.h"

namespace postern {
namespace {

using internal::host::FloatState;
using test::all_modes, test::has;
using namespace std::chrono_literals;

/// How a thread computes, as its numbers show it.
struct Arithmetic {
  int rounds = std::fegetround();
  bool keeps_subnormals = false;
  double third = 0;
  Arithmetic() {
    volatile double least = std::numeric_limits<double>::min(), one = 1, three = 3;
    least = least / 4;
    keeps_subnormals = least > 0 && one * 1e-310 > 0;
    third = one / three;
  }
  auto operator<=>(const Arithmetic&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Arithmetic& seen) {
  return out << "rounds " << seen.rounds << " keeps " << seen.keeps_subnormals << " "
             << std::hexfloat << seen.third << std::defaultfloat;
}

/// What was seen by functions, which leave their thread in another state than they found.
class Functions {
 public:
  auto function() {
    return [this](double v) {
      see();
      std::fesetround(FE_DOWNWARD);
      return v;
    };
  }
  auto shown() {
    return [f = function()](double v) { f(v); };
  }
  /// For whole batches.
  auto wide() {
    return [this](View<const double> in, View<double> out) {
      see();
      std::copy(in.begin(), in.end(), out.begin());
      std::fesetround(FE_DOWNWARD);
    };
  }
  void see() {
    Arithmetic one;
    std::scoped_lock lock(guard_);
    all_.insert(one);
    ++count_;
  }
  std::set<Arithmetic> all() {
    std::scoped_lock lock(guard_);
    return all_;
  }
  int count() {
    std::scoped_lock lock(guard_);
    return count_;
  }

 private:
  std::mutex guard_;
  std::set<Arithmetic> all_;
  int count_ = 0;
};

/// By what way functions are entered. Each gives x.
struct Way {
  const char* name;
  std::function<Tensor(Functions& functions, const Tensor& x)> enter;
};
Tensor four(const Tensor& x) { return broadcast_to(x, {4}); }

const Way ways[] = {
    {"call", [](Functions& s, const Tensor& x) { return call(x.type(), s.function(), x); }},
    {"with info",
     [](Functions& s, const Tensor& x) {
       return call(
           x.type(), [f = s.function()](const CallInfo&, double v) { return f(v); }, x);
     }},
    {"unordered",
     [](Functions& s, const Tensor& x) {
       call({.effect = Effect::unordered}, x.type(), s.function(), x);
       return x;
     }},
    {"limited", [](Functions& s,
                   const Tensor& x) { return call({.timeout = 20s}, x.type(), s.function(), x); }},
    {"packed",
     [](Functions& s, const Tensor& x) {
       const Tensor small = call(
           Type{DType::s4, {}},
           [f = s.function()](const AnyView&, const AnyMutableView& out) {
             f(1);
             *reinterpret_cast<std::int8_t*>(out.data()) = 1;
           },
           convert(x, DType::s4));
       return x + 0.0 * convert<double>(small);
     }},
    {"elements",
     [](Functions& s, const Tensor& x) {
       return max(vmap([&](Tensor v) { return call(v.type(), s.function(), v); })(four(x)));
     }},
    {"elements side by side",
     [](Functions& s, const Tensor& x) {
       return max(vmap([&](Tensor v) {
         return call({.vmap = VmapMethod::parallel}, v.type(), s.function(), v);
       })(four(x)));
     }},
    {"masked",
     [](Functions& s, const Tensor& x) {
       return max(vmap([&](Tensor v, Tensor i) {
         return cond(
             i > 1, [&](Tensor u) { return call(u.type(), s.function(), u); },
             [](Tensor u) { return u; }, v);
       })(four(x), iota<std::int32_t>(4)));
     }},
    {"whole batches",
     [](Functions& s, const Tensor& x) {
       return max(vmap([&](Tensor v) {
         return call({.vmap = VmapMethod::expand_dims}, v.type(), s.wide(), v);
       })(four(x)));
     }},
    {"started",
     [](Functions& s, const Tensor& x) { return wait(start_call(x.type(), s.function(), x)); }},
    {"started in order",
     [](Functions& s, const Tensor& x) {
       const auto a = start_call({.effect = Effect::ordered}, x.type(), s.function(), x);
       const auto b = start_call({.effect = Effect::ordered}, x.type(), s.function(), x);
       return wait(a) + 0.0 * wait(b);
     }},
    {"tap", [](Functions& s, const Tensor& x) { return tap(x, s.shown()); }},
    {"asynchronous tap",
     [](Functions& s, const Tensor& x) { return tap({.mode = TapMode::async}, x, s.shown()); }},
    {"hook", [](Functions& s, const Tensor& x) { return hook("x", x, s.shown()); }},
    {"live hook",
     [](Functions& s, const Tensor& x) { return hook({.name = "x", .live = true}, x, s.shown()); }},
    {"in a loop",
     [](Functions& s, const Tensor& x) {
       return fori_loop(
           0, 5,
           [&](Tensor, Tensor v) {
             const Tensor u = v / 3.0 * 3.0;  // XLA's own numbers in between
             return call(v.type(), s.function(), v) + 0.0 * u;
           },
           x);
     }},
    {"nested",
     [](Functions& s, const Tensor& x) {
       const auto inner = jit([&s](Tensor v) { return call(v.type(), s.function(), v) / 1.0; });
       return call(
           x.type(),
           [inner, &s](double v) {
             const double out = inner(Tensor(v)).item<double>();
             s.see();  // it is as before
             return out;
           },
           x);
     }},
    {"a thread of its own",
     [](Functions& s, const Tensor& x) {
       return call(
           x.type(),
           [&s](double v) {
             std::jthread([&s] { s.see(); }).join();
             return v;
           },
           x);
     }},
};

/// The states that a thread may ask from.
struct Asker {
  const char* name;
  std::function<void()> enter;
};
FloatState flushing() {
  FloatState state = FloatState::now();
#if defined(__x86_64__)
  state.sse |= 0x8040;
#else
  state.fpcr |= 1 << 24;
#endif
  return state;
}
const Asker askers[] = {{"as it came", [] {}},
                        {"upward", [] { std::fesetround(FE_UPWARD); }},
                        {"flushing", [] { flushing().set(); }}};

/// What XLA makes heavy, in f32 of its own, beside the rest.
Tensor weight(std::int64_t size, const Tensor& x) {
  const Tensor m = broadcast_to(convert<float>(x), {size, size});
  return convert<double>(sum(matmul(m, m))) * 0.0;
}

/// On a thread of its own, in the asker's state; what is seen there before and afterwards.
Arithmetic ask(const Asker& asker, const std::function<void()>& act) {
  Arithmetic before, after;
  std::jthread([&] {
    asker.enter();
    before = Arithmetic();
    act();
    after = Arithmetic();
  }).join();
  EXPECT_EQ(before, after) << "the asker's own state has changed";
  return before;
}

// 18 ways, in 3 modes, light and heavy, asked from 3 states.
TEST(FloatState, IsTheAskersInEveryWayAndMode) {
  std::set<double> thirds;  // what XLA computes is the same from all states
  for (const Asker& asker : askers)
    for (const Way& way : ways)
      for (const Mode mode : all_modes)
        for (const std::int64_t size : {4, 512}) {
          if (size > 4 && mode != Mode::compiled) continue;
          Functions functions;
          const auto f = jit(
              [&](Tensor x, Tensor w) {
                const Tensor y = way.enter(functions, x);
                return std::pair{y + weight(size, w), y / (w * 3.0)};
              },
              {.mode = mode});
          const Arithmetic want = ask(asker, [&] {
            const auto [y, third] = f(Tensor(1.0), Tensor(1.0));
            EXPECT_EQ(y.item<double>(), 1);
            thirds.insert(third.item<double>());
            barrier();
          });
          EXPECT_GE(functions.count(), 1);
          EXPECT_EQ(functions.all(), std::set{want})
              << way.name << ", asked " << asker.name << ", mode " << static_cast<int>(mode) << ", "
              << size;
        }
  EXPECT_EQ(thirds, std::set{1.0 / 3});
}

TEST(FloatState, OfRunsIsThatOfWhoStartsThem) {
  for (const Asker& asker : askers)
    for (const Mode mode : all_modes) {
      Functions functions;
      const auto f = jit(
          [&](Tensor x) {
            return tap({.mode = TapMode::async}, call(x.type(), functions.function(), x),
                       functions.shown());
          },
          {.mode = mode});
      std::optional<postern::Run<Tensor>> run;
      const Arithmetic want =
          ask(asker, [&] { run = f.start_with({.deadline = 20s}, Tensor(1.0)); });
      EXPECT_EQ(run->result().item<double>(), 1);
      barrier();
      EXPECT_EQ(functions.count(), 2);
      EXPECT_EQ(functions.all(), std::set{want}) << asker.name << " " << static_cast<int>(mode);
    }
}

TEST(FloatState, OfOneProgramIsThatOfEachAsker) {
  Functions functions;
  const auto f = jit([&](Tensor x) { return call(x.type(), functions.function(), x); });
  register_function("float_state_test.see", functions.function(), {.replace = true});
  const auto named = jit([](Tensor x) { return call(x.type(), Named{"float_state_test.see"}, x); });
  const Loaded loaded = load_text(saved_text(named.lower(Tensor(1.0))));
  std::set<Arithmetic> want;
  for (int round = 0; round < 3; ++round)
    for (const Asker& asker : askers)
      want.insert(ask(asker, [&] {
        f(Tensor(1.0));
        loaded(Tensor(1.0));
        call(type<double>({}), functions.function(), Tensor(1.0));  // at once
      }));
  EXPECT_EQ(functions.count(), 27);
  EXPECT_EQ(functions.all(), want);
  unregister_function("float_state_test.see");
}

TEST(FloatState, OfXlaIsAsItWasBehindAFunctionThatThrows) {
  std::set<double> thirds;
  for (const Asker& asker : askers)
    ask(asker, [&] {
      const auto third = [](Tensor x) {
        return call(
                   x.type(), [](double v) { return v; }, x) /
               3.0;
      };
      const auto f = jit(third);
      EXPECT_THROW(jit([](Tensor x) {
                     return call(
                         x.type(),
                         [](double) -> double {
                           std::fesetround(FE_DOWNWARD);
                           throw std::runtime_error("no disk");
                         },
                         x);
                   })(Tensor(1.0)),
                   CallbackError);
      thirds.insert(f(Tensor(1.0)).item<double>());
      thirds.insert((Tensor(1.0) / Tensor(3.0)).item<double>());
    });
  EXPECT_EQ(thirds, std::set{1.0 / 3});
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(FloatState, ListenersShowSubnormalNumbers) {
  const auto folder = std::filesystem::temp_directory_path() / "postern_float_state_test";
  std::filesystem::create_directories(folder);
  for (const Mode mode : all_modes) {
    std::ostringstream out;
    auto stats = listen::stats(), large = listen::stats();
    const auto csv = folder / "a.csv", jsonl = folder / "a.jsonl";
    std::filesystem::remove(csv);
    std::filesystem::remove(jsonl);
    {
      const auto f = jit(
          [&](Tensor x) {
            print_value({.stream = &out}, x);
            tap({.name = "few"}, x, stats);
            tap({.name = "many"}, broadcast_to(x, {1 << 20}), large);
            tap({.name = "c"}, x, listen::csv(csv.string()));
            tap({.name = "j"}, x, listen::jsonl(jsonl.string()));
            return x;
          },
          {.mode = mode});
      EXPECT_EQ(f(Tensor(1e-310)).item<double>(), 1e-310);
      barrier();
    }
    EXPECT_EQ(out.str(), "f64[] 1e-310\n");
    EXPECT_EQ(stats.series()[0].last.min, 1e-310);
    EXPECT_EQ(large.series()[0].last.min, 1e-310);
    EXPECT_TRUE(has(contents(csv), "1e-310")) << contents(csv);
    EXPECT_TRUE(has(contents(jsonl), "1e-310")) << contents(jsonl);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace postern
