// Every operation of every dtype in every way to run it: at once, compiled, evaluated, of captured
// constants, of literals, in a loop. All ways must give the same numbers or refuse with a
// TypeError. XLA may end the process over a case: each is announced before it runs. Usage: sweep
// (the number of cases); sweep OPERATION (its first case and the next one's); sweep FIRST LIMIT
// STEP: a line "case ..." before each case, "bad ..." for what went wrong, "done" at the end.
#include <postern/control.h>
#include <postern/linalg.h>
#include <postern/postern.h>
#include <postern/random.h>
#include <postern/signal.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace pn = postern;

namespace {

using V = std::vector<pn::Tensor>;
using Function = std::function<pn::Tensor(const V&)>;

/// pairs: two operands, all pairs of the special values; else vectors of the special values.
enum class Takes { one, pairs, three, matrix, matrices };
struct Operation {
  const char* name;
  Takes takes;
  Function f;
};

pn::Tensor grid(const pn::Tensor& x) { return pn::reshape(pn::tile(x, {4}), {4, x.size()}); }
V two(const pn::Tensor& x) { return {x, pn::flip(x, 0)}; }
pn::CombineFunction adding() {
  return [](const V& a, const V& b) { return V{a[0] + b[0]}; };
}

#define UNARY(name)                                              \
  {                                                              \
#name, Takes::one, [](const V& v) { return pn::name(v[0]); } \
  }
#define BINARY(name)                                                     \
  {                                                                      \
#name, Takes::pairs, [](const V& v) { return pn::name(v[0], v[1]); } \
  }
#define ONE(name, expression)                                             \
  {                                                                       \
    name, Takes::one, [](const V& v) -> pn::Tensor { return expression; } \
  }
#define PAIRS(name, expression)                                             \
  {                                                                         \
    name, Takes::pairs, [](const V& v) -> pn::Tensor { return expression; } \
  }
#define THREE(name, expression)                                             \
  {                                                                         \
    name, Takes::three, [](const V& v) -> pn::Tensor { return expression; } \
  }
#define MATRIX(name, expression)                                             \
  {                                                                          \
    name, Takes::matrix, [](const V& v) -> pn::Tensor { return expression; } \
  }
#define MATRICES(name, expression)                                             \
  {                                                                            \
    name, Takes::matrices, [](const V& v) -> pn::Tensor { return expression; } \
  }

pn::Tensor indices() { return pn::tensor<int>({2, 0, -1, 99}, {4}); }

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      BINARY(add),
      BINARY(subtract),
      BINARY(multiply),
      BINARY(divide),
      BINARY(remainder),
      BINARY(pow),
      BINARY(maximum),
      BINARY(minimum),
      BINARY(atan2),
      PAIRS("divide_by_difference", v[0] / (v[1] - v[1])),
      PAIRS("remainder_by_product", v[0] % (v[1] * pn::zeros_like(v[1]))),
      BINARY(equal),
      BINARY(not_equal),
      BINARY(less),
      BINARY(less_equal),
      BINARY(greater),
      BINARY(greater_equal),
      BINARY(logical_and),
      BINARY(logical_or),
      BINARY(logical_xor),
      BINARY(shift_left),
      BINARY(shift_right),
      BINARY(shift_right_logical),
      BINARY(complex),
      BINARY(isclose),
      UNARY(negative),
      UNARY(abs),
      UNARY(sign),
      UNARY(exp),
      UNARY(expm1),
      UNARY(log),
      UNARY(log1p),
      UNARY(sqrt),
      UNARY(rsqrt),
      UNARY(cbrt),
      UNARY(sin),
      UNARY(cos),
      UNARY(tan),
      UNARY(tanh),
      UNARY(logistic),
      UNARY(erf),
      UNARY(erf_inv),
      UNARY(floor),
      UNARY(ceil),
      UNARY(round),
      UNARY(is_finite),
      UNARY(square),
      UNARY(logical_not),
      UNARY(population_count),
      UNARY(count_leading_zeros),
      UNARY(real),
      UNARY(imag),
      UNARY(conj),
      ONE("plus_one", v[0] + 1),
      ONE("plus_300", v[0] + 300),
      ONE("plus_minus_one", v[0] + (-1)),
      ONE("less_300", v[0] < 300),
      ONE("maximum_300", pn::maximum(v[0], 300)),
      ONE("half", v[0] / 2),
      ONE("by_zero", v[0] / 0),
      ONE("rest_by_zero", v[0] % 0),
      ONE("cubed", pn::pow(v[0], 3)),
      ONE("to_64", pn::pow(v[0], 64)),
      ONE("inverse", pn::pow(v[0], -1)),
      ONE("full_300", v[0] + pn::full(v[0].type(), 300)),
      ONE("full_minus_one", v[0] + pn::full(v[0].type(), -1)),
      ONE("full_real", v[0] + pn::full(v[0].type(), 2.5)),
      ONE("full_nan", v[0] + pn::full(v[0].type(), std::nan(""))),
      ONE("difference", v[0] - v[0]),
      ONE("equals_itself", v[0] == v[0]),
      ONE("greatest_itself", pn::maximum(v[0], v[0])),
      ONE("by_itself", v[0] / v[0]),
      ONE("to_pred", pn::convert(v[0], pn::DType::pred)),
      ONE("to_s2", pn::convert(v[0], pn::DType::s2)),
      ONE("to_s4", pn::convert(v[0], pn::DType::s4)),
      ONE("to_s8", pn::convert(v[0], pn::DType::s8)),
      ONE("to_s32", pn::convert(v[0], pn::DType::s32)),
      ONE("to_s64", pn::convert(v[0], pn::DType::s64)),
      ONE("to_u2", pn::convert(v[0], pn::DType::u2)),
      ONE("to_u4", pn::convert(v[0], pn::DType::u4)),
      ONE("to_u8", pn::convert(v[0], pn::DType::u8)),
      ONE("to_u32", pn::convert(v[0], pn::DType::u32)),
      ONE("to_u64", pn::convert(v[0], pn::DType::u64)),
      ONE("to_f16", pn::convert(v[0], pn::DType::f16)),
      ONE("to_bf16", pn::convert(v[0], pn::DType::bf16)),
      ONE("to_f32", pn::convert(v[0], pn::DType::f32)),
      ONE("to_f64", pn::convert(v[0], pn::DType::f64)),
      ONE("to_c64", pn::convert(v[0], pn::DType::c64)),
      ONE("to_c128", pn::convert(v[0], pn::DType::c128)),
      ONE("to_f8e5m2", pn::convert(v[0], pn::DType::f8e5m2)),
      ONE("to_f8e4m3fn", pn::convert(v[0], pn::DType::f8e4m3fn)),
      ONE("to_f4e2m1fn", pn::convert(v[0], pn::DType::f4e2m1fn)),
      ONE("reshape", pn::reshape(v[0], {1, -1})),
      ONE("transpose", pn::transpose(grid(v[0]))),
      ONE("broadcast_to", pn::broadcast_to(v[0], {2, v[0].size()})),
      ONE("reverse", pn::reverse(v[0], {0})),
      ONE("slice", pn::slice_axis(v[0], 0, 1, v[0].size(), 2)),
      ONE("pad", pn::pad(v[0], pn::reshape(pn::slice_axis(v[0], 0, 0, 1), {}), {1}, {2}, {1})),
      ONE("concatenate", pn::concatenate(two(v[0]))),
      ONE("stack", pn::stack(two(v[0]))),
      ONE("roll", pn::roll(v[0], 1, 0)),
      ONE("tile", pn::tile(v[0], {2})),
      ONE("repeat", pn::repeat(v[0], 2, 0)),
      ONE("tril", pn::tril(grid(v[0]))),
      ONE("triu", pn::triu(grid(v[0]))),
      ONE("diagonal", pn::diagonal(grid(v[0]))),
      ONE("matrix_trace", pn::matrix_trace(grid(v[0]))),
      ONE("split", pn::split(grid(v[0]), 2, 0)[1]),
      ONE("sum", pn::sum(v[0])),
      ONE("sum_axis", pn::sum(grid(v[0]), {.axes = pn::Dims{0}})),
      ONE("prod", pn::prod(v[0])),
      ONE("max", pn::max(v[0])),
      ONE("min", pn::min(v[0])),
      ONE("max_axis", pn::max(grid(v[0]), {.axes = pn::Dims{0}})),
      ONE("mean", pn::mean(v[0])),
      ONE("all", pn::all(v[0])),
      ONE("any", pn::any(v[0])),
      ONE("argmax", pn::argmax(v[0])),
      ONE("argmin", pn::argmin(v[0])),
      ONE("cumsum", pn::cumsum(v[0])),
      ONE("cumprod", pn::cumprod(v[0])),
      ONE("cummax", pn::cummax(v[0])),
      ONE("cummin", pn::cummin(v[0])),
      ONE("cumlogsumexp", pn::cumlogsumexp(v[0])),
      ONE("variance", pn::variance(v[0])),
      ONE("softmax", pn::softmax(v[0])),
      ONE("log_softmax", pn::log_softmax(v[0])),
      ONE("logsumexp", pn::logsumexp(v[0])),
      ONE("layer_norm", pn::layer_norm(v[0], 1, 0)),
      ONE("reduce", pn::reduce([](pn::Tensor a, pn::Tensor b) { return a + b; }, v[0],
                               pn::zeros({v[0].dtype(), {}}))),
      ONE("reduce_divide", pn::reduce([](pn::Tensor a, pn::Tensor b) { return a / b; }, v[0],
                                      pn::ones({v[0].dtype(), {}}))),
      ONE("associative_scan", pn::associative_scan(adding(), {v[0]})[0]),
      ONE("sort", pn::sort(v[0])),
      ONE("argsort", pn::argsort(v[0])),
      ONE("top_k", pn::top_k(v[0], 2).first),
      ONE("top_k_places", pn::top_k(v[0], 2).second),
      PAIRS("searchsorted", pn::searchsorted(v[0], v[1])),
      ONE("take", pn::take(v[0], indices())),
      ONE("take_by", pn::take(pn::iota<float>(3), v[0])),
      ONE("take_along_axis", pn::take_along_axis(v[0], indices())),
      ONE("one_hot", pn::one_hot(v[0], 3)),
      ONE("index_set",
          pn::index_set(v[0], indices(), pn::reshape(pn::slice_axis(v[0], 0, 0, 1), {}))),
      ONE("index_add",
          pn::index_add(v[0], indices(), pn::reshape(pn::slice_axis(v[0], 0, 1, 2), {}))),
      ONE("index_multiply", pn::index_multiply(v[0], indices(), pn::slice_axis(v[0], 0, 0, 1))),
      ONE("index_min", pn::index_min(v[0], indices(), pn::slice_axis(v[0], 0, 0, 1))),
      ONE("index_max", pn::index_max(v[0], indices(), pn::slice_axis(v[0], 0, 0, 1))),
      ONE("dynamic_slice", pn::dynamic_slice(v[0], {1}, {2})),
      ONE("dynamic_update_slice",
          pn::dynamic_update_slice(v[0], pn::slice_axis(v[0], 0, 0, 1), {1})),
      ONE("reduce_window", pn::reduce_window(pn::Monoid::add, v[0], {2})),
      ONE("reduce_window_max", pn::reduce_window(pn::Monoid::max, v[0], {2})),
      ONE("fft", pn::fft(v[0])),
      ONE("rfft", pn::rfft(v[0])),
      ONE("iota", pn::iota(v[0].type(), 0)),
      ONE("arange", pn::arange(v[0].type(), 0, 1)),
      ONE("linspace", pn::linspace(v[0].dtype(), 0, 1, 3)),
      ONE("eye", pn::eye(v[0].dtype(), 2, 3)),
      ONE("uniform", pn::random::uniform(pn::random::key(1), v[0].type())),
      ONE("normal", pn::random::normal(pn::random::key(1), v[0].type())),
      ONE("integers", pn::random::integers(pn::random::key(1), v[0].type(), 0, 1)),
      ONE("bits", pn::random::bits(pn::random::key(1), v[0].type())),
      ONE("permutation", pn::random::permutation(pn::random::key(1), v[0])),
      THREE("clip", pn::clip(v[0], v[1], v[2])),
      THREE("where", pn::where(v[0] == v[1], v[1], v[2])),
      THREE("fused", v[0] * v[1] + v[2]),
      MATRICES("matmul", pn::matmul(v[0], v[1])),
      MATRICES("dot_general", pn::dot_general(v[0], v[1], {{0}, {0}, {}, {}})),
      MATRICES("einsum", pn::einsum("ij,kj->ik", {v[0], v[1]})),
      MATRICES("outer", pn::outer(pn::reshape(v[0], {-1}), pn::reshape(v[1], {-1}))),
      MATRICES("conv", pn::conv(pn::reshape(v[0], {1, 1, 3, 3}), pn::reshape(v[1], {1, 1, 3, 3}),
                                {.padding = "same"})),
      MATRICES("solve", pn::linalg::solve(v[0], v[1])),
      MATRICES("triangular_solve", pn::linalg::triangular_solve(v[0], v[1])),
      MATRIX("cholesky", pn::linalg::cholesky(v[0])),
      MATRIX("qr", pn::linalg::qr(v[0]).second),
      MATRIX("plu", std::get<1>(pn::linalg::plu(v[0]))),
      MATRIX("eigvalsh", pn::linalg::eigvalsh(v[0])),
      MATRIX("svdvals", pn::linalg::svdvals(v[0])),
      MATRIX("inv", pn::linalg::inv(v[0])),
      MATRIX("det", pn::linalg::det(v[0])),
      MATRIX("expm", pn::linalg::expm(v[0])),
      MATRIX("matrix_power", pn::linalg::matrix_power(v[0], 3)),
  };
  return all;
}

