// Transformations on a table of programs: each against finite differences, against the other mode,
// against a loop, eager and evaluated.
#include "transform_test.h"

namespace postern {
namespace {

using namespace test;
using Doubles = std::vector<double>;

constexpr std::int64_t points = 3;

Tensor point() { return tensor<double>({0.4, -0.7, 1.3}); }

double value(const Program1& f, const Doubles& x) {
  return sum(f(tensor<double>(x))).item<double>();
}

/// Central differences of the sum of f.
Doubles differences(const std::function<double(const Doubles&)>& f, Doubles x, double step) {
  Doubles out;
  for (double& v : x) {
    const double at = v;
    v = at + step;
    const double up = f(x);
    v = at - step;
    out.push_back((up - f(x)) / (2 * step));
    v = at;
  }
  return out;
}

void expect_close(const Doubles& got, const Doubles& want, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << what << " [" << i << "]";
}

class Transform : public testing::TestWithParam<Row> {
 protected:
  static Tensor total(Tensor x) { return sum(GetParam().f(x)); }
};

TEST_P(Transform, EagerCompiledAndEvaluatedAgree) {
  RecordProperty("covers", "EVAL-01");
  const auto& f = GetParam().f;
  const Doubles eager = f(point()).to_vector<double>();
  expect_close(jit(f)(point()).to_vector<double>(), eager, 1e-12, "compiled");
  expect_close(jit(f, {.mode = Mode::evaluate})(point()).to_vector<double>(), eager, 1e-12,
               "evaluated");
  jit(f).program(point()).verify();
}

TEST_P(Transform, JvpAgreesWithDifferences) {
  if (!GetParam().forward) return;
  const auto& f = GetParam().f;
  const Tensor direction = tensor<double>({1.0, -0.5, 0.25});
  auto tangent = [&](Tensor x, Tensor t) { return jvp(f, std::tuple{x}, std::tuple{t}).second; };
  const Doubles got = jit(tangent)(point(), direction).to_vector<double>();
  const Doubles up = f(point() + 1e-6 * direction).to_vector<double>(),
                down = f(point() - 1e-6 * direction).to_vector<double>();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], (up[i] - down[i]) / 2e-6, 1e-6);
  expect_close(tangent(point(), direction).to_vector<double>(), got, 1e-12, "eager");
  expect_close(jit(tangent, {.mode = Mode::evaluate})(point(), direction).to_vector<double>(), got,
               1e-12, "evaluated");
  jit(tangent).program(point(), direction).verify();
}

TEST_P(Transform, GradAgreesWithDifferences) {
  if (!GetParam().reverse) return;
  const Doubles x = point().to_vector<double>();
  const Doubles want =
      differences([](const Doubles& v) { return value(GetParam().f, v); }, x, 1e-6);
  const auto g = grad(total);
  const Doubles got = jit(g)(point()).to_vector<double>();
  expect_close(got, want, 1e-6, "compiled");
  expect_close(g(point()).to_vector<double>(), got, 1e-12, "eager");
  expect_close(jit(g, {.mode = Mode::evaluate})(point()).to_vector<double>(), got, 1e-12,
               "evaluated");
  jit(g).program(point()).verify();
}

TEST_P(Transform, ReverseAgreesWithForward) {
  if (!GetParam().reverse) return;
  const auto& f = GetParam().f;
  const Tensor t = tensor<double>({0.3, 0.2, -0.9});
  if (!GetParam().forward) return;
  const auto [y, pull] = vjp(f, point());
  const Tensor ct = cos(iota<double>(y.size()));
  const Tensor dy = jvp(f, std::tuple{point()}, std::tuple{t}).second;
  const auto [z, push] = linearize(f, point());
  EXPECT_NEAR(sum(ct * dy).item<double>(), sum(std::get<0>(pull(ct)) * t).item<double>(), 1e-9);
  expect_close(push(t).to_vector<double>(), dy.to_vector<double>(), 1e-12, "linearize");
  expect_close(z.to_vector<double>(), y.to_vector<double>(), 1e-12, "values");
}

TEST_P(Transform, SecondAndThirdDerivatives) {
  if (!GetParam().reverse) return;
  const auto g = jit(grad(total));
  auto dot = [](Tensor x) { return sum(grad(total)(x) * tensor<double>({1.0, 2.0, -1.0})); };
  auto twice = [dot](Tensor x) { return sum(grad(dot)(x) * tensor<double>({-0.5, 1.0, 0.5})); };
  auto weighted = [&](const Doubles& v) {
    return sum(g(tensor<double>(v)) * tensor<double>({1.0, 2.0, -1.0})).item<double>();
  };
  const Doubles x = point().to_vector<double>();
  expect_close(jit(grad(dot))(point()).to_vector<double>(), differences(weighted, x, 1e-6), 1e-5,
               "second");
  auto second = jit(twice);
  const Doubles want = differences(
      [&](const Doubles& v) { return second(tensor<double>(v)).item<double>(); }, x, 1e-5);
  expect_close(jit(grad(twice))(point()).to_vector<double>(), want, 1e-4, "third");
}

