// What operations at indices are here, and sorting.
#include <postern/indexing.h>
#include <postern/sort.h>

#include <algorithm>

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
  const auto made_one = [&](std::size_t first, const std::string& argument) {
    return nodes[first]->direction() == "EQ" && nodes[first + 2]->direction() == "NE" &&
           nodes[first]->operands[0] == argument && nodes[first + 1]->operands[2] == argument &&
           nodes[first + 2]->operands == std::vector{argument, argument} &&
           nodes[first + 3]->operands[2] == nodes[first + 1]->results[0];
  };
  const std::string_view text = s.module().text_of(*nodes[8]);
  return nodes[8]->direction() == "LT" && text.find("TOTALORDER") != text.npos &&
         made_one(0, body.arguments[0]) && made_one(4, body.arguments[1]) &&
         nodes[9]->operands == nodes[8]->results &&
         nodes[8]->operands == std::vector{nodes[3]->results[0], nodes[7]->results[0]};
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