std::vector<double> special_values(pn::DType dtype) {
  if (dtype == pn::DType::pred) return {0, 1};
  if (pn::is_integer(dtype)) {
    const int bits = pn::bit_width(dtype);
    const double top = std::ldexp(1.0, bits - 1);
    if (bits == 2)
      return pn::is_signed(dtype) ? std::vector<double>{-2, -1, 0, 1}
                                  : std::vector<double>{0, 1, 2, 3};
    if (pn::is_signed(dtype)) return {-top, -1, 0, 1, 2, 3, 7, bits == 64 ? 9e17 : top - 1};
    return {0, 1, 2, 3, 5, top - 1 > 9e17 ? 9e17 : top - 1, 13};
  }
  const double inf = std::numeric_limits<double>::infinity();
  return {std::nan(""), inf, -inf, 0, -0.0, 1, -1, 2.5, -0.5, 300};
}

pn::Tensor made(pn::DType dtype, const std::vector<double>& values, pn::Dims dims) {
  if (!pn::is_complex(dtype))
    return pn::convert(pn::tensor<double>(values, std::move(dims)), dtype);
  std::vector<std::complex<double>> numbers;
  for (std::size_t i = 0; i < values.size(); ++i)
    numbers.emplace_back(values[i], values[(i * 7 + 3) % values.size()]);
  return pn::convert(pn::tensor<std::complex<double>>(numbers, std::move(dims)), dtype);
}

