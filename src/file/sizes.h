// Sizes that a program leaves open: what its numbers are of them.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace postern::internal::file {

/// The value of each open size, in the order of their names.
using Sizes = std::vector<std::int64_t>;

/// A number made of sizes: a polynomial with a whole denominator, rounded down (Form::whole); or,
/// as a number of some dtype, that (`itself`), its root, or one over these.
class Expression {
 public:
  struct Term {
    std::int64_t factor;
    std::vector<int> powers;  // of each size
  };
  enum class Form : std::uint8_t { whole, itself, inverse, root, inverse_root };

  /// Returns the number as text.
  std::string at(const Sizes& sizes) const;
  /// Writes and reads it: "3*n*m+2*n-1", "(n+1)/2", "f32 1/sqrt(n)". Throws Error.
  std::string text(std::span<const std::string> names) const;
  static Expression read(std::string_view text, std::span<const std::string> names);
  /// Returns the size that it is, where it is one and nothing else.
  std::optional<std::size_t> only() const;

  std::vector<Term> terms;
  std::int64_t divisor = 1;
  Form form = Form::whole;
  std::string dtype = {};  // of the other forms: "f32"

 private:
  std::optional<std::int64_t> quotient_at(const Sizes& sizes) const;
  friend class Fitting;
};

/// Finds expressions for numbers that are known at some sizes.
class Fitting {
 public:
  /// Returns the sizes at which numbers must be known, as many sizes each.
  static std::vector<Sizes> samples(std::size_t count);
  explicit Fitting(std::vector<Sizes> samples);
  /// Returns an expression that gives each of these texts, one for each sample; none where there is
  /// no such.
  std::optional<Expression> of(std::span<const std::string_view> numbers) const;

 private:
  std::optional<Expression> of_wholes(const std::vector<std::int64_t>& values) const;
  std::optional<Expression> of_rounded_down(const std::vector<std::int64_t>& values) const;
  std::optional<Expression> of_reals(std::span<const std::string_view> numbers) const;
  bool gives(const Expression& e, const std::vector<std::int64_t>& values) const;

  std::vector<Sizes> samples_;
  std::vector<std::vector<int>> monomials_;
  std::vector<std::vector<long double>> inverse_;  // of the monomials at the first samples
};

}  // namespace postern::internal::file
