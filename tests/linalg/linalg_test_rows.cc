// The tables of linalg_test.cc.
#include <cmath>
#include <random>

#include "linalg_test.h"

namespace postern::linalg_test {

Tensor random_matrix(const Dims& dims, DType dtype, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> number(-1, 1);
  const Type part{DType::f64, dims};
  auto draw = [&] {
    std::vector<double> values(static_cast<std::size_t>(part.size()));
    for (double& v : values) v = number(engine);
    return tensor<double>(values, dims);
  };
  const Tensor re = draw();
  return is_complex(dtype) ? complex(re, draw()) : re;
}

double max_abs(const Tensor& x) {
  double most = 0;
  for (const double v : convert(abs(x), DType::f64).to_vector<double>())
    most = std::isnan(v) ? 1e300 : std::max(most, v);
  return most;
}
bool close(const Tensor& a, const Tensor& b, double tolerance) {
  return a.dims() == b.dims() && max_abs(a - b) <= tolerance * (1 + max_abs(b));
}

Tensor mh(const Tensor& a) {
  const Tensor t = move_axis(a, -1, -2);
  return is_complex(a.dtype()) ? conj(t) : t;
}
Tensor hermitian(const Tensor& a, double shift) {
  const Tensor unit = eye(a.dtype(), a.dims().back(), a.dims().back());
  return (a + mh(a)) * 0.5f + unit * shift;
}

std::vector<OverrideHandle> defaults_only() {
  using namespace linalg;
  return {keep_default<Cholesky>(), keep_default<Lu>(),  keep_default<Qr>(),
          keep_default<Eigh>(),     keep_default<Svd>(), keep_default<Triangular>()};
}

namespace {

Tensor same(Tensor a) { return a; }
Tensor unit_error(const Tensor& q) {  // of columns
  return matmul(mh(q), q) - eye(q.dtype(), q.dims().back(), q.dims().back());
}
Tensor largest(std::initializer_list<Tensor> parts) {
  std::vector<Tensor> flat;
  for (const Tensor& p : parts) flat.push_back(reshape(convert(abs(p), DType::f64), {-1}));
  return concatenate(flat);
}
Tensor scaled_columns(const Tensor& m, const Tensor& s) {
  return m * convert(expand_dims(s, -2), m.dtype());
}

std::vector<Decomposition> make_decompositions() {
  const std::vector<Dims> square = {{4, 4}, {2, 3, 3}}, any = {{4, 4}, {5, 3}, {3, 5}, {2, 4, 3}};
  auto positive = [](Tensor a) { return hermitian(a, 4); };
  std::vector<Decomposition> out;
  out.push_back({"cholesky", square, positive,
                 [](Tensor a) {
                   const Tensor l = linalg::cholesky(a);
                   return largest({matmul(l, mh(l)) - a, triu(l, 1)});
                 },
                 [](Tensor a) { return std::vector<Tensor>{linalg::cholesky(a)}; }});
  out.push_back(
      {"lu", any, same,
       [](Tensor a) {
         const auto [p, l, u] = linalg::plu(a);
         const std::int64_t m = a.dims()[a.dims().size() - 2], k = l.dims().back();
         return largest({matmul(p, matmul(l, u)) - a, triu(l) - eye(l.dtype(), m, k), tril(u, -1)});
       },
       [](Tensor a) {
         const auto r = linalg::lu(a);
         return std::vector<Tensor>{r.lu, r.pivots, r.permutation};
       }});
  for (const bool full : {false, true})
    out.push_back({full ? "qr_full" : "qr", any, same,
                   [full](Tensor a) {
                     const auto [q, r] = linalg::qr(a, full);
                     return largest({matmul(q, r) - a, unit_error(q), tril(r, -1)});
                   },
                   [full](Tensor a) {
                     const auto [q, r] = linalg::qr(a, full);
                     return std::vector<Tensor>{q, r};
                   }});
  out.push_back({"eigh", square, [](Tensor a) { return hermitian(a); },
                 [](Tensor a) {
                   const auto [w, v] = linalg::eigh(a);
                   return largest({matmul(a, v) - scaled_columns(v, w), unit_error(v),
                                   linalg::eigvalsh(a) - w});
                 },
                 [](Tensor a) {
                   return std::vector<Tensor>{linalg::eigvalsh(a), linalg::eigh(a).first};
                 }});
  for (const bool full : {false, true})
    out.push_back(
        {full ? "svd_full" : "svd", any, same,
         [full](Tensor a) {
           const auto [u, s, vh] = linalg::svd(a, full);
           const std::int64_t k = s.dims().back();
           const Tensor back =
               matmul(scaled_columns(slice_axis(u, -1, 0, k), s), slice_axis(vh, -2, 0, k));
           return largest({back - a, unit_error(u), unit_error(mh(vh)), linalg::svdvals(a) - s});
         },
         [full](Tensor a) {
           return std::vector<Tensor>{std::get<1>(linalg::svd(a, full)), linalg::svdvals(a)};
         }});
  // What is made of them.
  const std::vector<Dims> squares = {{2, 3, 3}}, both = {{5, 3}, {2, 3, 4}};
  auto unit = [](const Tensor& a) { return eye(a.dtype(), a.dims().back(), a.dims().back()); };
  auto away = [unit](Tensor a) { return a + unit(a) * 4.0f; };
  auto one = [&](std::string name, const std::vector<Dims>& shapes, auto make, auto f, auto error) {
    out.push_back({std::move(name), shapes, make, error,
                   [f](Tensor a) { return std::vector<Tensor>{f(a)}; }});
  };
  one(
      "inv", squares, away, [](Tensor a) { return linalg::inv(a); },
      [unit](Tensor a) { return matmul(a, linalg::inv(a)) - unit(a); });
  one(
      "solve", squares, away, [](Tensor a) { return linalg::solve(a, mh(a)); },
      [](Tensor a) { return (matmul(a, linalg::solve(a, mh(a))) - mh(a)) * 0.1f; });
  one(
      "triangular_solve", squares, away,
      [](Tensor a) { return linalg::triangular_solve(a, mh(a)); },
      [](Tensor a) {
        return (matmul(tril(a), linalg::triangular_solve(a, mh(a))) - mh(a)) * 0.1f;
      });
  one(
      "det", squares, away, [](Tensor a) { return linalg::det(a); },
      [](Tensor a) { return linalg::det(a) * linalg::det(linalg::inv(a)) - 1.0f; });
  out.push_back({"slogdet", squares, away,
                 [](Tensor a) {
                   const auto [sign, size] = linalg::slogdet(a);
                   return sign * convert(exp(size), sign.dtype()) / linalg::det(a) - 1.0f;
                 },
                 [](Tensor a) {
                   const auto [sign, size] = linalg::slogdet(a);
                   return std::vector<Tensor>{sign, size};
                 }});
  one(
      "pinv", both, same, [](Tensor a) { return linalg::pinv(a); },
      [](Tensor a) { return (matmul(matmul(a, linalg::pinv(a)), a) - a) * 0.2f; });
  one(
      "lstsq", both, same, [](Tensor a) { return linalg::lstsq(a, matmul(a, mh(a))); },
      [](Tensor a) {
        return (matmul(a, linalg::lstsq(a, matmul(a, mh(a)))) - matmul(a, mh(a))) * 0.1f;
      });
  one(
      "matrix_rank", both, same, [](Tensor a) { return linalg::matrix_rank(a); },
      [](Tensor a) {
        const auto& d = a.dims();
        return linalg::matrix_rank(a) -
               static_cast<std::int32_t>(std::min(d[d.size() - 2], d.back()));
      });
  const std::pair<const char*, std::int64_t> powers[] = {
      {"matrix_power", 3}, {"matrix_power_negative", -2}, {"matrix_power_zero", 0}};
  for (const auto& power : powers)
    one(
        power.first, squares, away,
        [n = power.second](Tensor a) { return linalg::matrix_power(a * 0.25f, n); },
        [n = power.second, unit](Tensor a) {
          const Tensor m = a * 0.25f;
          const Tensor back =
              n < 0 ? matmul(matmul(m, m), linalg::matrix_power(m, n))
                    : matmul(matmul(matmul(linalg::inv(m), linalg::inv(m)), linalg::inv(m)),
                             linalg::matrix_power(m, n));
          return (n ? back : linalg::matrix_power(m, 0)) - unit(a);
        });
  one(
      "expm", squares, [](Tensor a) { return a * 0.25f; }, [](Tensor a) { return linalg::expm(a); },
      [unit](Tensor a) { return matmul(linalg::expm(a), linalg::expm(-a)) - unit(a); });
  return out;
}

/// Numbers that make a scalar of a result in which every element counts.
Tensor weighed(const Tensor& y) {
  const Tensor w = random_matrix(y.dims(), DType::f64, 37);
  return is_complex(y.dtype()) ? sum(w * square(abs(y))) : sum(w * y);
}
/// A complex matrix of a real one, smooth.
Tensor complexed(const Tensor& a) { return complex(a, square(a) - move_axis(a, -1, -2)); }

std::vector<Function> make_functions() {
  const Dims square{4, 4}, tall{5, 3}, wide{3, 5};
  auto away = [](Tensor a) { return a + eye<double>(a.dims().back()) * 3.0; };
  auto positive = [](Tensor a) { return hermitian(a, 4); };
  std::vector<Function> all = {
      {"cholesky", square, positive, [](Tensor a) { return weighed(linalg::cholesky(a)); }},
      {"cholesky_complex", square, positive,
       [](Tensor a) { return weighed(linalg::cholesky(hermitian(complexed(a), 40))); }},
      {"lu", square, same, [](Tensor a) { return weighed(linalg::lu(a).lu); }},
      {"lu_tall", tall, same, [](Tensor a) { return weighed(linalg::lu(a).lu); }},
      {"lu_wide", wide, same, [](Tensor a) { return weighed(linalg::lu(a).lu); }},
      {"qr", square, same,
       [](Tensor a) {
         const auto [q, r] = linalg::qr(a);
         return weighed(q) + weighed(r);
       }},
      {"qr_only_r", tall, same, [](Tensor a) { return weighed(linalg::qr(a).second); }},
      {"qr_tall", tall, same,
       [](Tensor a) {
         const auto [q, r] = linalg::qr(a);
         return weighed(q) + weighed(r);
       }},
      {"qr_wide", wide, same,
       [](Tensor a) {
         const auto [q, r] = linalg::qr(a);
         return weighed(q) + weighed(r);
       }},
      {"eigh", square, same,
       [](Tensor a) {
         const auto [w, v] = linalg::eigh(a);
         return weighed(w) + weighed(postern::square(v));
       }},
      {"eigh_complex", square, same,
       [](Tensor a) {
         const auto [w, v] = linalg::eigh(complexed(a));
         return weighed(w) + weighed(v);
       }},
      {"eigvalsh", square, same, [](Tensor a) { return weighed(linalg::eigvalsh(a)); }},
      {"svd", square, same,
       [](Tensor a) {
         const auto [u, s, vh] = linalg::svd(a);
         return weighed(s) + weighed(postern::square(u)) + weighed(postern::square(vh));
       }},
      {"svd_tall", tall, same,
       [](Tensor a) {
         const auto [u, s, vh] = linalg::svd(a);
         return weighed(s) + weighed(postern::square(u)) + weighed(postern::square(vh));
       }},
      {"svd_wide", wide, same,
       [](Tensor a) {
         const auto [u, s, vh] = linalg::svd(a);
         return weighed(s) + weighed(postern::square(u)) + weighed(postern::square(vh));
       }},
      {"svd_complex", square, same,
       [](Tensor a) {
         const auto [u, s, vh] = linalg::svd(complexed(a));
         return weighed(s) + weighed(u) + weighed(vh);
       }},
      {"svdvals", wide, same, [](Tensor a) { return weighed(linalg::svdvals(a)); }},
      {"solve_matrix", square, away,
       [](Tensor a) {
         return weighed(linalg::solve(a, random_matrix({4, 2}, DType::f64, 41)));
       }},
      {"solve_right", tall, same,
       [](Tensor b) {
         return weighed(
             linalg::solve(random_matrix({5, 5}, DType::f64, 43) + eye<double>(5) * 3.0, b));
       }},
      {"triangular", square, away,
       [](Tensor a) {
         return weighed(linalg::triangular_solve(
             a, a + 1.0, {.left = false, .lower = false, .transpose = true}));
       }},
      {"inv", square, away, [](Tensor a) { return weighed(linalg::inv(a)); }},
      {"det", square, same, [](Tensor a) { return weighed(linalg::det(a)); }},
      {"slogdet", square, away, [](Tensor a) { return weighed(linalg::slogdet(a).second); }},
      {"slogdet_complex", square, away,
       [](Tensor a) {
         const auto [sign, size] = linalg::slogdet(complexed(a));
         return weighed(size) + weighed(real(sign)) + weighed(imag(sign)) * 2.0;
       }},
      {"lstsq", tall, same,
       [](Tensor a) {
         return weighed(linalg::lstsq(a, random_matrix({5, 2}, DType::f64, 47)));
       }},
      {"pinv", wide, same, [](Tensor a) { return weighed(linalg::pinv(a)); }},
      {"matrix_power", square, away, [](Tensor a) { return weighed(linalg::matrix_power(a, -3)); }},
      {"expm", square, same, [](Tensor a) { return weighed(linalg::expm(a * 3.0)); }},
  };
  // And of as many matrices at once as they have rows: an axis that is taken for another fits.
  for (std::size_t i = 0, count = all.size(); i < count; ++i) {
    Function several = all[i];
    several.name += "_of_several";
    several.dims.insert(several.dims.begin(), several.dims[0]);
    all.push_back(std::move(several));
  }
  return all;
}

}  // namespace

const std::vector<Decomposition>& decompositions() {
  static const auto* const all = new std::vector<Decomposition>(make_decompositions());
  return *all;
}
const std::vector<Function>& functions() {
  static const auto* const all = new std::vector<Function>(make_functions());
  return *all;
}

}  // namespace postern::linalg_test
