// Reading a module's text. The operations, their regions and where each ends come from
// text_operations; here each one's head is taken apart. In front of the types an operation has, in
// either form, operands, `key = value`, dictionaries in braces, a word or a range; what its regions
// take stands in front of them.
#include "module.h"

#include <postern/ops.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "constants.h"
#include "rules.h"

namespace postern::internal::imported {

namespace {

constexpr auto npos = MlirText::npos;

/// Of "%0:2" two names, "%0#0" and "%0#1".
void add_results(std::vector<std::string>& out, std::string_view name) {
  const std::size_t colon = name.find(':');
  if (colon == npos) {
    out.emplace_back(name);
    return;
  }
  int count = 0;
  std::from_chars(name.data() + colon + 1, name.data() + name.size(), count);
  const std::string_view base = name.substr(0, colon);
  for (int i = 0; i < count; ++i) out.push_back(fmt::format("{}#{}", base, i));
}

/// Unquoted, and without the @ of a symbol.
std::string plain(std::string_view value) {
  if (value.starts_with("@")) value.remove_prefix(1);
  if (value.starts_with("\"") && value.size() > 1) return MlirText::unescaped(value);
  return std::string(value);
}

}  // namespace

std::string_view Node::attribute(std::string_view key) const {
  for (const auto& [own_key, value] : attributes)
    if (own_key == key) return value;
  return {};
}
std::string_view Node::attribute(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys)
    if (const std::string_view value = attribute(key); !value.empty()) return value;
  return {};
}

std::string_view Node::direction() const {
  if (!word.empty()) return word;
  std::string_view value =
      attribute("comparison_direction");  // #stablehlo<comparison_direction LT>
  if (value.ends_with(">")) value.remove_suffix(1);
  return value.substr(value.rfind(' ') + 1);
}

std::string_view Node::part(std::string_view key) const {
  if (const std::string_view own = attribute(key); !own.empty()) return own;
  for (const auto& [own_key, value] : attributes) {
    for (std::size_t i = value.find(key); i != npos; i = value.find(key, i + 1)) {
      std::string_view rest = value.substr(i + key.size());
      if (rest.starts_with("\"")) rest.remove_prefix(1);
      if ((i > 0 && MlirText::is_word(value[i - 1])) || !rest.starts_with(" = ")) continue;
      rest.remove_prefix(3);
      const std::size_t open = rest.find_first_of("[,>}");
      if (open != npos && rest[open] == '[') return rest.substr(0, rest.find(']') + 1);
      return rest.substr(0, open);
    }
  }
  return {};
}

Module::Module(std::string text, std::string name, bool has_lines)
    : ModuleStrings{std::move(text), std::move(name)},
      MlirText(whole, called),
      locations_(*this),
      operations_(read_operations(*this, true)) {
  for (std::size_t i = whole.find('\n'); has_lines && i != npos; i = whole.find('\n', i + 1))
    line_ends_.push_back(i);
  regions_.resize(operations_.regions.size());
  std::vector<std::vector<std::size_t>> inside(regions_.size());
  for (std::size_t i = 0; i < operations_.all.size(); ++i)
    inside[operations_.all[i].region].push_back(i);
  for (std::size_t r = 0; r < regions_.size(); ++r) regions_[r].nodes.reserve(inside[r].size());
  std::vector<Node*> nodes(operations_.all.size());
  for (std::size_t i = 0; i < operations_.all.size(); ++i) {
    const TextOperation& op = operations_.all[i];
    Node& node = regions_[op.region].nodes.emplace_back();
    nodes[i] = &node;
    node.name = bare_name(op.name);
    node.number = i;
    node.at = op.at;
  }
  for (std::size_t r = 1; r < regions_.size(); ++r)  // those of dictionaries hold no operation
    if (const TextRegion& region = operations_.regions[r];
        region.owner != npos && region.last != npos)
      nodes[region.owner]->regions.push_back(r);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    read_head(*nodes[i], operations_.all[i]);
    read_arguments(*nodes[i], operations_.all[i]);
    if (nodes[i]->name == "func" && !nodes[i]->regions.empty())
      functions_[nodes[i]->symbol] = nodes[i];
  }
}

Place Module::place(const Node& node) const {
  const auto before = std::ranges::lower_bound(line_ends_, node.at) - line_ends_.begin();
  if (line_ends_.empty()) {  // an artifact's lines are those of the source, where it says them
    const Location at = location(node);
    return at.line ? place_in_file(at.file, at.line) : place_in_file(called, 0);
  }
  return place_in_file(called, static_cast<std::uint32_t>(before + 1));
}

const NodeRegion& Module::function(std::string_view symbol) const {
  const auto found = functions_.find(symbol);
  if (found == functions_.end())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("load: {}: there is no function @{}", called, symbol));
  return regions_[found->second->regions[0]];
}

