// What operations on shapes are here, those with sizes among their operands included.
#include <algorithm>
#include <numeric>

#include "interpreter.h"

namespace postern::internal::imported {

namespace {

/// The numbers that an operand has, which must be known: sizes.
Dims known(const Step& s, std::size_t i) {
  const Tensor& x = s[i];
  if (!is_known(x))
    throw Error(ErrorCode::unimplemented,
                fmt::format("{}: its operand {} is a size that the program computes of its values",
                            s.node.name, i));
  return integers_in(x);
}

/// Axis i of x becomes axis axes[i].
Tensor broadcast_in(const Tensor& x, const Dims& dims, const Dims& axes) {
  if (axes.size() != x.dims().size()) throw TypeError("broadcast_in_dim: axes are missing");
  std::vector<std::int64_t> order(axes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::int64_t i) { return axes[static_cast<std::size_t>(i)]; });
  Dims with_ones(dims.size(), 1);
  for (std::size_t i = 0; i < axes.size(); ++i)
    with_ones.at(static_cast<std::size_t>(axes[i])) = x.dims()[i];
  Tensor y = x;
  if (!std::ranges::is_sorted(order)) y = transpose(y, Dims(order.begin(), order.end()));
  return broadcast_to(reshape(y, with_ones), dims);
}

Values broadcast_rule(const Step& s) {
  return {broadcast_in(s[0], s.result().dims, s.integers({"dims", "broadcast_dimensions"}))};
}
Values dynamic_broadcast_rule(const Step& s) {
  return {broadcast_in(s[0], known(s, 1), s.integers({"dims", "broadcast_dimensions"}))};
}
Values reshape_rule(const Step& s) { return {reshape(s[0], s.result().dims)}; }
Values dynamic_reshape_rule(const Step& s) { return {reshape(s[0], known(s, 1))}; }
Values iota_rule(const Step& s) { return {iota(s.result(), s.integer({"dim", "iota_dimension"}))}; }
Values dynamic_iota_rule(const Step& s) {
  return {iota(make_type(s.dtype(), known(s, 0)), s.integer({"dim", "iota_dimension"}))};
}
Values transpose_rule(const Step& s) {
  return {transpose(s[0], s.integers({"dims", "permutation"}))};
}
Values reverse_rule(const Step& s) { return {reverse(s[0], s.integers({"dims", "dimensions"}))}; }
Values concatenate_rule(const Step& s) {
  return {concatenate(s.x, s.integer({"dim", "dimension"}))};
}

Values pad_rule(const Step& s) {
  return {pad(s[0], s[1], s.integers({"low", "edge_padding_low"}),
              s.integers({"high", "edge_padding_high"}),
              s.integers({"interior", "interior_padding"}))};
}
Values dynamic_pad_rule(const Step& s) {
  return {pad(s[0], s[1], known(s, 2), known(s, 3), known(s, 4))};
}

/// `[0:2, 1:3:2]`, or three attributes.
Values slice_rule(const Step& s) {
  if (!s.node.attribute("start_indices").empty())
    return {slice(s[0], s.integers({"start_indices"}), s.integers({"limit_indices"}),
                  s.integers({"strides"}))};
  Dims start, limit, strides;
  std::string_view rest = s.node.range;
  while (!MlirText::trimmed(rest).empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view one = rest.substr(0, comma);
    const std::size_t first = one.find(':'), second = one.find(':', first + 1);
    const auto number = [](std::string_view text) { return integers_of(text).at(0); };
    start.push_back(number(one.substr(0, first)));
    limit.push_back(number(one.substr(first + 1, second - first - 1)));
    strides.push_back(second == one.npos ? 1 : number(one.substr(second + 1)));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return {slice(s[0], start, limit, strides)};
}
Values real_dynamic_slice_rule(const Step& s) {
  return {slice(s[0], known(s, 1), known(s, 2), known(s, 3))};
}

Values dimension_size_rule(const Step& s) {
  const AtOnce now;
  return {Tensor(static_cast<std::int32_t>(
      s[0].dims().at(static_cast<std::size_t>(s.integer({"dim", "dimension"})))))};
}

}  // namespace

const Rules& shape_rules() {
  static const Rules* const rules = new Rules{
      {"broadcast_in_dim", broadcast_rule},
      {"dynamic_broadcast_in_dim", dynamic_broadcast_rule},
      {"reshape", reshape_rule},
      {"dynamic_reshape", dynamic_reshape_rule},
      {"iota", iota_rule},
      {"dynamic_iota", dynamic_iota_rule},
      {"transpose", transpose_rule},
      {"reverse", reverse_rule},
      {"concatenate", concatenate_rule},
      {"pad", pad_rule},
      {"dynamic_pad", dynamic_pad_rule},
      {"slice", slice_rule},
      {"real_dynamic_slice", real_dynamic_slice_rule},
      {"get_dimension_size", dimension_size_rule},
  };
  return *rules;
}

}  // namespace postern::internal::imported
