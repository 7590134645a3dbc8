// Expressions of sizes: computed, written, read, and found for numbers at some sizes. Numbers of a
// program are fitted by all monomials up to a degree at as many samples, and what was found must
// give the numbers of the other samples too.
#include "file/sizes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "core/check.h"
#include "core/text.h"
#include "trace/literal.h"

namespace postern::internal::file {

namespace {

using Form = Expression::Form;

constexpr std::string_view dtypes[] = {"f64", "f32", "bf16", "f16"};

double rounded(double x, std::string_view dtype) {
  constexpr DType in_order[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
  const DType type = in_order[std::ranges::find(dtypes, dtype) - dtypes];
  std::uint64_t bits = 0;
  write_number({.real = x}, type, &bits);
  return read_number(type, &bits).real;
}

/// Applies a form to a number, and takes it back.
double formed(double x, Form form) {
  switch (form) {
    case Form::inverse: return 1 / x;
    case Form::root: return std::sqrt(x);
    case Form::inverse_root: return 1 / std::sqrt(x);
    default: return x;
  }
}
double unformed(double y, Form form) {
  switch (form) {
    case Form::inverse: return 1 / y;
    case Form::root: return y * y;
    case Form::inverse_root: return 1 / (y * y);
    default: return y;
  }
}

[[noreturn]] void refuse(std::string_view text) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("'{}' is no number made of the sizes that are open", text));
}

std::int64_t number_in(std::string_view text) {
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size()) refuse(text);
  return out;
}

/// What stands before the polynomial, behind the dtype, in each form but `whole`; ")" closes it.
constexpr std::pair<Form, std::string_view> openings[] = {{Form::itself, "("},
                                                          {Form::inverse, "1/("},
                                                          {Form::root, "sqrt("},
                                                          {Form::inverse_root, "1/sqrt("}};

/// Writes a term without its sign: "3*n*m", "n", "2".
std::string product_text(const Expression::Term& term, std::span<const std::string> names) {
  std::string product;
  for (std::size_t i = 0; i < term.powers.size(); ++i)
    for (int p = 0; p < term.powers[i]; ++p) product += "*" + names[i];
  const auto factor = static_cast<std::uint64_t>(term.factor);
  const std::uint64_t size = term.factor < 0 ? 0 - factor : factor;  // also of the least number
  if (product.empty() || size != 1) return std::to_string(size) + product;
  return product.substr(1);
}

/// Multiplies a term by what product_text writes. `all` is the text that errors show.
void read_product(std::string_view text, std::span<const std::string> names, Expression::Term& term,
                  std::string_view all) {
  while (true) {
    const std::size_t star = std::min(text.find('*'), text.size());
    const std::string_view word = text.substr(0, star);
    if (const auto name = std::ranges::find(names, word); name != names.end())
      ++term.powers[static_cast<std::size_t>(name - names.begin())];
    else if (__builtin_mul_overflow(term.factor, number_in(word), &term.factor))
      refuse(all);
    if (star == text.size()) return;
    text.remove_prefix(star + 1);
  }
}

}  // namespace

// None where a product or the quotient is too large. Below 0 C++ rounds up, and this still down.
std::optional<std::int64_t> Expression::quotient_at(const Sizes& sizes) const {
  __extension__ using Wide = __int128;
  constexpr Wide most = Wide{1} << 62;
  Wide sum = 0;
  for (const Term& term : terms) {
    Wide product = term.factor;
    for (std::size_t i = 0; i < term.powers.size(); ++i)
      for (int p = 0; p < term.powers[i]; ++p) {
        product *= sizes.at(i);
        if (product > most || product < -most) return std::nullopt;
      }
    sum += product;
  }
  Wide quotient = sum / divisor;
  if (sum % divisor != 0 && sum < 0) --quotient;
  if (quotient > most || quotient < -most) return std::nullopt;
  return static_cast<std::int64_t>(quotient);
}

