// Effects in the condition of a while_loop whose number of steps XLA could tell beforehand.
#include <postern/file.h>
#include <postern/listen.h>

#include <algorithm>
#include <mutex>
#include <sstream>

#include "support.h"

namespace postern {
namespace {

using test::all_modes, test::expect_error;
using Floats = std::vector<float>;

/// What a condition has shown; prints are read back.
class Seen {
 public:
  void add(float v) {
    const std::scoped_lock lock(guard_);
    values_.push_back(v);
  }
  std::ostream& stream() { return printed_; }
  Floats take() {
    barrier();
    Floats out = std::exchange(values_, {});
    std::istringstream lines(std::exchange(printed_, std::ostringstream()).str());
    for (float v; lines >> v;) out.push_back(v);
    return out;
  }

 private:
  std::mutex guard_;
  Floats values_;
  std::ostringstream printed_;
};
Seen record;

using Act = std::function<void(const Tensor&)>;

struct Doing {
  const char* name;
  Act act;
  bool ordered = true, call = false;
};

const std::vector<Doing>& doings() {
  static const Callee add = [](float v) { record.add(v); };
  static const auto call_with = [](Effect effect) {
    return [effect](const Tensor& x) { call({.effect = effect}, std::vector<Type>(), add, x); };
  };
  static const std::vector<Doing> all = {
      {"tap", [](const Tensor& x) { tap(x, add); }},
      {"unordered tap", [](const Tensor& x) { tap({.ordered = false}, x, add); }, false},
      {"asynchronous tap", [](const Tensor& x) { tap({.mode = TapMode::async}, x, add); }},
      {"hook", [](const Tensor& x) { hook("h", x, add); }},
      {"print", [](const Tensor& x) { print({.stream = &record.stream()}, "{}", x); }},
      {"ordered call", call_with(Effect::ordered), true, true},
      {"unordered call", call_with(Effect::unordered), false, true},
  };
  return all;
}

/// Counts from 0 to n, which XLA knows, and shows what the condition sees.
Tensor counted(const Act& act, float n) {
  return while_loop(
      [&](Tensor v) {
        act(v);
        return v < n;
      },
      [](Tensor v) { return v + 1.0f; }, Tensor(0.0f));
}

struct Form {
  const char* name;
  std::function<Tensor(const Act&)> f;
  Floats want;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"alone", [](const Act& act) { return counted(act, 3); }, {0, 1, 2, 3}},
      {"no step", [](const Act& act) { return counted(act, 0); }, {0}},
      {"one step", [](const Act& act) { return counted(act, 1); }, {0, 1}},
      {"under jvp",
       [](const Act& act) {
         return jvp([&](Tensor x) { return counted(act, 2) * x; }, std::tuple{Tensor(2.0f)},
                    std::tuple{Tensor(3.0f)})
             .second;
       },
       {0, 1, 2}},
      {"a carry that moves",
       [](const Act& act) {
         auto f = [&](Tensor x) {
           return std::get<1>(while_loop(
               [&](Tensor i, Tensor) {
                 act(i);
                 return i < 2.0f;
               },
               [](Tensor i, Tensor v) {
                 return std::tuple{i + 1.0f, v * v};
               },
               std::tuple{Tensor(0.0f), x}));
         };
         return jvp(f, std::tuple{Tensor(2.0f)}, std::tuple{Tensor(3.0f)}).second;
       },
       {0, 1, 2}},
      {"under grad, beside what is differentiated",
       [](const Act& act) {
         return grad([&](Tensor x) { return counted(act, 2) * x; })(Tensor(2.0f));
       },
       {0, 1, 2}},
      {"in a branch",
       [](const Act& act) {
         return cond(
             Tensor(1.0f) < 2.0f, [&] { return counted(act, 2); }, [] { return Tensor(7.0f); });
       },
       {0, 1, 2}},
      {"in a loop's body",
       [](const Act& act) {
         return fori_loop(
             0, 2, [&](Tensor, Tensor v) { return v + counted(act, 2); }, Tensor(0.0f));
       },
       {0, 1, 2, 0, 1, 2}},
      {"in a loop's condition",
       [](const Act& act) {
         return while_loop([&](Tensor v) { return counted(act, 1) + v < 3.0f; },
                           [](Tensor v) { return v + 1.0f; }, Tensor(0.0f));
       },
       {0, 1, 0, 1, 0, 1}},
      {"in a branch of the condition",
       [](const Act& act) {
         return counted(
             [&](const Tensor& x) {
               cond(
                   x > 0.5f,
                   [&](Tensor v) {
                     act(v);
                     return v;
                   },
                   [](Tensor v) { return v; }, x);
             },
             3);
       },
       {1, 2, 3}},
      {"beside the body's",
       [](const Act& act) {
         return while_loop(
             [&](Tensor v) {
               act(v);
               return v < 2.0f;
             },
             [&](Tensor v) {
               act(v + 10.0f);
               return v + 1.0f;
             },
             Tensor(0.0f));
       },
       {0, 10, 1, 11, 2}},
  };
  return all;
}