V operands(Takes takes, pn::DType dtype) {
  const std::vector<double> values = special_values(dtype);
  const std::size_t n = values.size();
  if (takes == Takes::matrix || takes == Takes::matrices) {
    const std::vector<double> a = {4, 1, 0, 1, 5, 2, 0, 2, 6}, b = {1, 0, 2, 0, 3, 1, 1, 1, 2};
    V out{made(dtype, a, {3, 3})};
    if (takes == Takes::matrices) out.push_back(made(dtype, b, {3, 3}));
    return out;
  }
  if (takes == Takes::one) return {made(dtype, values, {static_cast<std::int64_t>(n)})};
  std::vector<std::vector<double>> all(takes == Takes::pairs ? 2 : 3);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      all[0].push_back(values[i]);
      all[1].push_back(values[j]);
      if (takes == Takes::three) all[2].push_back(values[(i + 3 * j) % n]);
    }
  V out;
  for (const auto& one : all) out.push_back(made(dtype, one, {static_cast<std::int64_t>(n * n)}));
  return out;
}

/// Every bit of an integer, floats and complex numbers by their parts.
std::vector<double> numbers_of(const pn::Tensor& t) {
  if (pn::is_complex(t.dtype())) {
    std::vector<double> out = numbers_of(pn::real(t)), im = numbers_of(pn::imag(t));
    out.insert(out.end(), im.begin(), im.end());
    return out;
  }
  if (!pn::is_integer(t.dtype()) || pn::bit_width(t.dtype()) < 64)
    return pn::convert(t, pn::DType::f64).to_vector<double>();
  std::vector<double> out;
  const auto bits = pn::bitcast(t, pn::DType::s64).to_vector<std::int64_t>();
  for (const std::int64_t x : bits) {
    out.push_back(static_cast<double>(x >> 32));
    out.push_back(static_cast<double>(x & 0xffffffff));
  }
  return out;
}