std::string Expression::at(const Sizes& sizes) const {
  const auto value = quotient_at(sizes);
  if (!value)
    throw Error(ErrorCode::invalid_argument,
                "the sizes of the arguments make a number that is too large for the program");
  if (form == Form::whole) return std::to_string(*value);
  const double y = rounded(formed(static_cast<double>(*value), form), dtype);
  if (!std::isfinite(y))
    throw Error(ErrorCode::invalid_argument,
                "the sizes of the arguments make a number of the program infinite");
  if (dtype == "f64") return fmt::format("{:.17e}", y);
  return fmt::format("{:.9e}", y);
}

std::optional<std::size_t> Expression::only() const {
  if (form != Form::whole || divisor != 1 || terms.size() != 1 || terms[0].factor != 1)
    return std::nullopt;
  std::optional<std::size_t> out;
  for (std::size_t i = 0; i < terms[0].powers.size(); ++i) {
    if (terms[0].powers[i] == 0) continue;
    if (out || terms[0].powers[i] != 1) return std::nullopt;
    out = i;
  }
  return out;
}

std::string Expression::text(std::span<const std::string> names) const {
  std::string out;
  for (const Term& term : terms) {
    if (term.factor < 0)
      out += "-";
    else if (!out.empty())
      out += "+";
    out += product_text(term, names);
  }
  if (out.empty()) out = "0";
  if (divisor != 1) out = fmt::format("({})/{}", out, divisor);
  for (const auto& [own, opening] : openings)
    if (form == own) return fmt::format("{} {}{})", dtype, opening, out);
  return out;
}

Expression Expression::read(std::string_view text, std::span<const std::string> names) {
  const std::string_view all = text;
  Expression out;
  if (const std::size_t space = text.find(' '); space != text.npos) {
    out.dtype = text.substr(0, space);
    if (std::ranges::find(dtypes, out.dtype) == std::end(dtypes)) refuse(all);
    text.remove_prefix(space + 1);
    const auto* const found = std::ranges::find_if(
        openings, [&](const auto& o) { return text.starts_with(o.second) && text.ends_with(")"); });
    if (found == std::end(openings)) refuse(all);
    out.form = found->first;
    text = text.substr(found->second.size(), text.size() - found->second.size() - 1);
  }
  if (const std::size_t slash = text.find(")/"); slash != text.npos) {
    out.divisor = number_in(text.substr(slash + 2));
    if (out.divisor < 1 || !text.starts_with("(")) refuse(all);
    text = text.substr(1, slash - 1);
  }
  while (!text.empty()) {
    Term term{1, std::vector<int>(names.size())};
    if (text[0] == '-') term.factor = -1;
    if (text[0] == '-' || text[0] == '+') text.remove_prefix(1);
    const std::size_t end = std::min(text.find_first_of("+-"), text.size());
    read_product(text.substr(0, end), names, term, all);
    out.terms.push_back(std::move(term));
    text.remove_prefix(end);
  }
  return out;
}

