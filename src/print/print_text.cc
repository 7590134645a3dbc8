// Text of elements, arrays and containers.
#include "print/print_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "print/number.h"

namespace postern::host {

namespace {

using detail::PrintNode;

template <class T>
std::string formatted(const std::string& spec, const T& value) {
  return fmt::format(fmt::runtime("{:" + spec + "}"), value);
}

std::string real_text(DType dtype, double x, const std::string& spec) {
  if (dtype == DType::f64 || dtype == DType::c128) return formatted(spec, x);
  if (!spec.empty() || dtype == DType::f32 || dtype == DType::c64)
    return formatted(spec, static_cast<float>(x));
  return fmt::format("{:.{}g}", x,
                     dtype == DType::f16 ? 5 : 4);  // as many digits as tell the halves and smaller
}

std::string element_text(const AnyView& v, std::int64_t i, const std::string& spec) {
  const DType dtype = v.dtype();
  if (dtype == DType::pred) return formatted(spec, real_at(dtype, v.data(), i) != 0);
  if (is_integer(dtype)) {
    if (dtype != DType::u64 && dtype != DType::s64)
      return formatted(spec, static_cast<std::int64_t>(real_at(dtype, v.data(), i)));
    std::uint64_t bits;
    std::memcpy(&bits, v.data() + i * 8, 8);
    return dtype == DType::u64 ? formatted(spec, bits)
                               : formatted(spec, static_cast<std::int64_t>(bits));
  }
  const auto [re, im] = complex_at(dtype, v.data(), i);
  if (!is_complex(dtype)) return real_text(dtype, re, spec);
  const std::string imaginary = real_text(dtype, im, spec);
  return real_text(dtype, re, spec) + (imaginary[0] == '-' || imaginary[0] == '+' ? "" : "+") +
         imaginary + "i";
}

/// Which indices of an axis are written; -1 stands for the dots.
std::vector<std::int64_t> shown_indices(std::int64_t extent, bool summarised, int edge) {
  std::vector<std::int64_t> out;
  const bool cut = summarised && extent > 2 * edge;
  for (std::int64_t i = 0; i < extent; ++i) {
    if (cut && i == edge) {
      out.push_back(-1);
      i = extent - edge;
    }
    out.push_back(i);
  }
  return out;
}

class ArrayWriter {
 public:
  ArrayWriter(const AnyView& view, const std::string& spec, const TextStyle& style)
      : view_(view), style_(style), spec_(spec) {
    for (const std::int64_t d : view.dims())
      indices_.push_back(shown_indices(d, view.size() > style.threshold, style.edge_items));
    if (spec.empty() && (is_float(view.dtype()) || is_complex(view.dtype()))) choose_spec();
    visit(0, 0,
          [&](std::int64_t i) { width_ = std::max(width_, element_text(view_, i, spec_).size()); });
  }

  std::string write() {
    write_axis(0, 0);
    return std::move(out_);
  }

 private:
  template <class F>
  void visit(std::size_t axis, std::int64_t at, const F& f) const {
    if (axis == indices_.size()) return f(at);
    for (const std::int64_t i : indices_[axis])
      if (i >= 0) visit(axis + 1, at * view_.dims()[axis] + i, f);
  }

  /// NumPy's choice between fixed and scientific, when digits are asked for.
  void choose_spec() {
    if (style_.precision < 0 && !style_.suppress) return;
    double most = 0, least = INFINITY;
    visit(0, 0, [&](std::int64_t i) {
      const auto [re, im] = complex_at(view_.dtype(), view_.data(), i);
      for (const double x : {std::abs(re), std::abs(im)}) {
        if (!std::isfinite(x) || x == 0) continue;
        most = std::max(most, x);
        least = std::min(least, x);
      }
    });
    const bool scientific =
        !style_.suppress && most > 0 && (most >= 1e8 || least < 1e-4 || most / least > 1000);
    spec_ =
        fmt::format(".{}{}", style_.precision < 0 ? 8 : style_.precision, scientific ? 'e' : 'f');
  }

  void write_axis(std::size_t axis, std::int64_t at) {
    if (axis == indices_.size()) {
      out_ += fmt::format("{:>{}}", element_text(view_, at, spec_), width_);
      return;
    }
    const std::size_t inner = indices_.size() - axis - 1;
    out_ += '[';
    bool first = true;
    for (const std::int64_t i : indices_[axis]) {
      if (!first) out_ += inner == 0 ? " " : std::string(inner, '\n') + std::string(axis + 1, ' ');
      first = false;
      if (i < 0)
        out_ += "...";
      else
        write_axis(axis + 1, at * view_.dims()[axis] + i);
    }
    out_ += ']';
  }

  const AnyView& view_;
  const TextStyle& style_;
  std::string spec_;
  std::vector<std::vector<std::int64_t>> indices_;
  std::size_t width_ = 0;
  std::string out_;
};

std::string known_text(const PrintNode& node, const std::string& spec) {
  return std::visit([&](const auto& value) { return formatted(spec, value); }, node.known);
}

}  // namespace

std::string text_of(const AnyView& view, const std::string& spec, const TextStyle& style) {
  if (view.rank() == 0) {
    const bool digits = spec.empty() && style.precision >= 0 &&
                        (is_float(view.dtype()) || is_complex(view.dtype()));
    return element_text(view, 0, digits ? fmt::format(".{}f", style.precision) : spec);
  }
  if (view.size() == 0) return style.types ? "[]" : "[] " + to_string(view.type());
  return ArrayWriter(view, spec, style).write();
}

std::string text_of(const PrintNode& node, std::span<const AnyView> leaves, std::size_t& next,
                    const std::string& spec, const TextStyle& style) {
  using Kind = PrintNode::Kind;
  if (node.kind == Kind::text) return known_text(node, spec);
  if (node.kind == Kind::leaf) {
    const AnyView& leaf = leaves[next++];
    const std::string text = text_of(leaf, spec, style);
    return style.types ? to_string(leaf.type()) + (leaf.rank() > 1 ? "\n" : " ") + text : text;
  }
  const std::string_view brackets = node.kind == Kind::tuple  ? "()"
                                    : node.kind == Kind::list ? "[]"
                                                              : "{}";
  std::string out(1, brackets[0]);
  for (std::size_t i = 0; i < node.parts.size(); ++i) {
    if (i) out += ", ";
    if (node.kind == Kind::named) out += node.names[i] + "=";
    out += text_of(node.parts[i], leaves, next, spec, style);
  }
  if (node.parts.empty()) out += ' ';
  return out + brackets[1];
}

}  // namespace postern::host