bool same(double a, double b, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return std::signbit(a) == std::signbit(b) || tolerance > 0;
  return std::abs(a - b) <= tolerance * std::max(std::abs(a), std::abs(b));
}

/// What came of one way: numbers, or the text of a TypeError, or what should not be.
struct Outcome {
  pn::Type type;
  std::vector<double> numbers;
  bool refused = false;
  std::string bad;
};

Outcome outcome(const std::function<pn::Tensor()>& way) {
  Outcome out;
  try {
    const pn::Tensor y = way();
    out.type = y.type();
    out.numbers = numbers_of(y);
  } catch (const pn::TypeError&) {
    out.refused = true;
  } catch (const std::exception& e) {
    out.bad = e.what();
  }
  return out;
}

struct Way {
  const char* name;
  std::function<pn::Tensor(const Function&, const V&)> run;
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"at once", [](const Function& f, const V& x) { return f(x); }},
      {"compiled",
       [](const Function& f, const V& x) { return pn::jit([&](V v) { return f(v); })(x); }},
      {"evaluated",
       [](const Function& f, const V& x) {
         return pn::jit([&](V v) { return f(v); }, {.mode = pn::Mode::evaluate})(x);
       }},
      {"of constants",
       [](const Function& f, const V& x) { return pn::jit([&] { return f(x); })(); }},
      {"in a loop",
       [](const Function& f, const V& x) {
         return pn::jit([&] {
           const pn::Tensor start = pn::ones(f(x).type());  // not every dtype has a zero
           return pn::fori_loop(
               0, 2, [&](pn::Tensor, pn::Tensor) { return f(x); }, start);
         })();
       }},
  };
  return all;
}

