// The checks of the operations' table.
#include "ops_table.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "support.h"

namespace ops {

namespace {

struct OperandSpec {
  pn::Type type;
  double low, high;
  bool special = false;  // the values that arithmetic treats apart, in every combination with the
                         // other operands'
};

pn::DType parse_dtype(const std::string& text) {
  for (int i = 0; i < pn::dtype_count; ++i)
    if (pn::to_string(static_cast<pn::DType>(i)) == text) return static_cast<pn::DType>(i);
  throw std::runtime_error("no dtype " + text);
}

/// "f32[2,3]:-2:2".
OperandSpec parse_operand(const std::string& text) {
  OperandSpec spec{{}, 0, 1};
  const auto open = text.find('['), close = text.find(']');
  spec.type.dtype = parse_dtype(text.substr(0, open));
  std::istringstream dims(text.substr(open + 1, close - open - 1));
  for (std::string d; std::getline(dims, d, ',');) spec.type.dims.push_back(std::stoll(d));
  spec.special = text.substr(close + 1) == ":special";
  if (spec.special) return spec;
  std::istringstream range(text.substr(close + 1));
  char colon;
  range >> colon >> spec.low >> colon >> spec.high;
  return spec;
}

std::vector<OperandSpec> operands_of(const Row& row) {
  std::vector<OperandSpec> out;
  std::istringstream in(row.operands);
  for (std::string word; in >> word;) out.push_back(parse_operand(word));
  return out;
}

/// The numbers that both sides make: a linear congruential generator seeded by the row's name.
class Numbers {
 public:
  Numbers(const std::string& name, std::uint64_t salt) : state_(0xcbf29ce484222325u ^ salt) {
    for (const char c : name) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  double next(double low, double high) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (static_cast<double>(state_ >> 40) / 16777216.0);
  }

