// 500 random programs with calls, control flow and transformations: compiled against evaluated
// against JAX (scripts/golden_programs), and saved ones. Then random nests of batches and control
// flow, which JAX need not know.
#include "support.h"

#include <gtest/gtest.h>
#include <postern/control.h>
#include <postern/file.h>
#include <postern/postern.h>
#include <postern/transforms.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

namespace pn = postern;
using pn::Tensor;

namespace {

using Operation = std::function<Tensor(const Tensor& a, const Tensor& b)>;

/// What taps have shown.
std::mutex shown_guard;
std::vector<double> shown;

/// By name, as saved programs need them.
void register_functions() {
  pn::register_function("random.sin",
                        [](pn::View<const float> in, pn::View<float> out) {
                          for (std::int64_t i = 0; i < in.size(); ++i)
                            out.data()[i] = std::sin(in.data()[i]);
                        },
                        {.replace = true});
  pn::register_function("random.sin_back",
                        [](pn::View<const float> in, pn::View<const float>,
                           pn::View<const float> ct, pn::View<float> dx) {
                          for (std::int64_t i = 0; i < in.size(); ++i)
                            dx[i] = std::cos(in[i]) * ct[i];
                        },
                        {.replace = true});
  pn::register_function("random.square",
                        [](pn::View<const float> in, pn::View<float> out) {
                          for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] * in[i];
                        },
                        {.replace = true});
  pn::register_function("random.show",
                        [](const pn::TapInfo& info, pn::View<const float> in) {
                          const std::scoped_lock lock(shown_guard);
                          const auto each =
                              info.mask.empty() ? 1 : in.size() / std::int64_t(info.mask.size());
                          for (std::int64_t i = 0; i < in.size(); ++i)
                            if (info.mask.empty() || info.mask[std::size_t(i / each)])
                              shown.push_back(double(in.data()[i]));
                        },
                        {.replace = true});
}

Tensor host_sin(const Tensor& x) {
  return pn::call_with_vjp(x.type(), pn::Named{"random.sin"}, pn::Named{"random.sin_back"}, x);
}

Tensor host_square(const Tensor& x) { return pn::call(x.type(), pn::Named{"random.square"}, x); }

Tensor scan_rows(const Tensor& a, const Tensor& b) {
  auto [last, ys] = pn::scan(
      [](Tensor carry, Tensor x) {
        Tensor next = pn::tanh(carry + x);
        return std::pair{next, next * x};
      },
      pn::dynamic_index(b, 0), a);
  return ys + last;
}

Tensor rows_mean(const Tensor& a) { return pn::mean(a, {.axes = pn::Dims{1}, .keep_dims = true}); }