std::string name_of(pn::DType dtype) { return std::string(pn::to_string(dtype)); }

/// How far results may differ: they are sums in another order, or functions of single numbers.
double tolerance_of(pn::DType result) {
  if (!pn::is_float(result)) return 0;
  if (pn::byte_width(result) == 8) return 1e-12;
  return pn::byte_width(result) == 4 ? 2e-5 : 0.3;
}

void check(const Operation& operation, pn::DType dtype) {
  V x;
  try {
    x = operands(operation.takes, dtype);
  } catch (const pn::Error&) {
    return;  // the plug-in has no such numbers
  }
  Outcome first;
  for (const Way& way : ways()) {
    const Outcome got = outcome([&] { return way.run(operation.f, x); });
    const auto bad = [&](const std::string& text) {
      std::printf("bad %s %s %s: %s\n", operation.name, name_of(dtype).c_str(), way.name,
                  text.substr(0, 300).c_str());
    };
    if (!got.bad.empty()) bad(got.bad);
    if (&way == &ways()[0]) {
      first = got;
      continue;
    }
    if (!got.bad.empty() || !first.bad.empty()) continue;
    if (got.refused != first.refused) {
      bad(got.refused ? "refused" : "not refused");
      continue;
    }
    if (got.refused) continue;
    if (got.type.dtype != first.type.dtype || got.type.dims != first.type.dims) {
      bad(pn::to_string(got.type) + ", at once " + pn::to_string(first.type));
      continue;
    }
    const double tolerance = tolerance_of(pn::real_dtype(got.type.dtype));
    for (std::size_t i = 0; i < got.numbers.size(); ++i)
      if (!same(got.numbers[i], first.numbers[i], tolerance)) {
        bad("element " + std::to_string(i) + " is " + std::to_string(got.numbers[i]) +
            ", at once " + std::to_string(first.numbers[i]));
        break;
      }
  }
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int dtypes = pn::dtype_count - 1;  // no tokens
  const int cases = static_cast<int>(operations().size()) * dtypes;
  if (argc != 4) {
    for (std::size_t i = 0; i < operations().size(); ++i)
      if (argc == 2 && std::strcmp(operations()[i].name, argv[1]) == 0)
        std::printf("%d %d\n", static_cast<int>(i) * dtypes, static_cast<int>(i + 1) * dtypes);
    if (argc == 1) std::printf("%d\n", cases);
    return 0;
  }
  const int first = std::atoi(argv[1]), limit = std::atoi(argv[2]), step = std::atoi(argv[3]);
  for (int i = first; i < std::min(limit, cases); i += step) {
    const Operation& operation = operations()[static_cast<std::size_t>(i / dtypes)];
    const auto dtype = static_cast<pn::DType>(i % dtypes);
    std::printf("case %d %s %s\n", i, operation.name, name_of(dtype).c_str());
    std::fflush(stdout);
    check(operation, dtype);
    std::fflush(stdout);
  }
  std::puts("done");
}