 private:
  std::uint64_t state_;
};

/// Element `index` of operand `operand`: the first operand's values change fastest. As in
/// scripts/golden.
template <class T>
T special(std::size_t index, std::uint64_t operand) {
  using Real = decltype(std::real(T()));
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double values[] = {nan, inf, -inf, 0, -0.0, 1, -1, 2.5, -0.5, 3e38};
  const auto next = [&] {
    const std::size_t i = index % std::size(values);
    index /= std::size(values);
    return static_cast<Real>(values[i]);
  };
  for (; operand > 0; --operand) next();
  if constexpr (std::is_floating_point_v<T>) {
    return next();
  } else {
    const Real real = next();
    return {real, next()};
  }
}

template <class T>
pn::Tensor fill(const OperandSpec& spec, Numbers& numbers, std::uint64_t salt) {
  std::vector<T> values(static_cast<std::size_t>(spec.type.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if constexpr (!std::is_integral_v<T>) {
      if (spec.special) {
        values[i] = special<T>(i, salt);
        continue;
      }
    }
    if constexpr (std::is_same_v<T, bool>)
      values[i] = numbers.next(0, 1) < 0.5;
    else if constexpr (std::is_integral_v<T>)
      values[i] = static_cast<T>(std::floor(numbers.next(spec.low, spec.high)));
    else if constexpr (std::is_floating_point_v<T>)
      values[i] = static_cast<T>(numbers.next(spec.low, spec.high));
    else {
      const double re = numbers.next(spec.low, spec.high), im = numbers.next(spec.low, spec.high);
      values[i] =
          T(static_cast<typename T::value_type>(re), static_cast<typename T::value_type>(im));
    }
  }
  return pn::tensor<T>(values, spec.type.dims);
}

pn::Tensor make(const OperandSpec& spec, const std::string& name, std::uint64_t salt) {
  Numbers numbers(name, salt);
  switch (spec.type.dtype) {
    case pn::DType::pred: return fill<bool>(spec, numbers, salt);
    case pn::DType::s8: return fill<std::int8_t>(spec, numbers, salt);
    case pn::DType::s32: return fill<std::int32_t>(spec, numbers, salt);
    case pn::DType::s64: return fill<std::int64_t>(spec, numbers, salt);
    case pn::DType::u8: return fill<std::uint8_t>(spec, numbers, salt);
    case pn::DType::u32: return fill<std::uint32_t>(spec, numbers, salt);
    case pn::DType::u64: return fill<std::uint64_t>(spec, numbers, salt);
    case pn::DType::f32: return fill<float>(spec, numbers, salt);
    case pn::DType::f64: return fill<double>(spec, numbers, salt);
    case pn::DType::c64: return fill<std::complex<float>>(spec, numbers, salt);
    case pn::DType::c128: return fill<std::complex<double>>(spec, numbers, salt);
    default: throw std::runtime_error("no generator for this dtype");
  }
}

std::vector<pn::Tensor> make_all(const Row& row, std::uint64_t salt = 0) {
  std::vector<pn::Tensor> out;
  const auto specs = operands_of(row);
  for (std::size_t i = 0; i < specs.size(); ++i)
    out.push_back(make(specs[i], row.name, salt * 100 + i));
  return out;
}

/// All elements as real numbers, complex ones as two.
std::vector<double> numbers_of(const pn::Tensor& t) {
  if (pn::is_complex(t.dtype())) {
    std::vector<double> out;
    for (const auto& z : pn::convert<std::complex<double>>(t).to_vector<std::complex<double>>())
      out.insert(out.end(), {z.real(), z.imag()});
    return out;
  }
  return pn::convert<double>(t).to_vector<double>();
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double scale = 1;
  for (const double w : want)
    if (std::isfinite(w)) scale = std::max(scale, std::abs(w));
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    if (got[i] == want[i]) continue;
    EXPECT_NEAR(got[i], want[i], tolerance * scale) << what << ", element " << i;
  }
}

/// The same, read on the host.
std::vector<double> special_numbers_of(const pn::Tensor& t) {
  std::vector<double> out;
  if (t.dtype() == pn::DType::f32)
    for (const float x : t.to_vector<float>()) out.push_back(static_cast<double>(x));
  else if (t.dtype() == pn::DType::c64)
    for (const auto z : t.to_vector<std::complex<float>>())
      out.insert(out.end(), {static_cast<double>(z.real()), static_cast<double>(z.imag())});
  else
    out = numbers_of(t);
  return out;
}

/// Each by itself: what is not finite is equal, and so is the sign of a zero if `signs`.
void expect_special(const std::vector<double>& got, const std::vector<double>& want, bool signs,
                    const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    if (got[i] == want[i] && (!signs || std::signbit(got[i]) == std::signbit(want[i]))) continue;
    if (want[i] != 0 && std::abs(got[i] - want[i]) <= 2e-5 * std::abs(want[i])) continue;
    ADD_FAILURE() << what << ", element " << i << ": got " << got[i] << ", JAX " << want[i];
  }
}

/// Lines "name|type|values" and "name|grad0|values" of the golden file.
const std::map<std::string, std::string>& golden() {
  static const auto lines = [] {
    std::map<std::string, std::string> out;
    std::ifstream in(std::string(POSTERN_TEST_DATA) + "/ops.txt");
    for (std::string line; std::getline(in, line);) {
      const auto first = line.find('|'), second = line.find('|', first + 1);
      if (second == std::string::npos) continue;
      out[line.substr(0, second)] = line.substr(second + 1);
      if (line.substr(first + 1, 4) == "type")
        out[line.substr(0, first) + "|type"] = line.substr(second + 1);
    }
    return out;
  }();
  return lines;
}

std::vector<double> golden_numbers(const std::string& key) {
  const auto found = golden().find(key);
  if (found == golden().end()) {
    ADD_FAILURE() << "tests/data/ops.txt has no " << key << "; run scripts/golden";
    return {};
  }
  std::vector<double> out;
  std::istringstream in(found->second);
  for (std::string word; in >> word;) out.push_back(std::strtod(word.c_str(), nullptr));
  return out;
}

/// The weights by which a result becomes a number, the same for JAX.
pn::Tensor weights(const Row& row, const pn::Type& type) {
  return make({type, 0.5, 1.5}, row.name, 77);
}

bool moves(const pn::Tensor& t) { return pn::is_differentiable(t.dtype()); }

pn::Tensor as_f64(const pn::Tensor& t) {
  if (pn::is_float(t.dtype())) return pn::convert<double>(t);
  return pn::is_complex(t.dtype()) ? pn::convert(t, pn::DType::c128) : t;
}

}  // namespace

void check_value(const Row& row) {
  const auto x = make_all(row);
  const pn::Tensor eager = row.function(x);
  const auto type = golden().find(std::string(row.name) + "|type");
  ASSERT_NE(type, golden().end()) << "tests/data/ops.txt has no " << row.name
                                  << "; run scripts/golden";
  EXPECT_EQ(pn::to_string(eager.type()), type->second);
  expect_close(numbers_of(eager), golden_numbers(std::string(row.name) + "|value"), row.tolerance,
               "at once");
  const pn::Tensor compiled =
      pn::jit([&](std::vector<pn::Tensor> v) { return row.function(v); })(x);
  expect_close(numbers_of(compiled), golden_numbers(std::string(row.name) + "|value"),
               row.tolerance, "compiled");
  const pn::Tensor evaluated = pn::jit([&](std::vector<pn::Tensor> v) { return row.function(v); },
                                       {.mode = pn::Mode::evaluate})(x);
  expect_close(numbers_of(evaluated), numbers_of(compiled), row.tolerance, "evaluated");
}