TEST_P(Transform, HessianInAllModes) {
  if (!GetParam().reverse) return;
  const Doubles h = jit(jacrev(grad(total)))(point()).to_vector<double>();
  for (std::int64_t i = 0; i < points; ++i)
    for (std::int64_t j = 0; j < i; ++j)
      EXPECT_NEAR(h[static_cast<std::size_t>(i * points + j)],
                  h[static_cast<std::size_t>(j * points + i)], 1e-8);
  if (!GetParam().forward) return;
  expect_close(jit(hessian(total))(point()).to_vector<double>(), h, 1e-9, "jacfwd of jacrev");
  expect_close(jit(jacfwd(jacfwd(total)))(point()).to_vector<double>(), h, 1e-9,
               "jacfwd of jacfwd");
}

TEST_P(Transform, JacobiansAgree) {
  if (!GetParam().reverse || !GetParam().forward) return;
  const auto& f = GetParam().f;
  const Tensor forward = jit(jacfwd(f))(point()), reverse = jit(jacrev(f))(point());
  EXPECT_EQ(to_string(forward.type()), to_string(reverse.type()));
  expect_close(forward.to_vector<double>(), reverse.to_vector<double>(), 1e-9,
               "forward and reverse");
}

Tensor batch() {
  return tensor<double>({0.4, -0.7, 1.3, 1.1, 0.2, -0.3, -1.2, 0.9, 0.6, 0.1, 0.8, -0.4},
                        {4, points});
}

void expect_rows(const Program1& one, const Tensor& batched, double tolerance, const char* what) {
  const Tensor rows = batch();
  for (std::int64_t i = 0; i < 4; ++i) {
    const Tensor row = reshape(slice_axis(rows, 0, i, i + 1), {points}),
                 got = slice_axis(batched, 0, i, i + 1);
    expect_close(got.to_vector<double>(), one(row).to_vector<double>(), tolerance, what);
  }
}

TEST_P(Transform, VmapAgreesWithLoop) {
  const auto& f = GetParam().f;
  const auto compiled = jit(f);
  expect_rows(compiled, jit(vmap(f))(batch()), 1e-12, "compiled");
  expect_rows(compiled, vmap(f)(batch()), 1e-12, "eager");
  expect_rows(compiled, jit(vmap(f, {.in_axes = 1}))(transpose(batch())), 1e-12, "another axis");
  expect_rows(compiled, jit(vmap(f), {.mode = Mode::evaluate})(batch()), 1e-12, "evaluated");
  jit(vmap(f)).program(batch()).verify();
}

TEST_P(Transform, VmapAndGradCommute) {
  if (!GetParam().reverse) return;
  expect_rows(jit(grad(total)), jit(vmap(grad(total)))(batch()), 1e-10, "vmap of grad");
  auto all = [](Tensor x) { return sum(vmap(GetParam().f)(x)); };
  expect_rows(jit(grad(total)), jit(grad(all))(batch()), 1e-10, "grad of vmap");
  auto hessians = jit(vmap(jacrev(grad(total))))(batch());
  expect_rows(jit(jacrev(grad(total))), hessians, 1e-9, "vmap of second derivatives");
}

TEST_P(Transform, VmapAndJvpCommute) {
  if (!GetParam().forward) return;
  auto tangent = [](Tensor x) {
    return jvp(GetParam().f, std::tuple{x}, std::tuple{cos(x)}).second;
  };
  auto batched = [](Tensor x) {
    return jvp(vmap(GetParam().f), std::tuple{x}, std::tuple{cos(x)}).second;
  };
  const Tensor want = jit(vmap(tangent))(batch());
  expect_rows(jit(tangent), want, 1e-11, "vmap of jvp");
  expect_close(jit(batched)(batch()).to_vector<double>(), want.to_vector<double>(), 1e-11,
               "jvp of vmap");
}

TEST_P(Transform, NestedVmap) {
  const Tensor cube = reshape(concatenate({batch(), batch() * 0.5}), {2, 4, points});
  const Tensor got = jit(vmap(vmap(GetParam().f)))(cube),
               want = jit(vmap(GetParam().f))(reshape(cube, {8, points}));
  expect_close(got.to_vector<double>(), want.to_vector<double>(), 1e-12, "nested");
}

TEST_P(Transform, InsideOfLoops) {
  const auto& f = GetParam().f;
  auto repeated = [&](Tensor x) {
    return fori_loop(
        0, 3, [&](Tensor, Tensor v) { return v + 0.1 * tanh(sum(f(v))); }, x);
  };
  Tensor want = point();
  for (int i = 0; i < 3; ++i) want = want + 0.1 * tanh(sum(f(want)));
  expect_close(jit(repeated)(point()).to_vector<double>(), want.to_vector<double>(), 1e-10,
               "value");
  if (!GetParam().reverse) return;
  auto unrolled = [&](Tensor x) {
    for (int i = 0; i < 3; ++i) x = x + 0.1 * tanh(sum(f(x)));
    return sum(x);
  };
  auto looped = [&](Tensor x) { return sum(repeated(x)); };
  expect_close(jit(grad(looped))(point()).to_vector<double>(),
               jit(grad(unrolled))(point()).to_vector<double>(), 1e-10, "gradient");
}

INSTANTIATE_TEST_SUITE_P(Programs, Transform, testing::ValuesIn(rows()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace postern
