// 500 random programs with calls, control flow and transformations: compiled against evaluated against JAX (scripts/golden_programs).
#include <gtest/gtest.h>
#include <postern/control.h>
#include <postern/postern.h>
#include <postern/transforms.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

namespace pn = postern;
using pn::Tensor;

namespace {

using Operation = std::function<Tensor(const Tensor& a, const Tensor& b)>;

Tensor host_sin(const Tensor& x) {
  return pn::call_with_vjp(
      x.type(),
      [](pn::View<const float> in, pn::View<float> out) {
        for (std::int64_t i = 0; i < in.size(); ++i) out[i] = std::sin(in[i]);
      },
      [](pn::View<const float> in, pn::View<const float>, pn::View<const float> ct, pn::View<float> dx) {
        for (std::int64_t i = 0; i < in.size(); ++i) dx[i] = std::cos(in[i]) * ct[i];
      },
      x);
}

Tensor host_square(const Tensor& x) {
  return pn::call(
      x.type(),
      [](pn::View<const float> in, pn::View<float> out) {
        for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] * in[i];
      },
      x);
}

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
      {"max_rows", [](T a, T) { return a * 0.5f + pn::max(a, {.axes = pn::Dims{1}, .keep_dims = true}); }},
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
             pn::sum(a) > 0.1f, [](Tensor p, Tensor q) { return pn::sin(p) * q; }, [](Tensor p, Tensor q) { return p - q; }, a, b);
       }},
      {"switch",
       [](T a, T b) {
         const Tensor index = pn::convert<std::int32_t>(pn::sum(b) > 0.1f) + pn::convert<std::int32_t>(pn::sum(a) > 0.1f);
         return pn::switch_(
             index,
             std::tuple{[](Tensor v) { return pn::sin(v); }, [](Tensor v) { return pn::cos(v); }, [](Tensor v) { return pn::tanh(v); }}, a);
       }},
      {"fori",
       [](T a, T b) {
         return pn::fori_loop(
             0, 3, [&](Tensor i, Tensor v) { return pn::tanh(v + b * 0.1f * pn::convert<float>(i + 1)); }, a);
       }},
      {"scan", [](T a, T b) { return scan_rows(a, b); }},
      {"while",
       [](T a, T) {
         return pn::stop_gradient(
             pn::while_loop([](Tensor v) { return pn::sum(v * v) > 1; }, [](Tensor v) { return v * 0.5f; }, pn::stop_gradient(a)));
       }},
      {"vmap", [](T a, T b) { return pn::vmap([&](Tensor row) { return pn::sin(pn::matmul(row, b)) * pn::sum(row); })(a); }},
      {"vmap_call", [](T a, T) { return pn::vmap([](Tensor row) { return host_sin(row); })(a); }},
      {"vmap_cond",
       [](T a, T b) {
         return pn::vmap([](Tensor r, Tensor s) {
           return pn::cond(
               pn::sum(r) > 0.1f, [](Tensor p, Tensor q) { return p * q; }, [](Tensor p, Tensor) { return pn::cos(p); }, r, s);
         })(a, b);
       }},
      {"grad", [](T a, T) { return pn::grad([](Tensor v) { return pn::sum(pn::sin(v) * v); })(a); }},
      {"grad_scan", [](T a, T b) { return pn::grad([&](Tensor v) { return pn::sum(scan_rows(v, b)); })(a); }},
      {"jvp", [](T a, T b) { return pn::jvp([](Tensor v) { return pn::tanh(v); }, std::tuple{a}, std::tuple{b}).second; }},
      {"checkpoint", [](T a, T) { return pn::checkpoint([](Tensor v) { return pn::sin(pn::sin(v) * v); })(a); }},
      {"hessian",
       [](T a, T) { return pn::hessian([](Tensor v) { return pn::sum(pn::sin(v) * pn::dynamic_index(v, 0)); })(pn::dynamic_index(a, 0)); }},
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
  for (const Step& step : s.steps) values.push_back(operations().at(step.name)(values[step.a], values[step.b]));
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
  for (int i = 0; i < 9; ++i) v.push_back(static_cast<float>(f(i * step + static_cast<double>(seed))));
  return pn::tensor<float>(v, {3, 3});
}

void compare(const std::vector<double>& got, const std::vector<double>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  double scale = 1;
  for (const double w : want) scale = std::max(scale, std::abs(w));
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-3 * scale) << what << ", number " << i;
}

/// Four quarters, so that a failure's program is found quickly and the suite can run in parts.
class RandomPrograms : public testing::TestWithParam<int> {};

TEST_P(RandomPrograms, AgreeWithJax) {
  RecordProperty("covers", "EVAL-01");
  const auto all = samples();
  ASSERT_EQ(all.size(), 500u);
  std::vector<float> w;
  for (int i = 0; i < 9; ++i) w.push_back(static_cast<float>(0.5 + i / 8.0));
  const Tensor weights = pn::tensor<float>(w, {3, 3});
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::size_t step = 40;  // ten times slower
#else
  constexpr std::size_t step = 4;
#endif
  for (std::size_t i = static_cast<std::size_t>(GetParam()); i < all.size(); i += step) {
    SCOPED_TRACE("program " + std::to_string(i + 1) + " of tests/data/programs.txt");
    const Sample& s = all[i];
    auto f = [&](Tensor x, Tensor y) {
      auto [value, pullback] = pn::vjp([&](Tensor a, Tensor b) { return run(s, a, b); }, x, y);
      auto [dx, dy] = pullback(weights);
      return std::vector<Tensor>{value, dx, dy};
    };
    const Tensor x = input([](double v) { return std::sin(v); }, 1.7, i), y = input([](double v) { return std::cos(v); }, 2.3, i);
    const auto compiled = numbers(pn::jit(f)(x, y));
    compare(compiled, s.want, "compiled against JAX");
    compare(numbers(pn::jit(f, {.mode = pn::Mode::evaluate})(x, y)), compiled, "evaluated against compiled");
    if (HasFatalFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Quarter, RandomPrograms, testing::Range(0, 4));

}  // namespace