const std::map<std::string, Operation>& operations() {
  using T = const Tensor&;
  static const std::map<std::string, Operation> all = {
      {"sin", [](T a, T) { return pn::sin(a); }},
      {"cos", [](T a, T) { return pn::cos(a); }},
      {"tanh", [](T a, T) { return pn::tanh(a); }},
      {"negative", [](T a, T) { return -a; }},
      {"gauss", [](T a, T) { return pn::exp(-a * a); }},
      {"logistic", [](T a, T) { return pn::logistic(a); }},
      {"transpose", [](T a, T) { return pn::transpose(a); }},
      {"roll", [](T a, T) { return pn::roll(a, 1, 0); }},
      {"cumsum", [](T a, T) { return pn::cumsum(a, 0) * 0.5f; }},
      {"softmax", [](T a, T) { return pn::softmax(a, 1); }},
      {"center", [](T a, T) { return a - rows_mean(a); }},
      {"sort", [](T a, T) { return pn::sort(a, 1); }},
      {"max_rows",
       [](T a, T) { return a * 0.5f + pn::max(a, {.axes = pn::Dims{1}, .keep_dims = true}); }},
      {"take",
       [](T a, T) {
         return pn::take(a, pn::tensor<std::int32_t>({2, 0, 0}), 1);
       }},
      {"add", [](T a, T b) { return (a + b) * 0.5f; }},
      {"subtract", [](T a, T b) { return a - b; }},
      {"multiply", [](T a, T b) { return a * b; }},
      {"divide", [](T a, T b) { return a / (1.5f + b * b); }},
      {"maximum", [](T a, T b) { return pn::maximum(a, b); }},
      {"matmul", [](T a, T b) { return pn::matmul(a, b) / 3.0f; }},
      {"where", [](T a, T b) { return pn::where(a > b, a, b * 0.5f); }},
      {"concatenate",
       [](T a, T b) {
         return pn::concatenate({pn::slice_axis(a, 0, 0, 1), pn::slice_axis(b, 0, 1, 3)}, 0);
       }},
      {"call", [](T a, T) { return host_sin(a); }},
      {"call_stopped", [](T a, T) { return host_square(pn::stop_gradient(a)) * 0.5f; }},
      {"cond",
       [](T a, T b) {
         return pn::cond(
             pn::sum(a) > 0.1f, [](Tensor p, Tensor q) { return pn::sin(p) * q; },
             [](Tensor p, Tensor q) { return p - q; }, a, b);
       }},
      {"switch",
       [](T a, T b) {
         const Tensor index = pn::convert<std::int32_t>(pn::sum(b) > 0.1f) +
                              pn::convert<std::int32_t>(pn::sum(a) > 0.1f);
         return pn::switch_(
             index,
             std::tuple{[](Tensor v) { return pn::sin(v); }, [](Tensor v) { return pn::cos(v); },
                        [](Tensor v) { return pn::tanh(v); }},
             a);
       }},
      {"fori",
       [](T a, T b) {
         return pn::fori_loop(
             0, 3,
             [&](Tensor i, Tensor v) { return pn::tanh(v + b * 0.1f * pn::convert<float>(i + 1)); },
             a);
       }},
      {"scan", [](T a, T b) { return scan_rows(a, b); }},
      {"while",
       [](T a, T) {
         return pn::stop_gradient(pn::while_loop([](Tensor v) { return pn::sum(v * v) > 1; },
                                                 [](Tensor v) { return v * 0.5f; },
                                                 pn::stop_gradient(a)));
       }},
      {"vmap",
       [](T a, T b) {
         return pn::vmap([&](Tensor row) { return pn::sin(pn::matmul(row, b)) * pn::sum(row); })(a);
       }},
      {"vmap_call", [](T a, T) { return pn::vmap([](Tensor row) { return host_sin(row); })(a); }},
      {"vmap_cond",
       [](T a, T b) {
         return pn::vmap([](Tensor r, Tensor s) {
           return pn::cond(
               pn::sum(r) > 0.1f, [](Tensor p, Tensor q) { return p * q; },
               [](Tensor p, Tensor) { return pn::cos(p); }, r, s);
         })(a, b);
       }},
      {"grad",
       [](T a, T) { return pn::grad([](Tensor v) { return pn::sum(pn::sin(v) * v); })(a); }},
      {"grad_scan",
       [](T a, T b) { return pn::grad([&](Tensor v) { return pn::sum(scan_rows(v, b)); })(a); }},
      {"jvp",
       [](T a, T b) {
         return pn::jvp([](Tensor v) { return pn::tanh(v); }, std::tuple{a}, std::tuple{b}).second;
       }},
      {"checkpoint",
       [](T a, T) { return pn::checkpoint([](Tensor v) { return pn::sin(pn::sin(v) * v); })(a); }},
      {"hessian",
       [](T a, T) {
         return pn::hessian([](Tensor v) { return pn::sum(pn::sin(v) * pn::dynamic_index(v, 0)); })(
             pn::dynamic_index(a, 0));
       }},
  };
  return all;
}

struct Step {
  std::string name;
  std::size_t a = 0, b = 0;
};
struct Sample {
  std::vector<Step> steps;
  std::vector<double> want;
};

std::vector<Sample> samples() {
  std::vector<Sample> out;
  std::ifstream in(std::string(POSTERN_TEST_DATA) + "/programs.txt");
  for (std::string line; std::getline(in, line);) {
    const auto bar = line.find('|');
    Sample s;
    std::istringstream steps(line.substr(0, bar)), numbers(line.substr(bar + 1));
    for (std::string text; std::getline(steps, text, ';');) {
      std::istringstream words(text);
      Step step;
      words >> step.name >> step.a >> step.b;
      s.steps.push_back(step);
    }
    for (double v; numbers >> v;) s.want.push_back(v);
    out.push_back(std::move(s));
  }
  return out;
}

Tensor run(const Sample& s, const Tensor& x, const Tensor& y) {
  std::vector<Tensor> values{x, y};
  for (const Step& step : s.steps)
    values.push_back(operations().at(step.name)(values[step.a], values[step.b]));
  return values.back();
}

std::vector<double> numbers(const std::vector<Tensor>& tensors) {
  std::vector<double> out;
  for (const Tensor& t : tensors)
    for (const float v : t.to_vector<float>()) out.push_back(static_cast<double>(v));
  return out;
}

Tensor input(double (*f)(double), double step, std::size_t seed) {
  std::vector<float> v;
  for (int i = 0; i < 9; ++i)
    v.push_back(static_cast<float>(f(i * step + static_cast<double>(seed))));
  return pn::tensor<float>(v, {3, 3});
}