void check_gradient(const Row& row) {
  const auto x = make_all(row);
  if (row.smooth == no) return;
  auto f = [&](std::vector<pn::Tensor> v) { return row.function(v); };
  const pn::Tensor y = f(x);
  const pn::Tensor ct = weights(row, y.type());
  auto gradient = pn::jit([&](std::vector<pn::Tensor> v, pn::Tensor w) {
    return std::get<0>(pn::vjp(f, v).second(w));
  });
  const std::vector<pn::Tensor> got = gradient(x, ct);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (moves(x[i]) && row.smooth == yes)
      expect_close(numbers_of(got[i]),
                   golden_numbers(std::string(row.name) + "|grad" + std::to_string(i)),
                   4 * row.tolerance, "gradient " + std::to_string(i));

  // In f64: jvp against finite differences, and against vjp.
  std::vector<pn::Tensor> x64, dx;
  for (std::size_t i = 0; i < x.size(); ++i) {
    x64.push_back(as_f64(x[i]));
    dx.push_back(make({x64.back().type(), -1, 1}, row.name, 900 + i));
  }
  auto forward = pn::jit([&](std::vector<pn::Tensor> v, std::vector<pn::Tensor> d) {
    return pn::jvp(f, std::tuple{v}, std::tuple{d});
  });
  const auto [value, dy] = forward(x64, dx);
  const double h = 1e-6;
  auto moved = [&](double s) {
    std::vector<pn::Tensor> v = x64;
    for (std::size_t i = 0; i < v.size(); ++i)
      if (moves(v[i])) v[i] = v[i] + dx[i] * s;
    return numbers_of(pn::jit(f)(v));
  };
  const std::vector<double> up = moved(h), down = moved(-h);
  std::vector<double> slope;
  for (std::size_t i = 0; i < up.size(); ++i) slope.push_back((up[i] - down[i]) / (2 * h));
  expect_close(numbers_of(dy), slope, 1e-4, "jvp against finite differences");
  if (pn::is_complex(y.dtype()) || std::any_of(x.begin(), x.end(), [](const pn::Tensor& t) {
        return pn::is_complex(t.dtype());
      }))
    return;
  const pn::Tensor w64 = as_f64(ct);
  const std::vector<pn::Tensor> back = gradient(x64, w64);
  double left = 0, right = 0;
  const auto a = numbers_of(w64), b = numbers_of(dy);
  for (std::size_t i = 0; i < a.size(); ++i) left += a[i] * b[i];
  for (std::size_t k = 0; k < x.size(); ++k) {
    if (!moves(x[k])) continue;
    const auto c = numbers_of(back[k]), d = numbers_of(dx[k]);
    for (std::size_t i = 0; i < c.size(); ++i) right += c[i] * d[i];
  }
  EXPECT_NEAR(left, right, 1e-8 * (1 + std::abs(left))) << "jvp against vjp";
}

void check_batch(const Row& row) {
  constexpr std::int64_t n = 3;
  const std::size_t count = make_all(row).size();
  std::vector<std::vector<pn::Tensor>> elements;
  for (std::int64_t e = 0; e < n; ++e)
    elements.push_back(make_all(row, static_cast<std::uint64_t>(e)));
  // All operands mapped, the first alone, the last alone; the last along its last axis.
  for (int form = 0; form < 3; ++form) {
    if (count == 0 || (form > 0 && count == 1)) continue;
    auto mapped = [&](std::size_t i) { return form == 0 || (form == 1 ? i == 0 : i + 1 == count); };
    std::vector<pn::Tensor> stacked;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<pn::Tensor> parts;
      for (const auto& e : elements) parts.push_back(e[i]);
      stacked.push_back(mapped(i) ? pn::stack(parts) : elements[0][i]);
    }
    std::vector<pn::Tensor> want;
    for (std::int64_t e = 0; e < n; ++e) {
      std::vector<pn::Tensor> v;
      for (std::size_t i = 0; i < count; ++i)
        v.push_back(elements[mapped(i) ? static_cast<std::size_t>(e) : 0][i]);
      want.push_back(row.function(v));
    }
    auto batched = pn::jit([&](std::vector<pn::Tensor> v) {
      std::vector<pn::Tensor> moving;
      for (std::size_t i = 0; i < count; ++i)
        if (mapped(i)) moving.push_back(v[i]);
      return pn::vmap([&](std::vector<pn::Tensor> m) {
        std::vector<pn::Tensor> all;
        std::size_t next = 0;
        for (std::size_t i = 0; i < count; ++i) all.push_back(mapped(i) ? m[next++] : v[i]);
        return row.function(all);
      })(moving);
    });
    expect_close(numbers_of(batched(stacked)), numbers_of(pn::stack(want)), row.tolerance,
                 "batch, form " + std::to_string(form));
  }
  if (count == 0) return;
  std::vector<pn::Tensor> none;
  for (const pn::Tensor& t : elements[0]) none.push_back(pn::stack(std::vector{t, t}));
  for (pn::Tensor& t : none) t = pn::slice_axis(t, 0, 0, 0);
  pn::Dims dims = row.function(elements[0]).dims();
  dims.insert(dims.begin(), 0);
  EXPECT_EQ(
      pn::jit(pn::vmap([&](std::vector<pn::Tensor> v) { return row.function(v); }))(none).dims(),
      dims)
      << "a batch of none";
}

