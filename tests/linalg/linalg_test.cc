// Linear algebra by table: values against reconstruction, natives against defaults, derivatives
// against finite differences, batches against loops.
#include "linalg_test.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "support.h"

namespace postern {
namespace {

using linalg_test::close;
using linalg_test::max_abs;
using linalg_test::mh;
using linalg_test::random_matrix;
using test::expect_error;
using test::has;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

double tolerance_of(DType dtype) {
  if (dtype == DType::bf16) return 0.08;
  if (dtype == DType::f16) return 0.01;
  return real_dtype(dtype) == DType::f64 ? 1e-11 : 2e-5;
}

class LinalgEach : public testing::TestWithParam<linalg_test::Decomposition> {};

TEST_P(LinalgEach, ReproducesItsMatrixInEachDtype) {
  RecordProperty("covers", "LINALG-04 LINALG-06 LINALG-07 LINALG-09");
  const auto& d = GetParam();
  for (const DType dtype :
       {DType::f32, DType::f64, DType::c64, DType::c128, DType::f16, DType::bf16})
    for (const Dims& dims : d.shapes) {
      const Tensor a = d.make(
          convert(random_matrix(dims, is_complex(dtype) ? DType::c128 : DType::f64, 3), dtype));
      const double tolerance = tolerance_of(dtype);
      EXPECT_LE(max_abs(d.error(a)), tolerance) << d.name << " of " << to_string(a.type());
      EXPECT_LE(max_abs(jit(d.error)(a)), tolerance)
          << d.name << " jitted, of " << to_string(a.type());
    }
}

TEST_P(LinalgEach, NativeAndDefaultAgree) {
  RecordProperty("covers", "LINALG-09 BLOCK-01");
  const auto& d = GetParam();
  for (const DType dtype : {DType::f64, DType::c128})
    for (const Dims& dims : d.shapes) {
      const Tensor a = d.make(random_matrix(dims, dtype, 5));
      const std::vector<Tensor> native = d.all(a);
      const auto handles = linalg_test::defaults_only();
      const std::vector<Tensor> by_default = d.all(a);
      EXPECT_LE(max_abs(d.error(a)), 1e-10) << d.name << " by default, of " << to_string(a.type());
      for (const auto& h : handles) h.remove();
      ASSERT_EQ(native.size(), by_default.size());
      for (std::size_t i = 0; i < native.size(); ++i) {
        ASSERT_EQ(to_string(native[i].type()), to_string(by_default[i].type())) << d.name;
        EXPECT_TRUE(close(native[i], by_default[i], 1e-9))
            << d.name << " result " << i << " of " << to_string(a.type());
      }
    }
}

TEST_P(LinalgEach, BatchesAreLoops) {
  RecordProperty("covers", "LINALG-04 BLOCK-09");
  const auto& d = GetParam();
  for (const Dims& one : d.shapes) {
    Dims dims = one;
    dims.insert(dims.begin(), 3);
    const Tensor a = d.make(random_matrix(dims, DType::f64, 7));
    const std::vector<Tensor> whole = d.all(a);
    const std::vector<Tensor> mapped = jit(vmap([&](Tensor x) { return d.all(x); }))(a);
    for (std::int64_t i = 0; i < 3; ++i) {
      const std::vector<Tensor> single = d.all(reshape(slice_axis(a, 0, i, i + 1), one));
      for (std::size_t r = 0; r < single.size(); ++r) {
        EXPECT_TRUE(close(dynamic_index(whole[r], static_cast<int>(i)), single[r], 1e-10))
            << d.name;
        EXPECT_TRUE(close(dynamic_index(mapped[r], static_cast<int>(i)), single[r], 1e-10))
            << d.name << " under vmap";
      }
    }
  }
}

TEST_P(LinalgEach, DegenerateSizes) {
  const auto& d = GetParam();
  for (const Dims& dims : {Dims{0, 0}, Dims{1, 1}, Dims{2, 1, 1}, Dims{0, 2, 2}}) {
    const Tensor a = d.make(random_matrix(dims, DType::f64, 11));
    EXPECT_LE(max_abs(d.error(a)), 1e-12) << d.name << " of " << to_string(a.type());
    const auto handles = linalg_test::defaults_only();
    EXPECT_LE(max_abs(d.error(a)), 1e-12) << d.name << " by default, of " << to_string(a.type());
    for (const auto& h : handles) h.remove();
  }
}

TEST_P(LinalgEach, LargerThanATile) {
  RecordProperty("covers", "LINALG-04 LINALG-07");
  const auto& d = GetParam();
  const bool square =
      std::ranges::all_of(d.shapes, [](const Dims& s) { return s[s.size() - 2] == s.back(); });
  for (const Dims& dims :
       square ? std::vector<Dims>{{70, 70}} : std::vector<Dims>{{70, 70}, {70, 33}, {33, 70}})
    for (const DType dtype : {DType::f64, DType::c128}) {
      const Tensor a = d.make(random_matrix(dims, dtype, 71) +
                              eye(dtype, dims[0], dims[1]) * (square ? 30.0 : 0.0));
      EXPECT_LE(max_abs(d.error(a)), 1e-11) << d.name << " of " << to_string(a.type());
    }
}

INSTANTIATE_TEST_SUITE_P(, LinalgEach, testing::ValuesIn(linalg_test::decompositions()),
                         [](const auto& row) { return row.param.name; });

class LinalgDerivative : public testing::TestWithParam<linalg_test::Function> {};

TEST_P(LinalgDerivative, AgreesWithFiniteDifferences) {
  RecordProperty("covers", "LINALG-10 BLOCK-07");
  const auto& f = GetParam();
  const Tensor x = f.make(random_matrix(f.dims, DType::f64, 13)),
               direction = random_matrix(f.dims, DType::f64, 17);
  const double h = 1e-6;
  const double difference =
      (f.of(x + direction * h).item<double>() - f.of(x - direction * h).item<double>()) / (2 * h);
  const double scale = 1 + std::abs(difference);
  const auto [y, dy] = jit([&](Tensor a, Tensor da) { return jvp(f.of, a, da); })(x, direction);
  EXPECT_NEAR(y.item<double>(), f.of(x).item<double>(), 1e-10);
  EXPECT_NEAR(dy.item<double>(), difference, 1e-5 * scale) << "forward";
  EXPECT_NEAR(sum(jit(grad(f.of))(x) * direction).item<double>(), difference, 1e-5 * scale)
      << "reverse";
  EXPECT_NEAR(sum(grad(f.of)(x) * direction).item<double>(), difference, 1e-5 * scale)
      << "reverse, outside of jit";
  // Second order: the gradient's own derivative.
  auto slope = [&](Tensor a) { return sum(grad(f.of)(a) * direction); };
  const double second =
      (slope(x + direction * h).item<double>() - slope(x - direction * h).item<double>()) / (2 * h);
  EXPECT_NEAR(sum(jit(grad(slope))(x) * direction).item<double>(), second,
              1e-4 * (1 + std::abs(second)))
      << "second order";
}

TEST_P(LinalgDerivative, OfABatchIsALoop) {
  const auto& f = GetParam();
  Dims dims = f.dims;
  dims.insert(dims.begin(), 2);
  const Tensor x = f.make(random_matrix(dims, DType::f64, 19));
  const Tensor both = jit(vmap(grad(f.of)))(x);
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(close(dynamic_index(both, i), grad(f.of)(dynamic_index(x, i)), 1e-9));
}

INSTANTIATE_TEST_SUITE_P(, LinalgDerivative, testing::ValuesIn(linalg_test::functions()),
                         [](const auto& row) { return row.param.name; });

// --- JAX's values and gradients: scripts/golden_linalg ---

Tensor golden_matrix(std::int64_t rows, std::int64_t columns, double shift = 0) {
  Doubles values;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      values.push_back(std::sin(static_cast<double>(1 + 3 * i + 7 * j + i * j)) +
                       (i == j ? shift : 0));
  return tensor<double>(values, {rows, columns});
}

struct Golden {
  Tensor a;
  std::function<std::vector<Tensor>(Tensor)> of;
};
std::map<std::string, Golden> golden_rows() {
  using V = std::vector<Tensor>;
  auto qr = [](Tensor a) {
    const auto [q, r] = linalg::qr(a);
    return V{q, r};
  };
  auto lu = [](Tensor a) { return V{linalg::lu(a).lu}; };
  const Tensor square4 = golden_matrix(4, 4), away = golden_matrix(4, 4, 3),
               tall = golden_matrix(5, 3);
  return {
      {"cholesky", {golden_matrix(4, 4, 4), [](Tensor a) { return V{linalg::cholesky(a)}; }}},
      {"lu", {square4, lu}},
      {"lu_tall", {tall, lu}},
      {"qr", {square4, qr}},
      {"qr_tall", {tall, qr}},
      {"eigh",
       {square4,
        [](Tensor a) {
          const auto [w, v] = linalg::eigh(a);
          return V{w, square(v)};
        }}},
      {"svd_tall",
       {tall,
        [](Tensor a) {
          const auto [u, s, vh] = linalg::svd(a);
          return V{square(u), s, square(vh)};
        }}},
      {"svdvals_wide", {golden_matrix(3, 5), [](Tensor a) { return V{linalg::svdvals(a)}; }}},
      {"solve", {away, [](Tensor a) { return V{linalg::solve(a, golden_matrix(4, 2))}; }}},
      {"triangular",
       {away,
        [](Tensor a) {
          return V{linalg::triangular_solve(a, golden_matrix(4, 2), {.transpose = true})};
        }}},
      {"inv", {away, [](Tensor a) { return V{linalg::inv(a)}; }}},
      {"det", {square4, [](Tensor a) { return V{linalg::det(a)}; }}},
      {"slogdet", {square4, [](Tensor a) { return V{linalg::slogdet(a).second}; }}},
      {"pinv", {tall, [](Tensor a) { return V{linalg::pinv(a)}; }}},
      {"lstsq", {tall, [](Tensor a) { return V{linalg::lstsq(a, golden_matrix(5, 2, 1))}; }}},
      {"matrix_power", {away, [](Tensor a) { return V{linalg::matrix_power(a, -3)}; }}},
      {"expm", {square4, [](Tensor a) { return V{linalg::expm(a)}; }}},
  };
}

Doubles numbers(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<double>(in), {}};
}

TEST(Linalg, ValuesAndGradientsAreThoseOfJax) {
  RecordProperty(
      "covers",
      "LINALG-01 LINALG-02 LINALG-03 LINALG-04 LINALG-05 LINALG-06 LINALG-07 LINALG-08 LINALG-10");
  const auto rows = golden_rows();
  std::ifstream file(POSTERN_TEST_DATA "/linalg.txt");
  std::size_t seen = 0;
  for (std::string line; std::getline(file, line); ++seen) {
    std::istringstream parts(line);
    std::string name, values, slopes;
    std::getline(std::getline(std::getline(parts, name, ';'), values, ';'), slopes);
    ASSERT_TRUE(rows.contains(name)) << name;
    const Golden& row = rows.at(name);
    auto flat = [&](Tensor a) {
      std::vector<Tensor> all;
      for (const Tensor& y : row.of(a)) all.push_back(reshape(y, {-1}));
      return concatenate(all);
    };
    const Doubles expected = numbers(values), slope = numbers(slopes);
    const auto count = static_cast<std::int64_t>(expected.size());
    EXPECT_TRUE(close(jit(flat)(row.a), tensor<double>(expected), 1e-12)) << name;
    const Tensor weights = cos(iota({DType::f64, {count}}, 0));
    const Tensor by_grad = jit(grad([&](Tensor a) { return sum(flat(a) * weights); }))(row.a);
    EXPECT_TRUE(close(by_grad, tensor<double>(slope, row.a.dims()), 1e-9))
        << name << ": gradient " << to_string(by_grad.type());
  }
  EXPECT_EQ(seen, rows.size());
}

TEST(Linalg, CholeskyOfKnownMatrices) {
  RecordProperty("covers", "LINALG-01");
  const auto l = linalg::cholesky(tensor<float>({4, 2, 2, 3}, {2, 2})).to_vector<float>();
  EXPECT_NEAR(l[3], 1.4142135, 1e-6);
  EXPECT_EQ((Floats{l[0], l[1], l[2]}), (Floats{2, 0, 1}));
  const Tensor batch = tensor<float>({4, 2, 2, 3, 1, 2, 2, 1}, {2, 2, 2});
  const auto both = linalg::cholesky(batch).to_vector<float>();
  EXPECT_EQ(both[0], 2);
  EXPECT_TRUE(std::isnan(both[4]) && std::isnan(both[6]) && std::isnan(both[7]));
  EXPECT_EQ(both[5], 0) << "above the diagonal";
  if (test::skipped_in_stages("only kernels fail with an error")) return;
  expect_error<CallbackError>(
      [&] { linalg::cholesky(batch, linalg::Failure::error).to_vector<float>(); },
      {"linalg.cholesky", "matrix 1 of the batch"});
  const auto handles = linalg_test::defaults_only();
  EXPECT_TRUE(std::isnan(linalg::cholesky(batch).to_vector<float>()[7]));
  for (const auto& h : handles) h.remove();
}

TEST(Linalg, FunctionsOfMatricesAreBlocks) {
  RecordProperty("covers", "BLOCK-12");
  const Tensor a = tensor<double>({2, 1, 1, 3}, {2, 2});
  const auto f = jit([](Tensor m) { return linalg::det(m) + sum(linalg::expm(m)) * 0.0; });
  const std::string shown = f.program(a).text();
  EXPECT_TRUE(has(shown, "linalg.det") && has(shown, "linalg.expm")) << shown;
  if (test::skipped_in_stages("kernels are custom calls")) return;
  const auto handle = override_block<linalg::Det>(
      {.kernel = [](const linalg::Det&, View<const double>, View<double> out) { out[0] = 42; }});
  EXPECT_TRUE(has(block_path(linalg::Det{}, {a.type()}).text, "native"));
  EXPECT_EQ(f(a).item<double>(), 42);
  EXPECT_EQ(linalg::det(a).item<double>(), 42);
  handle.remove();
  EXPECT_NEAR(f(a).item<double>(), 5, 1e-12);
  const auto power = override_block<linalg::MatrixPower>(
      {.when = [](const linalg::MatrixPower& c, std::span<const Type>) { return c.exponent == 2; },
       .kernel = [](const linalg::MatrixPower&, View<const double>,
                    View<double> out) { out[0] = 7; }});
  EXPECT_EQ(linalg::matrix_power(a, 2).to_vector<double>()[0], 7);
  EXPECT_NEAR(linalg::matrix_power(a, 3).to_vector<double>()[0], 15, 1e-12);
  power.remove();
}

TEST(Linalg, EquationsWithKnownSolutions) {
  RecordProperty("covers", "LINALG-02 LINALG-03");
  const Tensor a = tensor<double>({2, 1, 1, 3}, {2, 2}), b = tensor<double>({3, 5});
  EXPECT_TRUE(close(linalg::solve(a, b), tensor<double>({0.8, 1.4}), 1e-12));
  EXPECT_TRUE(close(linalg::solve(stack({a, a * 2.0}), b),
                    tensor<double>({0.8, 1.4, 0.4, 0.7}, {2, 2}), 1e-12))
      << "a vector for each of several matrices";
  EXPECT_TRUE(close(grad([&](Tensor r) { return sum(linalg::solve(a, r)); })(b),
                    tensor<double>({0.4, 0.2}), 1e-12));
  EXPECT_TRUE(close(linalg::inv(a), tensor<double>({0.6, -0.2, -0.2, 0.4}, {2, 2}), 1e-12));
  EXPECT_NEAR(linalg::det(a).item<double>(), 5, 1e-12);
  EXPECT_TRUE(close(grad([](Tensor m) { return linalg::det(m); })(a),
                    tensor<double>({3, -1, -1, 2}, {2, 2}), 1e-12));
  const Tensor singular = tensor<double>({1, 2, 2, 4}, {2, 2});
  EXPECT_NEAR(linalg::det(singular).item<double>(), 0, 1e-12);
  EXPECT_TRUE(close(grad([](Tensor m) { return linalg::det(m); })(singular),
                    tensor<double>({4, -2, -2, 1}, {2, 2}), 1e-12));
  const auto [sign, size] = linalg::slogdet(-a);
  EXPECT_EQ(sign.item<double>(), 1);
  EXPECT_NEAR(size.item<double>(), std::log(5), 1e-12);
  EXPECT_EQ(linalg::slogdet(singular).second.item<double>(),
            -std::numeric_limits<double>::infinity());
}

TEST(Linalg, TriangularSolveOnAllSides) {
  RecordProperty("covers", "LINALG-02");
  for (int bits = 0; bits < 32; ++bits) {
    const linalg::Triangular options{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0,
                                     (bits & 8) != 0, (bits & 16) != 0};
    const Tensor full = random_matrix({2, 3, 3}, DType::c128, 23) + eye<double>(3) * 4.0;
    const Tensor b = random_matrix({2, 3, 3}, DType::c128, 29);
    Tensor m = options.lower ? tril(full) : triu(full);
    if (options.unit_diagonal) m = where(eye(DType::pred, 3, 3), ones_like(m), m);
    if (options.transpose) m = transpose(m, {0, 2, 1});
    if (options.conjugate) m = conj(m);
    auto error = [&] {
      const Tensor x = linalg::triangular_solve(full, b, options);
      return max_abs((options.left ? matmul(m, x) : matmul(x, m)) - b);
    };
    EXPECT_LE(error(), 1e-12) << bits;
    const auto handles = linalg_test::defaults_only();
    EXPECT_LE(error(), 1e-12) << bits << " by default";
    for (const auto& h : handles) h.remove();
    const Tensor v = tensor<double>({1, -2, 3});
    const std::int64_t missing = options.left ? -1 : -2;
    const Tensor x = linalg::triangular_solve(full, v, options);
    EXPECT_EQ(x.dims(), (Dims{2, 3}));
    EXPECT_EQ(max_abs(expand_dims(x, missing) -
                      linalg::triangular_solve(full, expand_dims(v, missing), options)),
              0);
  }
  expect_error<TypeError>(
      [] {
        linalg::triangular_solve(eye<double>(3), tensor<double>({1, 2}));
      },
      {"triangular_solve", "do not go together"});
}

TEST(Linalg, EighOfKnownMatrices) {
  RecordProperty("covers", "LINALG-05");
  const auto [w, v] = linalg::eigh(tensor<double>({2, 1, 1, 2}, {2, 2}));
  EXPECT_TRUE(close(w, tensor<double>({1, 3}), 1e-12));
  // Equal eigenvalues: no NaN, and what depends on the eigenvalues alone is right.
  const Tensor unit = eye<double>(3);
  const Tensor slope = grad([](Tensor a) { return sum(square(linalg::eigh(a).first)); })(unit);
  EXPECT_TRUE(close(slope, unit * 2.0, 1e-12));
  const Tensor by_vectors = grad([](Tensor a) {
    return sum(linalg::eigh(a).second * tensor<double>({1, 2, 3}));
  })(unit);
  EXPECT_TRUE(all(is_finite(by_vectors)).item<bool>());
  const Tensor bad = full(type<double>({2, 2}), std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(linalg::eigh(bad).first.to_vector<double>()[0]));
  if (test::skipped_in_stages("only kernels fail with an error")) return;
  expect_error<CallbackError>(
      [&] { linalg::eigh(bad, linalg::Failure::error).first.to_vector<double>(); },
      {"linalg.eigh", "matrix 0"});
}

TEST(Linalg, SvdOfKnownMatrices) {
  RecordProperty("covers", "LINALG-06");
  EXPECT_TRUE(
      close(linalg::svdvals(tensor<double>({3, 0, 0, 4}, {2, 2})), tensor<double>({4, 3}), 1e-12));
  for (const bool by_default : {false, true}) {
    const auto handles = by_default ? linalg_test::defaults_only() : std::vector<OverrideHandle>();
    const auto [u, s, vh] = linalg::svd(zeros(type<double>({3, 2})));
    EXPECT_EQ(max_abs(s), 0);
    EXPECT_LE(max_abs(matmul(mh(u), u) - eye<double>(2)), 1e-12);
    EXPECT_LE(max_abs(matmul(vh, mh(vh)) - eye<double>(2)), 1e-12);
    const auto [fu, fs, fv] = linalg::svd(random_matrix({4, 2}, DType::f64, 31), true);
    EXPECT_EQ(to_string(fu.type()), "f64[4,4]");
    EXPECT_LE(max_abs(matmul(mh(fu), fu) - eye<double>(4)), 1e-12);
    for (const auto& h : handles) h.remove();
  }
}

TEST(Linalg, PseudoInverseAndLeastSquares) {
  RecordProperty("covers", "LINALG-08");
  EXPECT_TRUE(close(linalg::pinv(tensor<double>({2, 0, 0, 0}, {2, 2})),
                    tensor<double>({0.5, 0, 0, 0}, {2, 2}), 1e-12));
  const Tensor slope =
      grad([](Tensor a) { return sum(linalg::pinv(a)); })(tensor<double>({2, 0, 0, 0}, {2, 2}));
  EXPECT_TRUE(all(is_finite(slope)).item<bool>());
  const Tensor a = tensor<double>({1, 0, 1, 1, 1, 2}, {3, 2});
  EXPECT_TRUE(close(linalg::lstsq(a, tensor<double>({1, 3, 5})), tensor<double>({1, 2}), 1e-12));
  EXPECT_EQ(linalg::matrix_rank(tensor<double>({1, 2, 2, 4, 0, 0}, {3, 2})).item<int>(), 1);
}

TEST(Linalg, PowersAndExponential) {
  const Tensor a = tensor<double>({1, 1, 0, 1}, {2, 2});
  EXPECT_TRUE(close(linalg::matrix_power(a, 5), tensor<double>({1, 5, 0, 1}, {2, 2}), 1e-12));
  EXPECT_TRUE(close(linalg::matrix_power(a, -3), tensor<double>({1, -3, 0, 1}, {2, 2}), 1e-12));
  EXPECT_TRUE(close(linalg::matrix_power(a, 0), eye<double>(2), 0));
  const double e = std::exp(1.0);
  EXPECT_TRUE(close(linalg::expm(a), tensor<double>({e, e, 0, e}, {2, 2}), 1e-12));
  const Tensor turn = tensor<double>({0, -50, 50, 0}, {2, 2});
  const double c = std::cos(50.0), s = std::sin(50.0);
  EXPECT_TRUE(close(linalg::expm(turn), tensor<double>({c, -s, s, c}, {2, 2}), 1e-11));
  for (const double number : linalg::expm(turn * 20'000.0).to_vector<double>())
    EXPECT_TRUE(std::isnan(number)) << number;  // more squarings than are made
}

TEST(Linalg, GeneralEigenvalues) {
  RecordProperty("covers", "LINALG-12");
  const Tensor w =
      jit([](Tensor a) { return linalg::eigvals(a); })(ones(type<float>({2, 5, 4, 4})));
  EXPECT_EQ(to_string(w.type()), "c64[2,5,4]");
  const auto values = sort(abs(w)).to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], i % 4 == 3 ? 4 : 0, 1e-5);
}

TEST(Linalg, IntegersBecomeFloats) {
  RecordProperty("covers", "LINALG-09");
  EXPECT_EQ(linalg::det(tensor<int>({2, 1, 1, 3}, {2, 2})).dtype(), DType::f32);
}

}  // namespace
}  // namespace postern
