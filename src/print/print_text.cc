// Text of elements, arrays and containers.
#include "print/print_text.h"

#include <fmt/format.h>

#include <Eigen/Core>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "core/lists.h"
#include "core/text.h"
#include "print/number.h"

namespace postern::internal::host {

namespace {

using detail::PrintNode;

template <class T>
std::string formatted(const std::string& spec, const T& value) {
  return fmt::format(fmt::runtime("{:" + spec + "}"), value);
}

/// Returns the fewest digits that tell an f16.
std::string shortest_half(double x) {
  constexpr int always_enough = 5;  // max_digits10 of f16
  std::string text;
  for (int digits = 1; digits <= always_enough; ++digits) {
    text = fmt::format("{:.{}g}", x, digits);
    if (static_cast<double>(Eigen::half(static_cast<float>(parse_number(text)))) == x) break;
  }
  return text;
}

std::string real_text(DType dtype, double x, const std::string& spec) {
  if (std::isnan(x)) x = std::abs(x);  // its sign says nothing
  if (dtype == DType::f64 || dtype == DType::c128) return formatted(spec, x);
  if (!spec.empty() || dtype == DType::f32 || dtype == DType::c64)
    return formatted(spec, static_cast<float>(x));
  if (dtype == DType::f16) return shortest_half(x);
  return fmt::format("{:.4g}", x);  // tells all of bf16 and smaller, if not in the fewest digits
}

/// Writes an integer; those of 64 bits are not read as doubles, which do not hold them.
std::string integer_text(DType dtype, const std::byte* data, std::int64_t i,
                         const std::string& spec) {
  if (dtype != DType::u64 && dtype != DType::s64)
    return formatted(spec, static_cast<std::int64_t>(real_at(dtype, data, i)));
  std::uint64_t bits;
  std::memcpy(&bits, data + i * 8, 8);
  if (dtype == DType::u64) return formatted(spec, bits);
  return formatted(spec, static_cast<std::int64_t>(bits));
}

std::string element_text(const AnyView& view, std::int64_t i, const std::string& spec) {
  const DType dtype = view.dtype();
  if (dtype == DType::pred) return formatted(spec, real_at(dtype, view.data(), i) != 0);
  if (is_integer(dtype)) return integer_text(dtype, view.data(), i, spec);
  const auto [re, im] = complex_at(dtype, view.data(), i);
  if (!is_complex(dtype)) return real_text(dtype, re, spec);
  const std::string imaginary = real_text(dtype, im, spec);
  std::string text = real_text(dtype, re, spec);
  if (imaginary[0] != '-' && imaginary[0] != '+') text += '+';
  return text + imaginary + "i";
}

/// Returns which indices of an axis are written; -1 stands for the dots.
std::vector<std::int64_t> shown_indices(std::int64_t extent, bool summarised, int edge) {
  std::vector<std::int64_t> out;
  const bool has_dots = summarised && extent > 2 * edge;
  for (std::int64_t i = 0; i < extent; ++i) {
    if (has_dots && i == edge) {
      out.push_back(-1);
      i = extent - edge;  // the first of those at the other end
    }
    out.push_back(i);
  }
  return out;
}

/// Real numbers of one array as NumPy writes them: all with their points under each other, in
/// scientific notation where the largest or smallest asks for it. So all are looked at twice before
/// the first is written: for their sizes (`see`), then for the widths of their parts (`measure`).
class RealFormat {
 public:
  RealFormat(DType dtype, const TextStyle& style, bool sign)
      : dtype_(dtype), sign_(sign), suppress_(style.suppress) {
    precision_ = style.precision;
    if (precision_ < 0) precision_ = 8;
  }

  void see(double x) {
    const double size = std::abs(x);
    if (!std::isfinite(x) || x == 0) return;
    most_ = std::max(most_, size);
    least_ = std::min(least_, size);
  }
  void measure(double x) {
    const bool is_wide = most_ >= 1e8 || least_ < 1e-4 || most_ / least_ > 1000;  // as NumPy's
    scientific_ = !suppress_ && most_ > 0 && is_wide;
    const Parts of_x = parts(x, shortest);
    if (!std::isfinite(x)) {
      words_ = std::max(words_, of_x.left.size());
      return;
    }
    left_ = std::max(left_, of_x.left.size());
    right_ = std::max(right_, of_x.right.size());
    exponent_ = std::max(exponent_, of_x.exponent.size());
  }