/// `{key = value, ...}`, between these.
std::size_t Module::read_dict(Node& node, std::size_t open, std::size_t close) const {
  for (const auto& [from, to] : items(Range{open + 1, close - 1})) {
    const std::size_t equal = find_outside(from, "=", to);
    std::string_view value = "unit";
    if (equal != to) value = trimmed(equal + 1, to);
    std::string_view key = trimmed(from, equal);
    if (key.starts_with("\"")) key = key.substr(1, key.size() - 2);
    node.attributes.emplace_back(key, value);
  }
  return close;
}

/// Where the value whose % is at i ends: "%1#0".
std::size_t Module::value_end(std::size_t i) const {
  const std::size_t end = word_end(i + 1);
  return at(end) == '#' ? word_end(end + 1) : end;
}

/// What stands in front of the equals sign, or of a function its name.
void Module::read_results(Node& node, const TextOperation& op) const {
  for (std::size_t i = op.begins; i < op.at; ++i) {
    if (text_[i] != '%') continue;
    std::size_t end = word_end(i + 1);
    if (at(end) == ':') end = word_end(end + 1);
    add_results(node.results, part(i, end));
    i = end;
  }
  if (!op.symbols.empty()) node.symbol = op.symbols[0].name;
}

/// `key = value`, or a word that stands alone. Returns the place behind.
std::size_t Module::read_word(Node& node, std::size_t i, std::size_t limit) const {
  const std::size_t end = word_end(i), equal = skip_space(end);
  if (at(equal) != '=') {
    if (node.word.empty() || node.word == "applies") node.word = part(i, end);
    return end;
  }
  const std::size_t from = skip_space(equal + 1);
  const std::size_t to = at(from) == '{' ? bracket_end(from) : find_outside(from, ",:{", limit);
  node.attributes.emplace_back(part(i, end), trimmed(from, to));
  return to;
}

/// Operands in brackets, `%x init: %c` among them. Returns the place behind.
std::size_t Module::read_bracketed(Node& node, std::size_t open) const {
  const std::size_t close = bracket_end(open);
  if (at(skip_space(open + 1)) == '{') return close;  // regions
  for (std::size_t i = open; i < close;) {
    if (text_[i] == '%') {
      node.operands.emplace_back(part(i, value_end(i)));
      i = value_end(i);
    } else {
      ++i;
    }
  }
  return close;
}

void Module::read_head(Node& node, const TextOperation& op) const {
  read_results(node, op);
  const bool generic = text_[op.at] == '"';
  if (node.name == "func" && !generic) return;
  for (std::size_t i = op.end; i < op.limit;) {
    const char c = text_[i];
    if (c == ':') break;
    if (c == '"') {
      i = string_end(i);
    } else if (c == '%') {
      node.operands.emplace_back(part(i, value_end(i)));
      i = value_end(i);
    } else if (c == '(') {
      i = read_bracketed(node, i);
    } else if (c == '<' && at(i + 1) == '{') {
      read_dict(node, i + 1, bracket_end(i + 1));
      i = bracket_end(i);
    } else if (c == '{') {
      i = read_dict(node, i, bracket_end(i));
    } else if (c == '[') {
      node.range = part(i + 1, bracket_end(i) - 1);
      i = bracket_end(i);
    } else if (is_word(c) && !generic) {
      i = read_word(node, i, op.limit);
    } else {
      i = std::max(comment_end(i), i + 1);
    }
  }
  for (const std::string_view key : {"callee", "call_target_name", "decomposition", "sym_name"})
    if (const std::string_view value = node.attribute(key); !value.empty())
      node.symbol = plain(value);
}

std::vector<std::string> Module::arguments_in(std::size_t open) const {
  std::vector<std::string> out;
  for (const auto& [from, to] : items(open))
    if (const std::size_t i = skip_space(from); at(i) == '%')
      out.emplace_back(part(i, word_end(i + 1)));
  return out;
}

/// What the node's regions take: "^bb0(%a: t)" in them, or in the operation's own form before them.
void Module::read_arguments(const Node& node, const TextOperation& op) {
  for (const std::size_t r : node.regions) {
    const std::size_t first = skip_space(operations_.regions[r].from + 1);
    if (at(first) == '^') {
      const std::size_t open = word_end(first + 1);
      if (at(open) == '(') regions_[r].arguments = arguments_in(open);
    } else if (node.name == "func" && at(skip_space(op.end)) != '(' && !op.symbols.empty()) {
      regions_[r].arguments = arguments_in(expect(op.symbols[0].end, "(") - 1);
    } else if (node.name == "while" && text_[op.at] != '"') {
      for (std::size_t i = 0; i < node.operands.size(); i += 2)
        regions_[r].arguments.push_back(node.operands[i]);
    } else if (node.name == "reduce" && text_[op.at] != '"') {
      std::vector<std::string> left, right;
      std::size_t i = part(op.end, operations_.regions[r].from).rfind("reducer");
      if (i == npos) continue;
      for (i = skip_space(op.end + i + 7); at(i) == '('; i = skip_space(bracket_end(i))) {
        const std::vector<std::string> pair = arguments_in(i);
        if (pair.size() != 2) refuse(i, "a reducer takes pairs");
        left.push_back(pair[0]);
        right.push_back(pair[1]);
      }
      left.insert(left.end(), right.begin(), right.end());
      regions_[r].arguments = std::move(left);
    }
  }
}

