// print: formatted lines from inside compiled programs.
#pragma once
#include <postern/detail/api.h>
#include <postern/tap.h>

#include <concepts>
#include <functional>
#include <iosfwd>
#include <map>
#include <string_view>
#include <variant>

namespace postern {

/// A line, for those who want more than its text.
struct PrintRecord {
  std::string text;
  Place place;  // of the print
  int device = 0;
  std::uint64_t run = 0;
};

struct PrintOptions {
  std::ostream* stream = nullptr;  // default: the run's own (RunOptions::sink), else std::cout
  std::string label = {};          // in front of the line
  int precision = -1;  // digits after the point of array elements, at most; -1: 8, as in NumPy
  std::int64_t threshold =
      1000;  // arrays of more elements are summarised: the ends of each axis, dots between
  int edge_items = 3;     // so many at each end
  bool suppress = false;  // no exponents: tiny numbers print as 0
  bool ordered = true;    // false: only whole lines are promised, not their order
  bool one_order =
      false;  // with `ordered`, inside shard_map: over all devices, see CallOptions::one_order
  bool show_device = false;  // in front of a stream's line; always when there are several devices
  int device = -1;           // print on this device only; -1: on all
  int process = -1;          // and on this process only (CallInfo::process); -1: on all
  std::optional<Sharding> partitioned =
      {};  // each device prints its part of the values, spread so, with its index range in front
  std::int64_t every = 1;  // only times 0, every, 2 * every, ...
  std::map<std::string, std::string> header =
      {};           // print_value: a line of "key: value" before the value, sorted
  TapMap map = {};  // print_value: what is printed in place of the value
  std::function<void(const PrintRecord&)> log = {};  // takes the lines in place of a stream
};

/// A format string in fmt's syntax, and where it was written.
class PrintFormat {
 public:
  /// Takes a format, which is read where the line is printed: see print for what is a TypeError
  /// there.
  PrintFormat(const char* text, Place place = Place::current()) : text_(text), place_(place) {}
  PrintFormat(std::string text, Place place = Place::current())
      : text_(std::move(text)), place_(place) {}
  /// Returns them as they were given. They throw nothing.
  const std::string& text() const { return text_; }
  const Place& place() const { return place_; }