  /// Writes a number that was measured. Scientific ones have all digits alike, others end in
  /// spaces.
  std::string operator()(double x) const {
    Parts of_x = parts(x, shortest);
    const std::size_t behind = 1 + right_ + exponent_, width = std::max(left_ + behind, words_);
    if (!std::isfinite(x)) return fmt::format("{:>{}}", of_x.left, width);
    if (scientific_ && of_x.right.size() < right_) of_x = parts(x, static_cast<int>(right_));
    if (scientific_ && of_x.exponent.size() < exponent_)  // e-05 beside e-100: behind the sign
      of_x.exponent.insert(2, exponent_ - of_x.exponent.size(), '0');
    of_x.right.append(right_ - of_x.right.size(), ' ');
    return fmt::format("{:>{}}.{}{}", of_x.left, width - behind, of_x.right, of_x.exponent);
  }

 private:
  struct Parts {
    std::string left, right, exponent;  // "-1", "5", "e-05"
  };
  static constexpr int shortest = -1;  // places: as few as tell the number

  /// Returns the parts of x with so many places behind the point; with the shortest, but not more
  /// than the precision, then without zeros at the end.
  Parts parts(double x, int places) const {
    if (std::isnan(x)) x = std::abs(x);
    std::string sign;
    if (sign_ && !std::signbit(x)) sign = "+";
    if (!std::isfinite(x)) return {sign + formatted("", x), "", ""};
    Parts out = cut(sign + digits(x, places));
    if (places != shortest || out.right.size() <= size_of(precision_)) return out;
    out = cut(sign + digits(x, precision_));
    out.right.resize(out.right.find_last_not_of('0') + 1);
    return out;
  }

  static Parts cut(std::string text) {
    Parts out;
    if (const auto e = text.find('e'); e != std::string::npos) {
      out.exponent = text.substr(e);
      text.resize(e);
    }
    if (const auto point = text.find('.'); point != std::string::npos) {
      out.right = text.substr(point + 1);
      text.resize(point);
    }
    out.left = std::move(text);
    return out;
  }

  /// Writes a finite number with so many places behind the point, or the shortest.
  std::string digits(double x, int places) const {
    const auto format = scientific_ ? std::chars_format::scientific : std::chars_format::fixed;
    char text[1024];  // longer than f64 with 100 places
    std::to_chars_result end{};
    auto write = [&](auto number) {
      if (places == shortest)
        end = std::to_chars(text, std::end(text), number, format);
      else
        end = std::to_chars(text, std::end(text), number, format, places);
    };
    if (dtype_ == DType::f64 || dtype_ == DType::c128)
      write(x);
    else if (dtype_ == DType::f32 || dtype_ == DType::c64)
      write(static_cast<float>(x));
    else if (places == shortest)  // of the number that its own text is
      write(parse_number(real_text(dtype_, x, "")));
    else
      write(x);
    return std::string(text, end.ptr);
  }

  DType dtype_;
  bool sign_, suppress_, scientific_ = false;
  int precision_;
  double most_ = 0, least_ = INFINITY;
  std::size_t left_ = 0, right_ = 0, exponent_ = 0, words_ = 0;  // the widest
};

/// Writes an array in brackets, its elements to the same width, large ones with dots.
class ArrayWriter {
 public:
  ArrayWriter(const AnyView& view, const std::string& spec, const TextStyle& style)
      : view_(view), spec_(spec) {
    for (const std::int64_t d : view.dims())
      indices_.push_back(shown_indices(d, view.size() > style.threshold, style.edge_items));
    if (spec.empty() && (is_float(view.dtype()) || is_complex(view.dtype()))) {
      real_.emplace(view.dtype(), style, false);
      if (is_complex(view.dtype())) imaginary_.emplace(view.dtype(), style, true);
      each_part(&RealFormat::see);
      each_part(&RealFormat::measure);
    }
    each_shown(0, 0, [&](std::int64_t i) { width_ = std::max(width_, text_at(i).size()); });
  }

