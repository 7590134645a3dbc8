// Linear algebra of matrices that are empty, singular or not finite, and what is refused.
#include <limits>

#include "linalg_test.h"
#include "support.h"

namespace postern {
namespace {

using linalg_test::close;
using linalg_test::max_abs;
using linalg_test::mh;
using linalg_test::random_matrix;
using test::expect_error;

constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                 inf = std::numeric_limits<double>::infinity();
bool any_nan(const Tensor& x) { return any(not_equal(x, x)).item<bool>(); }
bool all_finite(const Tensor& x) { return all(is_finite(x)).item<bool>(); }

/// Runs `check` with LAPACK and with the defaults.
template <class Check>
void natively_and_by_default(Check check) {
  for (const bool by_default : {false, true}) {
    SCOPED_TRACE(by_default ? "by default" : "native");
    const auto handles = by_default ? linalg_test::defaults_only() : std::vector<OverrideHandle>();
    check();
    for (const auto& h : handles) h.remove();
  }
}

TEST(Linalg, EmptyMatrices) {
  RecordProperty("covers", "LINALG-02 LINALG-03 LINALG-08");
  natively_and_by_default([] {
    const Tensor none = zeros(type<double>({0, 0})), no_columns = zeros(type<double>({3, 0})),
                 no_batch = zeros(type<double>({0, 2, 2}));
    EXPECT_EQ(linalg::det(none).item<double>(), 1);
    EXPECT_EQ(linalg::slogdet(none).second.item<double>(), 0);
    EXPECT_EQ(linalg::inv(none).dims(), (Dims{0, 0}));
    EXPECT_EQ(linalg::expm(none).dims(), (Dims{0, 0}));
    EXPECT_EQ(linalg::matrix_power(none, 3).dims(), (Dims{0, 0}));
    EXPECT_EQ(linalg::eigvals(none).dims(), (Dims{0}));
    EXPECT_EQ(linalg::pinv(no_columns).dims(), (Dims{0, 3}));
    EXPECT_EQ(linalg::matrix_rank(no_columns).item<int>(), 0);
    EXPECT_EQ(linalg::lstsq(no_columns, ones(type<double>({3, 2}))).dims(), (Dims{0, 2}));
    EXPECT_EQ(linalg::solve(none, zeros(type<double>({0, 2}))).dims(), (Dims{0, 2}));
    EXPECT_EQ(linalg::solve(eye<double>(2), zeros(type<double>({2, 0}))).dims(), (Dims{2, 0}));
    EXPECT_EQ(linalg::det(no_batch).dims(), (Dims{0}));
    EXPECT_EQ(linalg::svdvals(no_batch).dims(), (Dims{0, 2}));
    const auto [q, r] = linalg::qr(no_columns, true);
    EXPECT_TRUE(close(q, eye<double>(3), 0));
    EXPECT_EQ(r.dims(), (Dims{3, 0}));
    EXPECT_EQ(grad([](Tensor a) { return linalg::det(a); })(none).dims(), (Dims{0, 0}));
  });
}

TEST(Linalg, SingularMatrices) {
  RecordProperty("covers", "LINALG-03 LINALG-04 LINALG-06 LINALG-07 LINALG-08");
  natively_and_by_default([] {
    const Tensor a = tensor<double>({1, 2, 2, 4}, {2, 2}), zero = zeros(type<double>({3, 2}));
    const auto [p, l, u] = linalg::plu(a);
    EXPECT_TRUE(close(matmul(p, matmul(l, u)), a, 1e-14));
    EXPECT_EQ(u.to_vector<double>()[3], 0);
    EXPECT_TRUE(all_finite(std::get<1>(linalg::plu(zero)))) << "no division by the zero pivot";
    EXPECT_FALSE(all_finite(linalg::inv(a)));
    EXPECT_FALSE(all_finite(linalg::solve(a, tensor<double>({1, 1}))));
    for (const bool full : {false, true}) {
      const auto [q, r] = linalg::qr(zero, full);
      EXPECT_LE(max_abs(matmul(mh(q), q) - eye<double>(full ? 3 : 2)), 1e-12);
      EXPECT_EQ(max_abs(r), 0);
    }
    EXPECT_EQ(linalg::matrix_rank(zero).item<int>(), 0);
    EXPECT_EQ(linalg::matrix_rank(a).item<int>(), 1);
    EXPECT_TRUE(close(linalg::pinv(zero), zeros(type<double>({2, 3})), 0));
    // The shortest of all solutions; x + 2 y = 1 for both rows.
    EXPECT_TRUE(close(linalg::lstsq(a, tensor<double>({1, 2})), tensor<double>({0.2, 0.4}), 1e-12));
    EXPECT_TRUE(close(linalg::lstsq(tensor<double>({1, 1}, {1, 2}), tensor<double>({2})),
                      tensor<double>({1, 1}), 1e-12));
    const Tensor both = stack({a, eye<double>(2)});
    EXPECT_TRUE(close(linalg::lstsq(both, ones(type<double>({2, 2, 1}))),
                      tensor<double>({0.12, 0.24, 1, 1}, {2, 2, 1}), 1e-12));
    EXPECT_EQ(linalg::matrix_rank(both).to_vector<int>(), (std::vector<int>{1, 2}));
    EXPECT_EQ(linalg::slogdet(zeros(type<double>({2, 2}))).first.item<double>(), 0);
  });
}

TEST(Linalg, NotFiniteMatrices) {
  RecordProperty("covers", "LINALG-01 LINALG-05 LINALG-06");
  natively_and_by_default([] {
    for (const double bad : {nan, inf}) {
      const Tensor a = tensor<double>({bad, 1, 1, 2}, {2, 2}), pair = stack({a, eye<double>(2)});
      EXPECT_TRUE(any_nan(linalg::cholesky(a)) || !all_finite(linalg::cholesky(a)));
      EXPECT_TRUE(any_nan(linalg::eigh(pair).first)) << bad;
      EXPECT_TRUE(all_finite(dynamic_index(linalg::eigh(pair).second, 1)))
          << "the other matrix is fine";
      EXPECT_TRUE(any_nan(linalg::svdvals(pair)));
      EXPECT_TRUE(all_finite(dynamic_index(linalg::svdvals(pair), 1)));
      EXPECT_FALSE(all_finite(linalg::lu(a).lu) && all_finite(linalg::qr(a).first));
      EXPECT_FALSE(all_finite(linalg::solve(a, tensor<double>({1, 1}))) &&
                   all_finite(linalg::det(a)));
    }
  });
}

// From 17 rows on they are LAPACK's, which takes NaN and inf.
TEST(Linalg, LargeMatricesThatAreNotFiniteHaveNoFactor) {
  RecordProperty("covers", "LINALG-01");
  if (test::skipped_in_stages("only kernels fail with an error")) return;
  for (const double bad : {nan, inf})
    for (const std::size_t column : {3u, 16u})
      for (const DType dtype : {DType::f32, DType::f64, DType::c64, DType::c128}) {
        SCOPED_TRACE(testing::Message()
                     << bad << " of " << to_string(dtype) << " in column " << column);
        std::vector<double> numbers(17 * 17);
        for (std::size_t i = 0; i < 17; ++i) numbers[i * 17 + i] = 2;
        numbers[16 * 17 + column] = numbers[column * 17 + 16] = bad;
        const Tensor pair = convert(
            stack({Tensor(type<double>({17, 17}), numbers.data()), eye<double>(17)}), dtype);
        const Tensor l = abs(linalg::cholesky(pair));
        EXPECT_TRUE(any_nan(dynamic_index(l, 0)));
        EXPECT_TRUE(all_finite(dynamic_index(l, 1))) << "the other matrix is fine";
        expect_error<CallbackError>(
            [&] { linalg::cholesky(pair, linalg::Failure::error).block_until_ready(); },
            {"linalg.cholesky", "matrix 0 of the batch"});
      }
}

TEST(Linalg, EqualAndCloseSingularValues) {
  RecordProperty("covers", "LINALG-05 LINALG-06 LINALG-10");
  natively_and_by_default([] {
    const Tensor unit = eye<double>(3);
    auto by_vectors = [](Tensor a) {
      const auto [u, s, vh] = linalg::svd(a);
      return sum(u * tensor<double>({1, 2, 3})) + sum(vh);
    };
    for (const double gap : {0.0, 1e-17, 1e-15})
      for (const Tensor& a :
           {unit, unit * 0.0, unit + eye<double>(3) * tensor<double>({gap, 0, 0})}) {
        EXPECT_TRUE(all_finite(grad(by_vectors)(a))) << gap;
        EXPECT_TRUE(all_finite(grad([](Tensor m) {
          return sum(linalg::eigh(m).second * tensor<double>({1, 2, 3}));
        })(a)))
            << gap;
      }
    EXPECT_TRUE(close(grad([](Tensor a) { return sum(square(linalg::svdvals(a))); })(unit),
                      unit * 2.0, 1e-12));
    // Far apart, though their squares are as good as equal to the largest one.
    auto product = [](Tensor a) {
      const auto [u, s, vh] = linalg::svd(a);
      return matmul(slice_axis(u, 1, 1, 2), slice_axis(vh, 0, 1, 2));
    };
    const Tensor far = tensor<float>({1, 0, 0, 0, 3e-4f, 0, 0, 0, 1e-4f}, {3, 3}),
                 change = tensor<float>({0, 0, 0, 0, 0, 1e-4f, 0, 0, 0}, {3, 3});
    const Tensor moved = jvp(product, std::tuple{far}, std::tuple{change}).second;
    EXPECT_NEAR(moved.to_vector<float>()[5], 0.375f, 1e-3f);
    EXPECT_NEAR(moved.to_vector<float>()[7], 0.125f, 1e-3f);
    // What depends on the span of equal eigenvalues' vectors is right: the projector onto them, of
    // a matrix with eigenvalues 1, 1, 3.
    const Tensor q = linalg::qr(random_matrix({3, 3}, DType::f64, 53)).first;
    const Tensor a = matmul(q * tensor<double>({1, 1, 3}), mh(q)),
                 direction = linalg_test::hermitian(random_matrix({3, 3}, DType::f64, 59));
    auto projector = [](Tensor m) {
      const Tensor v = slice_axis(linalg::eigh(m).second, 1, 0, 2);
      return sum(matmul(v, mh(v)) * random_matrix({3, 3}, DType::f64, 61));
    };
    const double h = 1e-5;
    const double difference = (projector(a + direction * h).item<double>() -
                               projector(a - direction * h).item<double>()) /
                              (2 * h);
    EXPECT_NEAR(sum(grad(projector)(a) * direction).item<double>(), difference, 1e-6);
  });
}

/// The second derivatives of det by elements [i,j] and [k,l], at [i,j,k,l]: det is affine in each.
Tensor second_differences_of_det(const Tensor& a) {
  const std::int64_t n = a.dims()[0];
  const Tensor steps = convert(reshape(eye<double>(n * n), {n * n, n, n}), a.dtype());
  const Tensor one = linalg::det(a + steps), two = linalg::det(a + expand_dims(steps, 1) + steps);
  return reshape(two - expand_dims(one, 1) - one + linalg::det(a), {n, n, n, n});
}

TEST(LinalgEdges, SecondDerivativesOfDetWhereSingularValuesAreEqual) {
  const auto det = [](Tensor m) { return linalg::det(m); };
  natively_and_by_default([&] {
    for (const Tensor& a :
         {eye<double>(1), eye<double>(2), eye<double>(3),
          tensor<double>({0.6, -0.8, 0.8, 0.6}, {2, 2}),
          tensor<double>({1, 0, 0, 0, 0, 0, 0, 0, 0}, {3, 3}), zeros(type<double>({2, 2})),
          zeros(type<double>({3, 3})), tensor<double>({1, 0, 0, 0, 1, 0, 0, 0, -2}, {3, 3}),
          random_matrix({3, 3}, DType::f64, 71)}) {
      SCOPED_TRACE(to_string(a));
      const Tensor want = second_differences_of_det(a);
      EXPECT_TRUE(close(jit(hessian(det))(a), want, 1e-9));
      EXPECT_TRUE(close(dynamic_index(jit(vmap(hessian(det)))(stack({a, a})), 1), want, 1e-9));
      // Of complex matrices, along a direction.
      const std::int64_t size = a.size();
      const Tensor d = random_matrix(a.dims(), DType::c128, 73), z = complex(a, a * 0.5);
      const auto along = [&](Tensor m) { return jvp(det, std::tuple{m}, std::tuple{d}).second; };
      const Tensor products = reshape(d, {size, 1}) * reshape(d, {1, size}),
                   by_elements = reshape(second_differences_of_det(z), {size, size});
      EXPECT_TRUE(close(jvp(along, std::tuple{z}, std::tuple{d}).second,
                        sum(by_elements * products), 1e-9));
    }
    const Tensor slopes = hessian(det)(eye<double>(2));
    EXPECT_TRUE(close(reshape(slopes, {16}),
                      tensor<double>({0, 0, 0, 1, 0, 0, -1, 0, 0, -1, 0, 0, 1, 0, 0, 0}), 1e-12));
  });
}

TEST(Linalg, OnlyTheHermitianPartCounts) {
  natively_and_by_default([] {
    const Tensor a = random_matrix({4, 4}, DType::c128, 67) + eye<double>(4) * 6.0,
                 part = linalg_test::hermitian(a);
    EXPECT_TRUE(close(linalg::cholesky(a), linalg::cholesky(part), 1e-12));
    EXPECT_TRUE(close(linalg::eigh(a).first, linalg::eigvalsh(part), 1e-12));
  });
}

TEST(Linalg, RefusesWhatDoesNotFit) {
  expect_error<TypeError>(
      [] {
        linalg::cholesky(ones(type<float>({2, 3})));
      },
      {"cholesky", "f32[2,3]"});
  expect_error<TypeError>(
      [] {
        linalg::solve(ones(type<float>({2, 2})), ones(type<float>({3})));
      },
      {"solve", "f32[2,2]"});
  expect_error<TypeError>(
      [] {
        grad([](Tensor a) { return sum(linalg::qr(a, true).first); })(ones(type<float>({3, 2})));
      },
      {"qr", "full form"});
}

// The squares of such elements are 0 or infinite.
TEST(LinalgEdges, NumbersWhoseSquaresDoNotFit) {
  natively_and_by_default([] {
    for (const float size : {1e-30f, 1e30f}) {
      SCOPED_TRACE(size);
      const Tensor a = tensor<float>({1, 2, 3, 4, 5, 7}, {3, 2}) * size;
      const auto [q, r] = linalg::qr(a);
      EXPECT_TRUE(close(matmul(q, r) / size, a / size, 1e-5));
      const auto [u, s, vh] = linalg::svd(a);
      EXPECT_TRUE(close(matmul(u * s, vh) / size, a / size, 1e-5));
      EXPECT_TRUE(close(linalg::svdvals(a) / size, linalg::svdvals(a / size), 1e-5));
    }
  });
}

TEST(LinalgEdges, SingularMatricesHaveNoCholeskyFactor) {
  natively_and_by_default([] {
    for (const Tensor& a : {ones(type<float>({2, 2})), zeros(type<float>({1, 1}))}) {
      const Tensor both = concatenate(
          {expand_dims(a, 0), expand_dims(eye(DType::f32, a.dims()[0], a.dims()[0]), 0)}, 0);
      const Tensor l = linalg::cholesky(both);
      EXPECT_TRUE(std::isnan(l.to_vector<float>()[0]));
      EXPECT_TRUE(all(is_finite(take(l, Tensor(1)))).item<bool>()) << "the others are fine";
    }
  });
}

}  // namespace
}  // namespace postern