TEST(Control, EffectsInAConditionFireOnceForEachTimeItIsAsked) {
  for (const Form& form : forms())
    for (const Doing& doing : doings()) {
      float result = 0;
      for (const Mode mode : all_modes) {
        SCOPED_TRACE(std::string(doing.name) + ", " + form.name + ", mode " +
                     std::to_string(int(mode)));
        auto f = jit([&] { return form.f(doing.act); }, {.mode = mode});
        const float got = f().item<float>();
        if (mode == *all_modes.begin()) result = got;
        EXPECT_EQ(got, result);
        Floats fired = record.take(), want = form.want;
        if (!doing.ordered) {
          std::ranges::sort(fired);
          std::ranges::sort(want);
        }
        EXPECT_EQ(fired, want);
      }
    }
}

TEST(Control, EffectsInAConditionUnderVmap) {
  auto shared = [](const Act& act, Tensor x) {  // all elements take the same steps
    return std::get<1>(while_loop(
        [&](Tensor i, Tensor) {
          act(i);
          return i < 2.0f;
        },
        [](Tensor i, Tensor v) {
          return std::tuple{i + 1.0f, v * 2.0f};
        },
        std::tuple{Tensor(0.0f), x}));
  };
  auto own = [](const Act& act, Tensor x) {  // each has its own end, known beforehand all the same
    return while_loop(
        [&](Tensor v) {
          act(sum(v));
          return v < 2.0f;
        },
        [](Tensor v) { return v + 1.0f; }, x);
  };
  for (const Doing& doing : doings()) {
    if (std::string(doing.name) == "print") continue;  // a line for a batch is no number
    const bool call = doing.call;
    const Act each = [&](const Tensor& x) {
      static const Callee add = [](const TapInfo& info, std::span<const AnyView> in) {
        const auto values = in[0].as<float>();
        for (std::int64_t i = 0; i < values.size(); ++i)
          if (info.mask.empty() || info.mask[static_cast<std::size_t>(i)])
            record.add(values.data()[i]);
      };
      const TapMode mode = doing.name[0] == 'a' ? TapMode::async : TapMode::sync;
      if (call)
        doing.act(x);
      else
        tap({.mode = mode, .ordered = doing.ordered}, x, add);
    };
    for (const Mode mode : all_modes) {
      SCOPED_TRACE(std::string(doing.name) + ", mode " + std::to_string(int(mode)));
      auto f = jit(
          [&] {
            return vmap([&](Tensor x) { return shared(each, x); })(tensor<float>({1, 2}));
          },
          {.mode = mode});
      EXPECT_EQ(f().to_vector<float>(), (Floats{4, 8}));
      Floats fired = record.take();
      std::ranges::sort(fired);
      EXPECT_EQ(fired, call ? (Floats{0, 0, 1, 1, 2, 2}) : (Floats{0, 1, 2}));
      if (call && doing.ordered) continue;  // refused, see Vmap
      auto g = jit(
          [&] {
            return vmap([&](Tensor x) { return own(each, x); })(tensor<float>({0, 1}));
          },
          {.mode = mode});
      EXPECT_EQ(g().to_vector<float>(), (Floats{2, 2}));
      fired = record.take();
      std::ranges::sort(fired);
      EXPECT_EQ(fired, (Floats{0, 1, 1, 2, 2}));
    }
  }
}

TEST(Control, WhatFailsInAConditionEndsTheRun) {
  auto checks = [](const Tensor& v) { check(v < 2.0f, "saw {}", v); };
  auto throws = [](Effect effect) {
    return [effect](const Tensor& v) {
      call(
          {.effect = effect}, std::vector<Type>(),
          [](float x) {
            if (x >= 2) throw std::runtime_error("saw " + std::to_string(int(x)));
          },
          v);
    };
  };
  auto not_finite = [](const Tensor& v) { tap(1.0f / (2.0f - v), listen::first_non_finite()); };
  const std::pair<Act, const char*> acts[] = {{checks, "saw 2"},
                                              {throws(Effect::ordered), "saw 2"},
                                              {throws(Effect::unordered), "saw 2"},
                                              {not_finite, "inf"}};
  for (const Mode mode : all_modes)
    for (const auto& [act, text] : acts) {
      SCOPED_TRACE(std::string(text) + ", mode " + std::to_string(int(mode)));
      auto f = jit([&, &shown = act] { return counted(shown, 4); }, {.mode = mode});
      expect_error<CallbackError>([&] { f().item<float>(); }, {text});
      auto fine = jit([&, &shown = act] { return counted(shown, 1); }, {.mode = mode});
      EXPECT_EQ(fine().item<float>(), 1);
    }
}

TEST(Control, OnlyALoopWhoseConditionHasEffectsCarriesItsDecision) {
  auto carried = [](const Act& act) {
    const std::string text = jit([&] { return counted(act, 3); }).lower().stablehlo(),
                      loop = "\"stablehlo.while\"(";
    const std::size_t from = text.find(loop) + loop.size();
    return std::ranges::count(text.substr(from, text.find(')', from) - from), ',') + 1;
  };
  EXPECT_EQ(carried([](const Tensor&) {}), 1);
  EXPECT_EQ(carried([](const Tensor& v) { tap({.ordered = false}, v, [](float) {}); }), 2);
}

TEST(Control, EffectsInAConditionOfASavedProgram) {
  register_function("control_test.note", [](float v) { record.add(v); }, {.replace = true});
  auto f =
      jit([] { return counted([](const Tensor& v) { tap(v, Named{"control_test.note"}); }, 3); });
  const Loaded g = load_text(saved_text(f.lower()));
  EXPECT_EQ(g()[0].item<float>(), 3);
  EXPECT_EQ(record.take(), (Floats{0, 1, 2, 3}));
}

}  // namespace
}  // namespace postern