 private:
  std::string text_;
  Place place_;
};

namespace detail {

/// A value to print: tensors to come, containers of them, or what is known already.
struct PrintNode {
  enum class Kind : std::uint8_t { leaf, text, tuple, list, named } kind = Kind::leaf;
  std::vector<PrintNode> parts = {};
  std::vector<std::string> names = {};  // of the parts of a map or struct
  std::variant<std::int64_t, std::uint64_t, double, bool, std::string> known = {};
};
struct PrintValue {
  std::string name = {};  // empty: by position
  PrintNode node = {};
};

template <class V>
PrintNode print_node(const V& v, std::vector<Tensor>& leaves) {
  using Kind = PrintNode::Kind;
  PrintNode node;
  auto parts = [&](const auto&... part) { (node.parts.push_back(print_node(part, leaves)), ...); };
  if constexpr (std::is_same_v<V, Tensor>) {
    leaves.push_back(v);
  } else if constexpr (std::is_same_v<V, Type> || std::is_same_v<V, DType>) {
    node = {Kind::text, {}, {}, std::string(to_string(v))};
  } else if constexpr (std::is_convertible_v<V, std::string_view>) {
    node = {Kind::text, {}, {}, std::string(std::string_view(v))};
  } else if constexpr (std::is_same_v<V, bool>) {
    node = {Kind::text, {}, {}, v};
  } else if constexpr (std::is_floating_point_v<V>) {
    node = {Kind::text, {}, {}, static_cast<double>(v)};
  } else if constexpr (std::is_unsigned_v<V>) {
    node = {Kind::text, {}, {}, static_cast<std::uint64_t>(v)};
  } else if constexpr (std::is_integral_v<V> || std::is_enum_v<V>) {
    node = {Kind::text, {}, {}, static_cast<std::int64_t>(v)};
  } else if constexpr (is_tuple<V>::value) {
    node.kind = Kind::tuple;
    std::apply(parts, v);
  } else if constexpr (is_vector<V>::value) {
    node.kind = Kind::list;
    for (const auto& part : v) parts(part);
  } else if constexpr (is_map<V>::value) {
    node.kind = Kind::named;
    for (const auto& [key, part] : v) {
      node.names.push_back(key);
      parts(part);
    }
  } else if constexpr (is_optional<V>::value) {
    if (!v) return {Kind::text, {}, {}, std::string("none")};
    return print_node(*v, leaves);
  } else {
    static_assert(is_aggregate_container<V>,
                  "postern: print takes tensors, containers, numbers and strings");
    node.kind = Kind::named;
    for (std::string_view name : field_names<V>()) node.names.emplace_back(name);
    with_fields(v, parts);
  }
  return node;
}

template <class V>
struct NamedValue {
  const char* name;
  const V& value;
};
struct ArgumentName {
  const char* name;
  template <class V>
  NamedValue<V> operator=(const V& value) const {
    return {name, value};
  }
};
template <class V>
PrintValue print_value_of(const V& v, std::vector<Tensor>& leaves) {
  return {{}, print_node(v, leaves)};
}
template <class V>
PrintValue print_value_of(const NamedValue<V>& v, std::vector<Tensor>& leaves) {
  return {v.name, print_node(v.value, leaves)};
}

POSTERN_API void print(const PrintOptions& options, const PrintFormat& format,
                       std::vector<PrintValue> values, std::vector<Tensor> leaves);
POSTERN_API PrintNode node_of(const Shown& value);  // leaves by their paths
POSTERN_API std::vector<Tensor> print_value(const PrintOptions& options, const Shown& value,
                                            const std::vector<Tensor>& sent, PrintNode node,
                                            Place place);

}  // namespace detail

inline namespace literals {
/// Returns `"loss"_a = x` is a value for the placeholder {loss}. Throws nothing.
constexpr detail::ArgumentName operator""_a(const char* name, std::size_t) { return {name}; }
}  // namespace literals

/// Writes one line each time the program passes here, once for a whole batch under vmap, once under
/// differentiation. Values are tensors, containers of them, and numbers, strings and types that are
/// known while tracing. Placeholders are fmt's: `{}`, `{0}`, `{name}`, `{:.2f}`; on an array the
/// part after the colon formats each element. Throws TypeError, with your line, for a placeholder
/// without value, a value without placeholder, a specification that does not fit, or options out of
/// range.
///
///   auto step = pn::jit([](pn::Tensor x, pn::Tensor loss) {
///     using namespace pn::literals;
///     pn::print("loss {loss:.3f} at {}", x, "loss"_a = loss);
///     return x - loss;
///   });
///   step(pn::tensor<float>({1, 2}), 0.5f);  // prints: loss 0.500 at [1. 2.]
template <class... Values>
void print(const PrintOptions& options, const PrintFormat& format, const Values&... values) {
  std::vector<Tensor> leaves;
  std::vector<detail::PrintValue> shown;
  (shown.push_back(detail::print_value_of(values, leaves)), ...);
  detail::print(options, format, std::move(shown), std::move(leaves));
}
template <class... Values>
void print(const PrintFormat& format, const Values&... values) {
  print(PrintOptions{}, format, values...);
}

/// Prints `value`, a container or a number, with its type, and returns it. Throws TypeError for
/// options out of range.
template <class Value>
auto print_value(const PrintOptions& options, const Value& value, Place place = Place::current()) {
  const auto tree = detail::as_tree(value);
  const detail::Shown shown = detail::shown(tree);
  if (options.map) {
    const detail::Shown mapped = options.map(tree, place);
    return detail::with_leaves(
        tree, detail::print_value(options, shown, mapped.leaves, detail::node_of(mapped), place));
  }
  std::vector<Tensor> leaves;
  detail::PrintNode node = detail::print_node(tree, leaves);
  return detail::with_leaves(tree,
                             detail::print_value(options, shown, leaves, std::move(node), place));
}
template <class Value>
auto print_value(const Value& value, Place place = Place::current()) {
  return print_value(PrintOptions{}, value, place);
}

/// Returns the elements as `print` shows them: numbers alone for rank 0, else as NumPy does. Of the
/// options precision, threshold, edge_items and suppress count; out of range they are a TypeError.
[[nodiscard]] POSTERN_API std::string to_string(const AnyView& array,
                                                const PrintOptions& options = {},
                                                Place place = Place::current());
namespace detail {
POSTERN_API std::string text_of(const Tensor& value, const PrintOptions& options,
                                const Place& place);
}  // namespace detail
/// Returns the same of a tensor, for which it waits. Throws as Tensor::read does: TypeError for one
/// that is traced.
template <std::same_as<Tensor> T>  // not for what becomes one, such as numbers
[[nodiscard]] std::string to_string(const T& value, const PrintOptions& options = {},
                                    Place place = Place::current()) {
  return detail::text_of(value, options, place);
}
/// A tensor as << takes it.
struct Printed {
  /// Takes the place where << stands. Throws nothing.
  template <std::same_as<Tensor> T>
  Printed(const T& v, Place at = Place::current()) : value(v), place(at) {}
  const Tensor& value;
  Place place;
};
/// Writes that text; of a traced tensor its type. Throws the same otherwise.
///
///   std::cout << pn::tensor<float>({1, 2}) * 2.0f << "\n";  // [2. 4.]
POSTERN_API std::ostream& operator<<(std::ostream& out, const Printed& tensor);

}  // namespace postern