namespace {

/// The powers of all products of sizes up to a degree, the constant first.
std::vector<std::vector<int>> monomials(std::size_t count) {
  const int most = count > 2 ? 2 : 3;
  std::vector<std::vector<int>> out = {std::vector<int>(count)};
  std::size_t begin = 0;  // of the last degree's
  for (int degree = 1; degree <= most; ++degree) {
    const std::size_t end = out.size();
    for (std::size_t i = begin; i < end; ++i)
      for (std::size_t j = 0; j < count; ++j) {
        std::vector<int> next = out[i];
        ++next[j];
        if (std::ranges::find(out, next) == out.end()) out.push_back(std::move(next));
      }
    begin = end;
  }
  return out;
}

long double value_of(const std::vector<int>& powers, const Sizes& sizes) {
  long double out = 1;
  for (std::size_t i = 0; i < powers.size(); ++i)
    for (int p = 0; p < powers[i]; ++p) out *= static_cast<long double>(sizes[i]);
  return out;
}

using Rows = std::vector<std::vector<long double>>;

/// Returns the inverse, empty where there is none: by elimination with the largest pivots, of rows
/// beside which stand those of the identity.
Rows inverted(Rows a) {
  const std::size_t n = a.size();
  for (std::size_t i = 0; i < n; ++i) {
    a[i].resize(2 * n);
    a[i][n + i] = 1;
  }
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t best = i;
    for (std::size_t r = i; r < n; ++r)
      if (std::abs(a[r][i]) > std::abs(a[best][i])) best = r;
    if (std::abs(a[best][i]) < 1e-6L) return {};
    std::swap(a[i], a[best]);
    const long double pivot = a[i][i];
    for (long double& v : a[i]) v /= pivot;
    for (std::size_t r = 0; r < n; ++r)
      if (const long double factor = a[r][i]; r != i && factor != 0)
        for (std::size_t c = 0; c < 2 * n; ++c) a[r][c] -= factor * a[i][c];
  }
  for (auto& row : a) row.erase(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(n));
  return a;
}

/// Inverts the values of the monomials at as many first samples: from numbers at these to factors.
Rows inverted_at(const std::vector<std::vector<int>>& monomials,
                 const std::vector<Sizes>& samples) {
  Rows values;
  for (std::size_t s = 0; s < monomials.size(); ++s) {
    values.emplace_back();
    for (const auto& powers : monomials) values.back().push_back(value_of(powers, samples[s]));
  }
  return inverted(std::move(values));
}

}  // namespace

// Sizes differ from each other in all of them, and from what stands in most programs.
std::vector<Sizes> Fitting::samples(std::size_t count) {
  const auto all = monomials(count);
  std::uint64_t state = 1;
  const auto next = [&] {  // pseudo-random, the same every time
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>(state >> 33);
  };
  std::vector<Sizes> out;
  do {  // as many as there are monomials, at which these are told apart
    out.clear();
    while (out.size() < all.size()) {
      Sizes one;
      while (one.size() < count)
        if (const std::int64_t n = 67 + next() % 60; std::ranges::find(one, n) == one.end())
          one.push_back(n);
      if (std::ranges::find(out, one) == out.end()) out.push_back(std::move(one));
    }
  } while (inverted_at(all, out).empty());
  for (std::int64_t i = 0; i < 8; ++i) {  // each size with all remainders by small numbers
    Sizes one;
    for (std::size_t j = 0; j < count; ++j)
      one.push_back(96 + i + 17 * static_cast<std::int64_t>(j));
    out.push_back(std::move(one));
  }
  for (std::size_t j = 0; j < count; ++j) {
    out.push_back(out[0]);
    out.back()[j] = 1709;  // above 1625, where permutation has a second round
  }
  Sizes large;  // all above 512, the long_axis
  for (std::size_t j = 0; j < count; ++j) large.push_back(523 + 18 * static_cast<std::int64_t>(j));
  out.push_back(std::move(large));
  return out;
}

Fitting::Fitting(std::vector<Sizes> samples)
    : samples_(std::move(samples)),
      monomials_(monomials(samples_.at(0).size())),
      inverse_(inverted_at(monomials_, samples_)) {}

bool Fitting::gives(const Expression& e, const std::vector<std::int64_t>& values) const {
  for (std::size_t s = 0; s < values.size(); ++s)
    if (e.quotient_at(samples_[s]) != values[s]) return false;
  return true;
}

