// A module's text as operations with operands, attributes and regions, whichever form each is
// written in: StableHLO's own, or MLIR's generic one.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "location.h"
#include "text_operations.h"

namespace postern::internal::imported {

/// An operation. Texts are parts of the module's.
struct Node {
  std::string_view name;  // without its dialect: "add", "func", "call", "return"
  std::size_t number;     // in the text's operations
  std::size_t at;         // where its name begins
  std::vector<std::string> results, operands;                             // "%0", "%1#1"
  std::vector<std::pair<std::string_view, std::string_view>> attributes;  // from all braces
  std::string_view word;   // LT of `compare LT, %a, %b`; the operation that a reduce applies
  std::string_view range;  // 0:2, 1:3 of `slice %a [0:2, 1:3]`
  std::string symbol;      // of a function; that a call calls; of a custom call
  std::vector<std::size_t> regions;

  /// Returns an attribute as it stands there; empty where there is none.
  std::string_view attribute(std::string_view key) const;
  /// Returns the first of these that there is.
  std::string_view attribute(std::initializer_list<std::string_view> keys) const;
  /// Returns which way a comparison goes: LT.
  std::string_view direction() const;
  /// Returns a part of a struct or dictionary, `key = value` or `"key" = value` within one of its
  /// attributes, or an attribute of its own of that name.
  std::string_view part(std::string_view key) const;
};

struct NodeRegion {
  std::vector<std::string> arguments;
  std::vector<Node> nodes;
};

struct ModuleStrings {
  std::string whole, called;  // the text, and the module's name
};
/// A module that was read. What XLA would not take is not looked for.
class Module : ModuleStrings, public MlirText {
 public:
  /// `has_lines`: whether the text's lines are the file's.
  Module(std::string text, std::string name, bool has_lines);
  Module(const Module&) = delete;

  /// Returns the function's body. Throws Error where there is none.
  const NodeRegion& function(std::string_view symbol) const;
  const NodeRegion& region(std::size_t number) const { return regions_[number]; }
  /// Returns the types that a node's results have, as far as they are written.
  std::vector<std::string_view> result_types(const Node& node) const;
  std::vector<std::string_view> operand_types(const Node& node) const;
  /// Returns an operation from its name to the end, and what it uses that is not its own.
  std::string_view text_of(const Node& node) const;
  std::vector<std::string> uses(const Node& node) const;
  /// Returns the functions that an operation names, and those that they name, as text: with
  /// `prefix` in front of their names. Names in `text` get it too.
  std::string functions_named(std::string& text, std::string_view prefix) const;
  Place place(const Node& node) const;
  Location location(const Node& node) const { return locations_.of(text_of(node)); }
  const std::string& name() const { return called; }

 private:
  std::size_t value_end(std::size_t i) const;
  void read_head(Node& node, const TextOperation& op) const;
  void read_results(Node& node, const TextOperation& op) const;
  std::size_t read_word(Node& node, std::size_t i, std::size_t limit) const;
  std::size_t read_bracketed(Node& node, std::size_t open) const;
  std::size_t read_dict(Node& node, std::size_t open, std::size_t close) const;
  std::vector<std::string> arguments_in(std::size_t open) const;
  void read_arguments(const Node& node, const TextOperation& op);

  const Locations locations_;
  std::vector<std::size_t> line_ends_;  // none where there are no lines
  TextOperations operations_;
  std::vector<NodeRegion> regions_;
  std::map<std::string, const Node*, std::less<>> functions_;
};

/// Returns the integers of `[0, 1]`, `array<i64: 0, 1>`, `dense<[[0, 1]]> : tensor<1x2xi64>`,
/// `dense<0> : tensor<3xi64>`, `3 : i64`, in one row.
Dims integers_of(std::string_view text);

/// Returns those of a tensor that has its values.
Dims integers_in(const Tensor& x);

}  // namespace postern::internal::imported
