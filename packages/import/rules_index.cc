// What operations at indices are here, and sorting.
#include <postern/indexing.h>
#include <postern/sort.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "interpreter.h"

namespace postern::internal::imported {

namespace {

/// StableHLO's starts are not counted from the end.
std::vector<Operand> starts(const Step& s, std::size_t from) {
  std::vector<Operand> out;
  for (std::size_t i = from; i < s.x.size(); ++i)
    out.emplace_back(is_unsigned(s[i].dtype()) ? s[i] : maximum(s[i], 0));
  return out;
}
Values dynamic_slice_rule(const Step& s) {
  return {dynamic_slice(s[0], starts(s, 1), s.integers({"sizes", "slice_sizes"}))};
}
Values dynamic_update_rule(const Step& s) {
  return {dynamic_update_slice(s[0], s[1], starts(s, 2))};
}

/// Index vectors along the last axis.
Tensor vectors_last(const Tensor& indices, std::int64_t axis) {
  if (axis == indices.rank()) return expand_dims(indices, axis);
  if (axis == indices.rank() - 1) return indices;
  return move_axis(indices, axis, indices.rank() - 1);
}

Tensor gathered(const Step& s, const Dims& sizes) {
  const IndexAxes axes{.window = s.part("offset_dims"),
                       .dropped = s.part("collapsed_slice_dims"),
                       .indexed = s.part("start_index_map"),
                       .batch_x = s.part("operand_batching_dims"),
                       .batch_indices = s.part("start_indices_batching_dims")};
  const Dims axis = s.part("index_vector_dim");
  return gather(s[0], vectors_last(s[1], axis.empty() ? 0 : axis[0]), axes, sizes,
                OutOfRange::clip);
}
Values gather_rule(const Step& s) { return {gathered(s, s.integers({"slice_sizes"}))}; }
Values dynamic_gather_rule(const Step& s) {
  if (!is_known(s[2])) return {};
  return {gathered(s, integers_in(s[2]))};
}

std::optional<Update> update_of(const Step& s) {
  const NodeRegion& body = s.module().region(s.node.regions.at(0));
  if (body.nodes.size() == 1 && body.arguments.size() == 2 &&
      body.nodes[0].operands == std::vector{body.arguments[1]})
    return Update::set;
  const std::string_view name = s.only_operation(0);
  const bool truth = s[0].dtype() == DType::pred;
  if (name == "add" && !truth) return Update::add;
  if (name == "multiply" && !truth) return Update::multiply;
  if (name == "minimum") return Update::min;
  if (name == "maximum") return Update::max;
  return {};
}
Values just_written(const Step& s) { return as_written(s); }

Values scatter_rule(const Step& s) {
  std::optional<Update> how;
  if (s.x.size() == 3) how = update_of(s);
  if (!how) return differentiable(s, just_written, scattered_once);
  const ScatterOptions options{.mode = OutOfRange::fill,
                               .unique = s.node.attribute("unique_indices") == "true",
                               .sorted = s.node.attribute("indices_are_sorted") == "true"};
  return {scatter(*how, s[0], scatter_indices(s), s[2], scatter_axes(s), options)};
}

/// Whether the body says that the first operand's elements go up, of integers: `compare LT` of the
/// first two arguments alone.
bool goes_up(const Step& s) {
  const NodeRegion& body = s.module().region(s.node.regions.at(0));
  if (body.nodes.size() != 2 || body.nodes[0].name != "compare" || body.arguments.size() < 2)
    return false;
  const Node& compare = body.nodes[0];
  return compare.direction() == "LT" &&
         compare.operands == std::vector{body.arguments[0], body.arguments[1]} &&
         body.nodes[1].operands == compare.results;
}
/// The number that has that name in a body, which may hold constants from outside.
std::optional<double> number_in(const Step& s, const NodeRegion& body, const std::string& name) {
  const Node* made = s.frame.maker(name);
  for (const Node& node : body.nodes)
    if (node.results == std::vector{name}) made = &node;
  if (!made || made->name != "constant") return {};
  const Values none;
  const Tensor value = elementwise_rules().at("constant")(Step{s.frame, *made, none}).at(0);
  if (value.size() != 1 || !is_known(value)) return {};
  const AtOnce now;
  return convert<double>(value).to_vector<double>().at(0);
}
/// What JAX writes for floats: zeros and nan of both signs are made one, then the total order.
bool goes_up_in_total_order(const Step& s) {
  const NodeRegion& body = s.module().region(s.node.regions.at(0));
  std::vector<const Node*> nodes;
  std::string names;
  for (const Node& node : body.nodes)
    if (node.name != "constant") {
      nodes.push_back(&node);
      names += fmt::format("{} ", node.name);
    }
  if (names != "compare select compare select compare select compare select compare return " ||
      body.arguments.size() < 2)
    return false;
  const auto operand = [&](std::size_t node, std::size_t i) { return nodes[node]->operands.at(i); };
  const auto result = [&](std::size_t node) { return nodes[node]->results.at(0); };
  const auto goes = [&](std::size_t node, std::string_view way, bool total) {
    const bool says = s.module().text_of(*nodes[node]).find("TOTALORDER") != std::string_view::npos;
    return nodes[node]->direction() == way && says == total;
  };
  const auto is_zero = [&](const std::string& name) { return number_in(s, body, name) == 0.0; };
  const auto is_last = [&](const std::string& name) {
    const std::optional<double> number = number_in(s, body, name);
    return number && std::isnan(*number) && !std::signbit(*number);
  };
  const auto made_one = [&](std::size_t first, const std::string& argument) {
    const std::size_t nan = first + 2;
    return goes(first, "EQ", false) && operand(first, 0) == argument &&
           is_zero(operand(first, 1)) && operand(first + 1, 0) == result(first) &&
           is_zero(operand(first + 1, 1)) && operand(first + 1, 2) == argument &&
           goes(nan, "NE", false) && nodes[nan]->operands == std::vector{argument, argument} &&
           operand(nan + 1, 0) == result(nan) && is_last(operand(nan + 1, 1)) &&
           operand(nan + 1, 2) == result(first + 1);
  };
  return goes(8, "LT", true) && made_one(0, body.arguments[0]) && made_one(4, body.arguments[1]) &&
         nodes[9]->operands == nodes[8]->results &&
         nodes[8]->operands == std::vector{result(3), result(7)};
}
Values sort_rule(const Step& s) {
  const bool is_whole = s.x.at(0).dtype() == DType::pred || is_integer(s.x[0].dtype());
  if (is_whole ? !goes_up(s) : !is_float(s.x[0].dtype()) || !goes_up_in_total_order(s))
    return differentiable(s, just_written, sorted_by_places);
  return sort_by(s.x, 1, s.integer({"dimension", "dim"}));
}

Values select_and_scatter_rule(const Step& s) {
  return differentiable(s, just_written, selected_and_scattered);
}

}  // namespace

IndexAxes scatter_axes(const Step& s) {
  return {.window = s.part("update_window_dims"),
          .dropped = s.part("inserted_window_dims"),
          .indexed = s.part("scatter_dims_to_operand_dims"),
          .batch_x = s.part("input_batching_dims"),
          .batch_indices = s.part("scatter_indices_batching_dims")};
}
Tensor scatter_indices(const Step& s) {
  const Dims axis = s.part("index_vector_dim");
  return vectors_last(s[(s.x.size() - 1) / 2], axis.empty() ? 0 : axis[0]);
}

const Rules& index_rules() {
  static const Rules* const rules = new Rules{
      {"dynamic_slice", dynamic_slice_rule},
      {"dynamic_update_slice", dynamic_update_rule},
      {"gather", gather_rule},
      {"dynamic_gather", dynamic_gather_rule},
      {"scatter", scatter_rule},
      {"select_and_scatter", select_and_scatter_rule},
      {"sort", sort_rule},
  };
  return *rules;
}

}  // namespace postern::internal::imported