std::vector<std::string_view> Module::result_types(const Node& node) const {
  TextSignature signature = signature_of(*this, operations_.all[node.number]);
  // The short form of a select, `: tensor<i1>, tensor<f32>`, begins with the condition's type.
  if (const std::size_t comma = skip_space(signature.end);
      node.name == "select" && text_[node.at] != '"' && at(comma) == ',') {
    std::size_t end = 0;
    return {type(types(comma + 1, end).at(0))};
  }
  return std::move(signature.results);
}
std::vector<std::string_view> Module::operand_types(const Node& node) const {
  return signature_of(*this, operations_.all[node.number]).operands;
}

std::string_view Module::text_of(const Node& node) const {
  return trimmed(operations_.all[node.number].at, operations_.all[node.number].limit);
}

std::vector<std::string> Module::uses(const Node& node) const {
  const std::string_view text = text_of(node);
  std::set<std::string, std::less<>> own;
  const TextOperation& op = operations_.all[node.number];
  const auto inside = [&](const auto& self, const Node& n) -> void {
    for (const std::size_t r : n.regions) {
      own.insert(regions_[r].arguments.begin(), regions_[r].arguments.end());
      for (const Node& inner : regions_[r].nodes) {
        for (const std::string& name : inner.results) own.insert(name);
        self(self, inner);
      }
    }
  };
  inside(inside, node);
  std::vector<std::string> out;
  const std::size_t base = op.at;
  for (std::size_t i = base; i < base + text.size();) {
    if (text_[i] == '"') {
      i = string_end(i);
    } else if (text_[i] == '%') {
      std::size_t end = word_end(i + 1);
      if (at(end) == '#') end = word_end(end + 1);
      std::string name(part(i, end));
      if (!own.contains(name) && std::ranges::find(out, name) == out.end())
        out.push_back(std::move(name));
      i = end;
    } else {
      i = std::max(comment_end(i), i + 1);
    }
  }
  return out;
}

std::string Module::functions_named(std::string& text, std::string_view prefix) const {
  std::string out;
  std::set<std::string, std::less<>> there;
  const auto rename = [&](std::string& in, const auto& self) -> void {
    for (std::size_t i = in.find('@'); i != npos; i = in.find('@', i + 1)) {
      const bool quoted = i + 1 < in.size() && in[i + 1] == '"';
      const std::size_t from = i + 1 + quoted;
      std::size_t to = from;
      while (to < in.size() && (quoted ? in[to] != '"' : is_word(in[to]))) ++to;
      const auto found = functions_.find(in.substr(from, to - from));
      if (found == functions_.end()) continue;
      in.insert(from, prefix);
      if (!there.insert(found->first).second) continue;
      std::string function(text_of(*found->second));
      if (const std::size_t name = function.find(fmt::format("sym_name = \"{}\"", found->first));
          name != npos)
        function.insert(name + 12, prefix);
      self(function, self);
      out += function + "\n";
    }
  };
  rename(text, rename);
  return out;
}

Dims integers_in(const Tensor& x) {
  const AtOnce now;
  const std::vector<std::int64_t> out = convert<std::int64_t>(x).to_vector<std::int64_t>();
  return {out.begin(), out.end()};
}

Dims integers_of(std::string_view text) {
  const auto read = [](std::string_view part) {
    Dims out;
    for (std::size_t i = 0; i < part.size();) {
      std::int64_t n = 0;
      const auto [end, error] = std::from_chars(part.data() + i, part.data() + part.size(), n);
      if (error == std::errc()) {
        out.push_back(n);
        i = static_cast<std::size_t>(end - part.data());
      } else {
        ++i;
      }
    }
    return out;
  };
  if (text.starts_with("array<")) {
    const std::size_t colon = text.find(':');
    if (colon == npos) return {};
    return read(text.substr(colon));
  }
  if (text.starts_with("dense<")) {
    const std::size_t type = text.rfind("tensor<");
    if (type == npos) return {};
    const Type whole = mlir_type(MlirText::trimmed(text.substr(type)));
    const Dims numbers = integers_in(constant_of(text, whole));
    constexpr std::int64_t most = 1 << 16;
    if (numbers.size() != 1 || whole.size() > most) return numbers;
    return Dims(static_cast<std::size_t>(whole.size()), numbers[0]);
  }
  if (text.starts_with("[")) return read(text);
  return read(text.substr(0, text.find(':')));
}

}  // namespace postern::internal::imported