void compare(const std::vector<double>& got, const std::vector<double>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  double scale = 1;
  for (const double w : want) scale = std::max(scale, std::abs(w));
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 2e-3 * scale) << what << ", number " << i;
}

/// Four quarters, so that a failure's program is found quickly and the suite can run in parts.
class RandomPrograms : public testing::TestWithParam<int> {};

TEST_P(RandomPrograms, AgreeWithJax) {
  RecordProperty("covers", "EVAL-01");
  register_functions();
  const auto all = samples();
  ASSERT_EQ(all.size(), 500u);
  std::vector<float> w;
  for (int i = 0; i < 9; ++i) w.push_back(static_cast<float>(0.5 + i / 8.0));
  const Tensor weights = pn::tensor<float>(w, {3, 3});
#ifdef NDEBUG
  constexpr std::size_t step = 4;
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::size_t step = 40;  // ten times slower
#else
  // All take ten minutes of a core; ./test --all asks for them.
  const std::size_t step = 4 * pn::test::stride(12);
#endif
  for (std::size_t i = static_cast<std::size_t>(GetParam()); i < all.size(); i += step) {
    SCOPED_TRACE("program " + std::to_string(i + 1) + " of tests/data/programs.txt");
    const Sample& s = all[i];
    auto f = [&](Tensor x, Tensor y) {
      auto [value, pullback] = pn::vjp([&](Tensor a, Tensor b) { return run(s, a, b); }, x, y);
      auto [dx, dy] = pullback(weights);
      return std::vector<Tensor>{value, dx, dy};
    };
    const Tensor x = input([](double v) { return std::sin(v); }, 1.7, i),
                 y = input([](double v) { return std::cos(v); }, 2.3, i);
    const auto compiled = numbers(pn::jit(f)(x, y));
    compare(compiled, s.want, "compiled against JAX");
    compare(numbers(pn::jit(f, {.mode = pn::Mode::evaluate})(x, y)), compiled,
            "evaluated against compiled");
    const auto batches = [](const Step& one) { return one.name.starts_with("vmap"); };
    if (std::ranges::any_of(s.steps, batches)) {
      const pn::Loaded saved = pn::load_text(pn::saved_text(pn::jit(f).lower(x, y)));
      compare(numbers(saved(x, y)), compiled, "saved against compiled");
    }
    if (HasFatalFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Quarter, RandomPrograms, testing::Range(0, 4));

/// A function that works on any shape, of batches, branches and loops in one another.
class Nest {
 public:
  explicit Nest(unsigned seed) : random_(seed) {}

  using F = std::function<Tensor(Tensor)>;
  /// `rank`: of what it is given.
  F make(int depth, int rank) {
    const int kind = depth == 0 ? below(3) : 3 + below(6);
    const float limit = static_cast<float>(below(5)) * 0.3f - 0.6f;
    switch (kind) {
      case 0: {
        const pn::CallOptions options{.effect = below(2) ? pn::Effect::unordered : pn::Effect::pure,
                                      .vmap = pn::VmapMethod(below(4))};
        return
            [options](Tensor x) { return pn::call(options, x.type(), pn::Named{"random.sin"}, x); };
      }
      case 1:
        return [](Tensor x) {
          return pn::tap({.ordered = false}, x * 0.5f, pn::Named{"random.show"});
        };
      case 2: return [](Tensor x) { return pn::cos(x) + 0.1f; };
      case 3: {
        const F f = make(depth - 1, rank), g = make(depth - 1, rank);
        return [=](Tensor x) { return pn::cond(pn::sum(x) > limit, f, g, x); };
      }
      case 4: {
        const std::vector<F> branches{make(depth - 1, rank), make(depth - 1, rank),
                                      make(depth - 1, rank)};
        return [=](Tensor x) {
          return pn::switch_(pn::convert<std::int32_t>(pn::sum(x) * 2.0f) + 1, branches, x);
        };
      }
      case 5: {
        const F f = make(depth - 1, rank);
        return [=](Tensor x) {
          const Tensor steps = pn::minimum(pn::sum(pn::abs(x)), 3.0f);
          return std::get<1>(pn::while_loop([=](Tensor i, Tensor) { return i < steps; },
                                            [=](Tensor i, Tensor v) {
                                              return std::tuple{i + 1.0f, f(v)};
                                            },
                                            std::tuple{Tensor(0.0f), x}));
        };
      }
      case 6: {  // in the condition too
        const F f = make(depth - 1, rank), g = make(0, rank);
        return [=](Tensor x) {
          return std::get<1>(
              pn::while_loop([=](Tensor i, Tensor v) { return i + 0.1f * pn::sum(g(v)) < 2.0f; },
                             [=](Tensor i, Tensor v) {
                               return std::tuple{i + 1.0f, f(v)};
                             },
                             std::tuple{Tensor(0.0f), x}));
        };
      }
      case 7: {
        const F f = make(depth - 1, rank), g = make(0, rank);
        return [=](Tensor x) { return f(g(x)); };
      }
      default: {
        if (rank == 0) return make(depth - 1, rank);
        const F f = make(depth - 1, rank - 1);
        return [=](Tensor x) { return pn::vmap(f)(x); };
      }
    }
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  std::mt19937 random_;
};

TEST(RandomPrograms, BatchedFormsAgreeInEveryModeAndWhenSaved) {
  register_functions();
  auto run_and_show = [](auto&& run) {
    shown.clear();
    std::vector<double> out = numbers(run());
    std::ranges::sort(shown);
    out.insert(out.end(), shown.begin(), shown.end());
    return out;
  };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr unsigned count = 8;
#else
  constexpr unsigned count = 20;
#endif
  std::size_t masked = 0, batched = 0;
  for (unsigned seed = 0; seed < count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Nest::F f = Nest(seed).make(3, 1), g = [=](Tensor x) { return pn::vmap(pn::vmap(f))(x); };
    std::vector<float> v;
    for (int i = 0; i < 12; ++i)
      v.push_back(std::sin(1.7f * static_cast<float>(i) + static_cast<float>(seed)));
    const Tensor x = pn::tensor<float>(v, {2, 3, 2});
    auto compiled = pn::jit(g);  // or in stages
    const auto want = run_and_show([&] { return std::vector{compiled(x)}; });
    const std::string text = pn::saved_text(compiled.lower(x));
    masked += text.find(R"("masked":true)") != std::string::npos;
    batched += text.find(R"("levels":[{)") != std::string::npos;
    const pn::Loaded saved = pn::load_text(text);
    compare(run_and_show([&] { return saved(x); }), want, "saved against compiled");
    auto evaluated = pn::jit(g, {.mode = pn::Mode::evaluate});
    compare(run_and_show([&] { return std::vector{evaluated(x)}; }), want,
            "evaluated against compiled");
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(masked, count / 5);
  EXPECT_GT(batched, count / 5);
}

// However heavy XLA thinks a program, from whichever thread it is asked for, called or started: to
// the bit, and what was shown is there when the call has returned.
TEST(RandomPrograms, GiveAndShowTheSameHoweverTheyAreRun) {
  register_functions();
  using Numbers = std::vector<double>;
  const auto run_and_show = [](const auto& run) {
    shown.clear();
    const std::vector<Tensor> results = run();
    Numbers out = [] {
      const std::scoped_lock lock(shown_guard);
      return std::exchange(shown, {});
    }();
    std::ranges::sort(out);
    const Numbers given = numbers(results);
    out.insert(out.end(), given.begin(), given.end());
    return out;
  };
  const Tensor heavy = pn::ones(pn::type<float>({512, 512}));
  const Tensor light = pn::ones(pn::type<float>({2, 2}));
  std::size_t shows = 0;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr unsigned count = 8;
#else
  constexpr unsigned count = 20;
#endif
  for (unsigned seed = 0; seed < count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Nest::F f = Nest(seed).make(3, 1);
    auto g = pn::jit([=](Tensor x, Tensor w) {
      return std::vector{pn::vmap(pn::vmap(f))(x), pn::vmap(pn::vmap(f))(x * 1e-38f),
                         pn::sum(pn::matmul(w, w))};
    });
    std::vector<float> v;
    for (int i = 0; i < 12; ++i)
      v.push_back(std::sin(1.7f * static_cast<float>(i) + static_cast<float>(seed)));
    const Tensor x = pn::tensor<float>(v, {2, 3, 2});
    const auto head = [](std::vector<Tensor> all) {
      all.pop_back();  // the weight
      return all;
    };
    const Numbers want = run_and_show([&] { return head(g(x, light)); });
    shows += want.size() > 24;
    for (int round = 0; round < 3; ++round)
      EXPECT_EQ(run_and_show([&] { return head(g(x, heavy)); }), want) << "heavy";
    EXPECT_EQ(run_and_show([&] { return head(g.start(x, heavy).result()); }), want) << "started";
    Numbers other;
    std::jthread([&] { other = run_and_show([&] { return head(g(x, light)); }); }).join();
    EXPECT_EQ(other, want) << "from another thread";
    if (HasFailure()) return;
  }
  EXPECT_GT(shows, count / 5);
}

}  // namespace
