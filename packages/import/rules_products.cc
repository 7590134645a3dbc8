// What products, reductions, windows and transforms are here.
#include <postern/conv.h>
#include <postern/reduce.h>
#include <postern/signal.h>

#include <algorithm>

#include "interpreter.h"
#include "rules.h"

namespace postern::internal::imported {

namespace {

// --- reductions ---

/// The operation of two elements that a reduction is of, by what its body holds.
std::string_view combines(const Step& s) {
  if (s.node.regions.empty()) return bare_name(s.node.word);
  return s.only_operation(0);
}

Tensor combined(std::string_view name, const Tensor& a, const Tensor& b) {
  const bool truth = a.dtype() == DType::pred;
  if (name == "add") return truth ? logical_or(a, b) : add(a, b);
  if (name == "multiply") return truth ? logical_and(a, b) : multiply(a, b);
  if (name == "maximum") return maximum(a, b);
  if (name == "minimum") return minimum(a, b);
  if (name == "and") return logical_and(a, b);
  if (name == "or") return logical_or(a, b);
  if (name == "xor") return logical_xor(a, b);
  return {};
}

/// Whether combining with it changes nothing.
bool is_neutral(const Tensor& initial, std::string_view name) {
  if (!is_known(initial) || is_complex(initial.dtype())) return false;
  const AtOnce now;
  const double value = convert<double>(initial).to_vector<double>().at(0);
  if (name == "add") return value == 0 && !std::signbit(value);
  if (name == "multiply") return value == 1;
  if (!is_float(initial.dtype())) return false;
  const double infinite = std::numeric_limits<double>::infinity();
  return (name == "maximum" && value == -infinite) || (name == "minimum" && value == infinite);
}

/// A reduction that has a function of its own here, of which the derivative is known.
Tensor simple_reduction(std::string_view name, const Tensor& x, const Tensor& initial,
                        const Dims& axes) {
  // Narrow floats would be summed as wider ones.
  const bool narrow = is_float(x.dtype()) && byte_width(x.dtype()) < 4;
  if ((name == "add" || name == "multiply") && (narrow || x.dtype() == DType::pred)) return {};
  const ReduceOptions over{.axes = axes};
  Tensor y;
  if (name == "add") y = sum(x, over);
  if (name == "multiply") y = prod(x, over);
  if (name == "maximum") y = max(x, over);
  if (name == "minimum") y = min(x, over);
  if (!y.has_value() || y.dtype() != x.dtype()) return {};
  if (is_neutral(initial, name)) return y;
  return combined(name, initial, y);
}

/// Where the largest or smallest element is: the bodies that JAX writes of an element's pair with
/// its index, which an iota is.
Values extreme(const Step& s, const Tensor& x, const std::string& index, const Values& initial,
               const Dims& axes) {
  if (s.node.regions.empty() || axes.size() != 1) return {};
  const Node* const places = s.frame.maker(index);
  if (!places || places->name != "iota") return {};
  const Step iota{s.frame, *places, s.x};
  if (iota.integer({"dim", "iota_dimension"}) != axes[0]) return {};
  const NodeRegion& body = s.module().region(s.node.regions[0]);
  std::string names;
  for (const Node& node : body.nodes) names += fmt::format("{} ", node.name);
  if (names != "compare compare or compare compare and or select select return " ||
      body.arguments.size() != 4)
    return {};
  const std::vector<Node>& nodes = body.nodes;
  const auto &a = body.arguments[0], &i = body.arguments[1], &b = body.arguments[2],
             &j = body.arguments[3];
  const auto takes = [&](std::size_t n, const std::vector<std::string>& operands) {
    return nodes[n].operands == operands;
  };
  const auto made = [&](std::size_t n) { return nodes[n].results.at(0); };
  const bool as_jax_writes_it =
      takes(0, {a, b}) && takes(1, {a, a}) && nodes[1].direction() == "NE" &&
      takes(2, {made(0), made(1)}) && takes(3, {a, b}) && nodes[3].direction() == "EQ" &&
      takes(4, {i, j}) && nodes[4].direction() == "LT" && takes(5, {made(3), made(4)}) &&
      takes(6, {made(2), made(5)}) && takes(7, {made(2), a, b}) && takes(8, {made(6), i, j}) &&
      takes(9, {made(7), made(8)});
  const std::string_view way = nodes[0].direction();
  if (!as_jax_writes_it || (way != "GT" && way != "LT") ||
      !is_neutral(initial[0], way == "GT" ? "maximum" : "minimum") || !is_known(initial[1]) ||
      integers_in(initial[1]) != Dims{0})
    return {};
  const ReduceOptions over{.axes = axes};
  if (way == "GT") return {max(x, over), convert(argmax(x, axes[0]), s.dtype(1))};
  return {min(x, over), convert(argmin(x, axes[0]), s.dtype(1))};
}

/// The short form has each tensor beside its initial value.
bool in_pairs(const Step& s) { return s.module().at(s.node.at) != '"'; }
struct Reduction {
  Values x, initial;
  Dims axes;
};
Reduction reduction_of(const Step& s) {
  const std::size_t n = s.x.size() / 2;
  Reduction out{{}, {}, s.integers({"dimensions"})};
  for (std::size_t i = 0; i < n; ++i) {
    out.x.push_back(s[in_pairs(s) ? 2 * i : i]);
    out.initial.push_back(s[in_pairs(s) ? 2 * i + 1 : n + i]);
  }
  return out;
}
/// What its body makes of scalars, or the operation that stands for one of arrays.
Values combined_by(const Step& s, const Values& both) {
  if (s.node.regions.empty()) return {combined(combines(s), both.at(0), both.at(1))};
  return s.region(0, both);
}
Values reduce_by_body(const Step& s) {
  const auto [x, initial, axes] = reduction_of(s);
  const CombineFunction function = [&](const Values& a, const Values& b) {
    Values both = a;
    both.insert(both.end(), b.begin(), b.end());
    return combined_by(s, both);
  };
  return reduce(function, x, {initial.begin(), initial.end()}, {.axes = axes});
}
Values reduce_by_tree(const Step& s) {
  const auto [x, initial, axes] = reduction_of(s);
  return reduced_by_tree([&s](const Values& both) { return combined_by(s, both); }, x, initial,
                         axes);
}

Values reduce_rule(const Step& s) {
  const auto [x, initial, axes] = reduction_of(s);
  const std::size_t n = x.size();
  const std::string_view name = combines(s);
  if (n == 1 && !name.empty() && x[0].size() > 0)
    if (Tensor y = simple_reduction(name, x[0], initial[0], axes); y.has_value()) return {y};
  if (n == 2)
    if (Values y = extreme(s, x[0], s.node.operands[in_pairs(s) ? 2 : 1], initial, axes);
        !y.empty())
      return y;
  return differentiable(s, reduce_by_body, reduce_by_tree);
}

std::vector<std::pair<std::int64_t, std::int64_t>> pairs(const Dims& numbers) {
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  for (std::size_t i = 0; i + 1 < numbers.size(); i += 2)
    out.emplace_back(numbers[i], numbers[i + 1]);
  return out;
}
bool all_ones(const Dims& numbers) {
  return std::ranges::all_of(numbers, [](std::int64_t n) { return n == 1; });
}

/// Where there is such a reduction here. `name`: of what combines two elements.
Values windows(const Step& s, std::string_view name, const Dims& window, const Dims& base_dilations,
               const Dims& padding, WindowOptions options) {
  const bool narrow = is_float(s[0].dtype()) && byte_width(s[0].dtype()) < 4;
  if (!all_ones(base_dilations) || s[0].dtype() == DType::pred || (name == "add" && narrow))
    return {};
  std::optional<Monoid> monoid;
  if (name == "add") monoid = Monoid::add;
  if (name == "multiply") monoid = Monoid::multiply;
  if (name == "maximum") monoid = Monoid::max;
  if (name == "minimum") monoid = Monoid::min;
  if (!monoid || !is_neutral(s[1], name)) return {};
  auto by_axis = pairs(padding);
  by_axis.resize(window.size());
  options.padding = by_axis;
  return {reduce_window(*monoid, s[0], window, options)};
}
Values reduce_window_rule(const Step& s) {
  Values known;
  if (s.x.size() == 2)
    known = windows(s, combines(s), s.integers({"window_dimensions"}),
                    s.integers({"base_dilations"}), s.integers({"padding"}),
                    {.strides = s.integers({"window_strides"}),
                     .window_dilation = s.integers({"window_dilations"})});
  if (!known.empty()) return known;
  return differentiable(
      s, [](const Step& step) { return as_written(step); }, windows_by_tree);
}
/// A custom call: operand, initial value, window, strides, dilations, padding.
Values dynamic_reduce_window_rule(const Step& s) {
  std::string_view body = s.node.attribute("called_computations");
  if (s.x.size() != 7 || !body.starts_with("[@") ||
      !std::all_of(s.x.begin() + 2, s.x.end(), is_known))
    return {};
  body = body.substr(2, body.size() - 3);
  if (body.starts_with("\"")) body = body.substr(1, body.size() - 2);
  const auto at = [&](std::size_t i) { return integers_in(s[i]); };
  return windows(s, Step::only_operation(s.module().function(body)), at(2), at(4), at(6),
                 {.strides = at(3), .window_dilation = at(5)});
}

// --- products ---

/// `[0] x [1]` of the short form.
std::pair<Dims, Dims> both_sides(std::string_view text) {
  const std::size_t x = text.find(" x ");
  if (x == text.npos) return {};
  return {integers_of(text.substr(0, x)), integers_of(text.substr(x + 3))};
}

/// XLA rounds where no operand asks for the highest.
Precision precision_of(const Step& s) {
  const std::string_view text = s.node.attribute({"precision", "precision_config"});
  return text.find("HIGHEST") == text.npos ? Precision::usual : Precision::highest;
}

Values dot_general_rule(const Step& s) {
  DotAxes axes{s.part("lhs_contracting_dimensions"), s.part("rhs_contracting_dimensions"),
               s.part("lhs_batching_dimensions"), s.part("rhs_batching_dimensions")};
  if (const std::string_view short_form = s.node.attribute("contracting_dims"); !short_form.empty())
    std::tie(axes.contract_x, axes.contract_y) = both_sides(short_form);
  if (const std::string_view short_form = s.node.attribute("batching_dims"); !short_form.empty())
    std::tie(axes.batch_x, axes.batch_y) = both_sides(short_form);
  if (s.node.name == "dot") axes = {{s[0].rank() - 1}, {0}, {}, {}};
  if (!s.node.attribute({"algorithm", "accumulation_type"}).empty()) return {};
  const DType to = s.dtype();
  if (byte_width(to) < byte_width(s[0].dtype()))
    return {convert(dot_general(s[0], s[1], axes, precision_of(s)), to)};
  return {dot_general(convert(s[0], to), convert(s[1], to), axes, precision_of(s))};
}

/// "[b, 0, 1, f]" as letters: one for each, of a spatial axis by its number.
std::string letters(std::string_view list, char batch, char feature, std::string_view words) {
  std::string out;
  for (std::size_t i = 1; i < list.size();) {
    const std::size_t end = list.find_first_of(",]", i);
    const std::string_view word = MlirText::trimmed(list.substr(i, end - i));
    if (word.size() != 1) throw TypeError("convolution: its axes can't be read");
    if (word[0] == words[0])
      out += batch;
    else if (word[0] == words[1])
      out += feature;
    else
      out += static_cast<char>('a' + word[0] - '0');
    i = end + 1;
  }
  return out;
}
/// From three attributes.
std::string letters_at(std::int64_t batch, std::int64_t feature, const Dims& space, char first,
                       char second) {
  std::string out(space.size() + 2, ' ');
  out.at(static_cast<std::size_t>(batch)) = first;
  out.at(static_cast<std::size_t>(feature)) = second;
  for (std::size_t i = 0; i < space.size(); ++i)
    out.at(static_cast<std::size_t>(space[i])) = static_cast<char>('a' + i);
  return out;
}
ConvLayout layout_of(const Step& s) {
  std::string_view text = s.node.attribute({"dim_numbers", "dimension_numbers"});
  if (text.starts_with("#stablehlo.conv<[")) text = text.substr(text.find('['));
  if (text.starts_with("[")) {
    const std::size_t x = text.find("]x["), arrow = text.find("]->[");
    return {letters(text.substr(0, x + 1), 'N', 'C', "bf"),
            letters(text.substr(x + 2, arrow - x - 1), 'I', 'O', "io"),
            letters(text.substr(arrow + 3), 'N', 'C', "bf")};
  }
  const auto one = [&](std::string_view key) { return s.part(key).at(0); };
  return {letters_at(one("input_batch_dimension"), one("input_feature_dimension"),
                     s.part("input_spatial_dimensions"), 'N', 'C'),
          letters_at(one("kernel_input_feature_dimension"), one("kernel_output_feature_dimension"),
                     s.part("kernel_spatial_dimensions"), 'I', 'O'),
          letters_at(one("output_batch_dimension"), one("output_feature_dimension"),
                     s.part("output_spatial_dimensions"), 'N', 'C')};
}

Values convolution_rule(const Step& s) {
  const std::string_view window = s.node.attribute("window");
  const auto part = [&](std::string_view key, std::string_view in_short) -> Dims {
    if (!s.node.attribute(key).empty()) return s.integers({key});
    const std::size_t at = window.find(fmt::format("{} = ", in_short));
    if (at == window.npos) return {};
    const std::size_t open = window.find('[', at);
    std::size_t close = open, depth = 0;
    do {
      if (window[close] == '[') ++depth;
      if (window[close] == ']') --depth;
    } while (depth > 0 && ++close < window.size());
    return integers_of(window.substr(open, close - open + 1));
  };
  const Dims reversed = part("window_reversal", "reverse");
  const std::string_view reversal = s.node.attribute("window_reversal");
  if (std::ranges::any_of(reversed, [](std::int64_t n) { return n != 0; }) ||
      reversal.find("true") != reversal.npos || window.find("true") != window.npos)
    return {};
  const ConvLayout layout = layout_of(s);
  ConvOptions options{.strides = part("window_strides", "stride"),
                      .input_dilation = part("lhs_dilation", "lhs_dilate"),
                      .kernel_dilation = part("rhs_dilation", "rhs_dilate"),
                      .groups = s.integer({"feature_group_count"}),
                      .batch_groups = s.integer({"batch_group_count"}),
                      .precision = precision_of(s)};
  auto padding = pairs(part("padding", "pad"));
  padding.resize(layout.x.size() - 2);
  options.padding = padding;
  return {conv_general(s[0], s[1], layout, options)};
}

// --- transforms ---

Values fft_rule(const Step& s) {
  const Dims length = s.integers({"length", "fft_length"});
  const auto axes = static_cast<std::int64_t>(length.size());
  const std::string_view kind = s.node.attribute({"type", "fft_type"});
  if (kind.find("IRFFT") != kind.npos) return {irfft(s[0], axes, length.back())};
  if (kind.find("RFFT") != kind.npos) return {rfft(s[0], axes)};
  if (kind.find("IFFT") != kind.npos) return {ifft(s[0], axes)};
  return {fft(s[0], axes)};
}

}  // namespace

const Rules& product_rules() {
  static const Rules* const rules = new Rules{
      {"reduce", reduce_rule},   {"reduce_window", reduce_window_rule},
      {"map", mapped},           {"dot_general", dot_general_rule},
      {"dot", dot_general_rule}, {"convolution", convolution_rule},
      {"fft", fft_rule},         {"stablehlo.dynamic_reduce_window", dynamic_reduce_window_rule},
  };
  return *rules;
}

}  // namespace postern::internal::imported