// The numbers at the first samples say each monomial's factor. Times the denominator it is a whole
// number, but for what rounding has changed.
std::optional<Expression> Fitting::of_wholes(const std::vector<std::int64_t>& values) const {
  std::vector<long double> factors;
  for (const auto& row : inverse_) {
    factors.push_back(0);
    for (std::size_t s = 0; s < row.size(); ++s)
      factors.back() += row[s] * static_cast<long double>(values[s]);
  }
  for (const std::int64_t divisor : {1, 2, 3, 4, 6}) {
    Expression out;
    out.divisor = divisor;
    for (std::size_t i = factors.size(); i-- > 0;)
      if (const std::int64_t n = std::llroundl(factors[i] * static_cast<long double>(divisor)))
        out.terms.push_back({n, monomials_[i]});
    if (gives(out, values)) return out;
  }
  return of_rounded_down(values);
}

/// Looks for (factor * n + offset) / divisor of one size n, as strides make of it. The first and
/// the last sample say the factor, but for rounding. Each sample then leaves as many offsets as the
/// divisor has remainders, and all of them together must leave one.
std::optional<Expression> Fitting::of_rounded_down(const std::vector<std::int64_t>& values) const {
  const std::size_t count = samples_[0].size(), last = samples_.size() - 1;
  for (std::size_t j = 0; j < count; ++j)
    for (std::int64_t divisor = 2; divisor <= 8; ++divisor) {
      const std::int64_t size_by = samples_[last][j] - samples_[0][j],
                         value_by = values[last] - values[0],
                         slope = divisor * value_by / std::max(size_by, std::int64_t{1});
      for (std::int64_t factor = slope - 1; factor <= slope + 1; ++factor) {
        using Limits = std::numeric_limits<std::int64_t>;
        std::int64_t low = Limits::min(), high = Limits::max();  // between them are the offsets
        for (std::size_t s = 0; s < values.size(); ++s) {
          const std::int64_t least = divisor * values[s] - factor * samples_[s][j];
          low = std::max(low, least);
          high = std::min(high, least + divisor - 1);
        }
        if (low != high || factor == 0) continue;
        Expression out;
        out.divisor = divisor;
        out.terms = {{factor, std::vector<int>(count)}, {low, std::vector<int>(count)}};
        out.terms[0].powers[j] = 1;
        if (low == 0) out.terms.pop_back();
        return out;
      }
    }
  return std::nullopt;
}

// Takes each form back, rounds to whole numbers and fits these; what was found must give the same
// numbers in the dtype again.
std::optional<Expression> Fitting::of_reals(std::span<const std::string_view> numbers) const {
  std::vector<double> values;
  for (const std::string_view text : numbers) {
    const std::string word(text);
    std::size_t size = 0;
    values.push_back(parse_number(word, &size));
    if (size != word.size() || !std::isfinite(values.back())) return std::nullopt;
  }
  // f64 is written with 17 digits behind the point, all others with 9.
  const bool wide = numbers[0].find('e') - numbers[0].find('.') > 10;
  constexpr double most = 1e15;
  for (const Form form : {Form::itself, Form::inverse, Form::root, Form::inverse_root}) {
    std::vector<std::int64_t> wholes;
    for (const double v : values)
      if (const double x = unformed(v, form); std::abs(x) < most) wholes.push_back(std::llround(x));
    if (wholes.size() != values.size()) continue;
    std::optional<Expression> out = of_wholes(wholes);
    if (!out) continue;
    out->form = form;
    // The text has all digits of an f32, also of a narrower float: the number itself must be met.
    std::string_view own = "f32";
    if (wide) own = "f64";
    for (const std::string_view dtype : dtypes) {
      bool same = wide == (dtype == "f64");
      for (std::size_t s = 0; s < values.size() && same; ++s)
        same =
            rounded(formed(static_cast<double>(wholes[s]), form), dtype) == rounded(values[s], own);
      out->dtype = dtype;
      if (same) return out;
    }
  }
  return std::nullopt;
}

std::optional<Expression> Fitting::of(std::span<const std::string_view> numbers) const {
  std::vector<std::int64_t> values;
  for (const std::string_view text : numbers) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return of_reals(numbers);
    values.push_back(number);
  }
  return of_wholes(values);
}

}  // namespace postern::internal::file