namespace {

/// The row's value with its operands of one dtype in another.
void check_in(const Row& row, const std::vector<pn::Tensor>& x, pn::DType from, pn::DType to,
              double tolerance) {
  std::vector<pn::Tensor> cast;
  for (const pn::Tensor& t : x) cast.push_back(t.dtype() == from ? pn::convert(t, to) : t);
  expect_close(numbers_of(row.function(cast)), numbers_of(row.function(x)), tolerance,
               std::string(pn::to_string(to)));
}

}  // namespace

void check_dtypes(const Row& row) {
  const auto x = make_all(row);
  const auto all = [&](pn::DType dtype) {
    return std::ranges::all_of(x, [&](const pn::Tensor& t) { return t.dtype() == dtype; });
  };
  const bool floats = std::any_of(x.begin(), x.end(),
                                  [](const pn::Tensor& t) { return t.dtype() == pn::DType::f32; });
  if (floats) {
    for (const auto& [dtype, tolerance] :
         {std::pair{pn::DType::f64, 1e-4}, {pn::DType::f16, 4e-2}, {pn::DType::bf16, 2e-1}}) {
      if (row.shapes == fixed && dtype != pn::DType::f64)
        continue;  // rounding may choose other elements
      check_in(row, x, pn::DType::f32, dtype, tolerance);
    }
  } else if (all(pn::DType::c64)) {
    check_in(row, x, pn::DType::c64, pn::DType::c128, 1e-4);
  } else if (all(pn::DType::s32) && row.shapes == any) {
    for (const pn::DType dtype : {pn::DType::s16, pn::DType::s64})
      check_in(row, x, pn::DType::s32, dtype, 0);
  }
  if (row.shapes == fixed) return;
  std::vector<pn::Tensor> empty;
  for (const pn::Tensor& t : x) empty.push_back(pn::zeros(pn::make_type(t.dtype(), {0, 3})));
  EXPECT_EQ(row.function(empty).dims(), (pn::Dims{0, 3})) << "empty operands";
}

void check_special(const Row& row) {
  // Which zero is larger the defaults do not say.
  const bool by_kernel = std::string_view(row.name).starts_with("special_cum");
  if (by_kernel && pn::test::skipped_in_stages("kernels are custom calls")) return;
  const auto x = make_all(row);
  const auto f = [&](std::vector<pn::Tensor> v) { return row.function(v); };
  const std::vector<double> want = golden_numbers(std::string(row.name) + "|value");
  expect_special(special_numbers_of(f(x)), want, true, "at once");
  expect_special(special_numbers_of(pn::jit(f)(x)), want, true, "compiled");
  expect_special(special_numbers_of(pn::jit(f, {.mode = pn::Mode::evaluate})(x)), want, true,
                 "evaluated");
  expect_special(special_numbers_of(pn::jit([&] { return f(x); })()), want, true, "of constants");
  if (row.smooth != yes) return;
  const pn::Tensor ct = weights(row, f(x).type());
  const auto gradient = [&](std::vector<pn::Tensor> v, pn::Tensor w) {
    return std::get<0>(pn::vjp(f, v).second(w));
  };
  for (const pn::Mode mode : {pn::Mode::compiled, pn::Mode::evaluate}) {
    const std::vector<pn::Tensor> got = pn::jit(gradient, {.mode = mode})(x, ct);
    for (std::size_t i = 0; i < x.size(); ++i)
      if (moves(x[i]))
        expect_special(special_numbers_of(got[i]),
                       golden_numbers(std::string(row.name) + "|grad" + std::to_string(i)), false,
                       "gradient " + std::to_string(i));
  }
}

}  // namespace ops