  std::string write() {
    write_axis(0, 0);
    return std::move(out_);
  }

 private:
  /// Calls f with the flat index of each element that is written, from `axis` on; `at` is the flat
  /// index in the axes before.
  template <class F>
  void each_shown(std::size_t axis, std::int64_t at, const F& f) const {
    if (axis == indices_.size()) return f(at);
    for (const std::int64_t i : indices_[axis])
      if (i >= 0) each_shown(axis + 1, at * view_.dims()[axis] + i, f);
  }

  void each_part(void (RealFormat::*act)(double)) {
    each_shown(0, 0, [&](std::int64_t i) {
      const auto [re, im] = complex_at(view_.dtype(), view_.data(), i);
      ((*real_).*act)(re);
      if (imaginary_) ((*imaginary_).*act)(im);
    });
  }

  std::string text_at(std::int64_t i) const {
    if (!real_) return element_text(view_, i, spec_);
    const auto [re, im] = complex_at(view_.dtype(), view_.data(), i);
    std::string text = (*real_)(re);
    if (!imaginary_) return text;
    text += (*imaginary_)(im);
    return text.insert(text.find_last_not_of(' ') + 1, "i");
  }

  void write_axis(std::size_t axis, std::int64_t at) {
    if (axis == indices_.size()) {
      out_ += fmt::format("{:>{}}", text_at(at), width_);
      return;
    }
    // As NumPy: columns by a space, rows by a line, and one more for each axis further out.
    const std::size_t inner = indices_.size() - axis - 1;
    std::string separator = " ";
    if (inner > 0) separator = std::string(inner, '\n') + std::string(axis + 1, ' ');
    out_ += '[';
    Separator before_next(separator);
    for (const std::int64_t i : indices_[axis]) {
      out_ += before_next();
      if (i < 0)
        out_ += "...";
      else
        write_axis(axis + 1, at * view_.dims()[axis] + i);
    }
    out_ += ']';
  }

  const AnyView& view_;
  std::string spec_;
  std::optional<RealFormat> real_, imaginary_;  // where no specification says how
  std::vector<std::vector<std::int64_t>> indices_;
  std::size_t width_ = 0;
  std::string out_;
};

}  // namespace

std::string text_of(const AnyView& view, const std::string& spec, const TextStyle& style) {
  if (view.rank() == 0) {
    std::string how = spec;
    if (spec.empty() && style.precision >= 0 &&
        (is_float(view.dtype()) || is_complex(view.dtype())))
      how = fmt::format(".{}f", style.precision);
    return element_text(view, 0, how);
  }
  if (view.size() == 0 && style.types) return "[]";
  if (view.size() == 0) return "[] " + to_string(view.type());
  return ArrayWriter(view, spec, style).write();
}

std::string text_of(const PrintNode& node, std::span<const AnyView> leaves, std::size_t& next,
                    const std::string& spec, const TextStyle& style) {
  using Kind = PrintNode::Kind;
  if (node.kind == Kind::text)
    return std::visit([&](const auto& value) { return formatted(spec, value); }, node.known);
  if (node.kind == Kind::leaf) {
    const AnyView& leaf = leaves[next++];
    const std::string text = text_of(leaf, spec, style);
    if (!style.types) return text;
    const char* gap = " ";
    if (leaf.rank() > 1) gap = "\n";
    return to_string(leaf.type()) + gap + text;
  }
  std::string_view brackets = "{}";
  if (node.kind == Kind::tuple) brackets = "()";
  if (node.kind == Kind::list) brackets = "[]";
  std::string out(1, brackets[0]);
  for (std::size_t i = 0; i < node.parts.size(); ++i) {
    if (i) out += ", ";
    if (node.kind == Kind::named) out += node.names[i] + "=";
    out += text_of(node.parts[i], leaves, next, spec, style);
  }
  if (node.parts.empty()) out += ' ';
  return out + brackets[1];
}

}  // namespace postern::internal::host
