// Texts of programs, each value made once.
#include "file/once_each.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/text.h"

namespace postern::internal::file {

namespace {

/// Whether an operation whose result has its operand's type gives just that.
bool moves_nothing(std::string_view line) {
  const std::size_t axes = line.find("axes=[");
  if (line.find(" = reshape[") != line.npos) return true;
  if (line.find(" = broadcast[") == line.npos || axes == line.npos) return false;
  const std::string_view order = line.substr(axes + 6, line.find(']', axes) - axes - 6);
  return std::string_view("0,1,2,3,4,5,6,7").starts_with(order);
}

struct Value {
  std::string name, type;
};
using Values = std::map<std::string, Value, std::less<>>;

/// A line: its text has the new names of operands, and "%" for those of what it makes.
struct Line {
  std::string text;
  std::vector<Value> made, taken;  // those made have their old names
};

Line renamed(std::string_view line, const Values& values) {
  Line out;
  for (std::size_t i = 0; i < line.size();) {
    std::size_t behind = i + 1;
    while (line[i] == '%' && behind < line.size() && is_digit(line[behind])) ++behind;
    const std::string_view word = line.substr(i, behind - i);
    i = behind;
    if (word.size() > 1 && line.substr(behind).starts_with(": ")) {
      const std::string_view type = line.substr(behind, line.find(']', behind) - behind);
      out.made.push_back({std::string(word), std::string(type)});
      out.text += '%';
    } else if (const auto value = values.find(word); value != values.end()) {
      out.taken.push_back(value->second);
      out.text += value->second.name;
    } else {
      out.text += word;
    }
  }
  return out;
}

/// A program of which lines are still to come.
struct Scope {
  Values values;                             // by old names
  std::map<std::string, std::size_t> lines;  // their numbers
  std::string out;
  Line last = {};  // to whose text the programs in it are added
  void end_line() {
    if (last.text.empty()) return;
    const auto [found, is_new] = lines.try_emplace(last.text, lines.size());
    for (std::size_t i = 0; i < last.made.size(); ++i)
      values[last.made[i].name] = {fmt::format("%{}.{}", found->second, i), last.made[i].type};
    if (is_new) out += last.text + "\n";
    last.text.clear();
  }
};

}  // namespace

// Goes through the lines as core/program writes them. A value `%7: f32[2]` gets a new name, that of
// the first line which makes the same: what the line says, with the new names of its operands and
// the programs that stand below it. A line that is there is left out; so is a reshape or broadcast
// of a tensor to its own type, whose value has its operand's name. What has an effect, or makes
// nothing, is told from others by its number. Programs within programs number their own values.
std::string once_each(std::string_view program) {
  std::vector<Scope> scopes(1);  // the innermost last
  while (!program.empty()) {
    const std::size_t end = std::min(program.find('\n'), program.size() - 1);
    std::string_view line = program.substr(0, end);
    line = line.substr(0, line.rfind("  @ "));
    program.remove_prefix(end + 1);
    if (line.ends_with('{'))
      scopes.emplace_back();
    else
      scopes.back().end_line();
    Scope& scope = scopes.back();
    Line now = renamed(line, scope.values);
    const auto& [text, made, taken] = now;
    const bool same_type = made.size() == 1 && taken.size() == 1 && made[0].type == taken[0].type;
    if (same_type && moves_nothing(text)) {
      scope.values[made[0].name] = taken[0];
      continue;
    }
    const bool has_effect = line.find("  !") != line.npos;
    if (made.empty() || has_effect) now.text += fmt::format(" {}", scope.lines.size());
    scope.last = std::move(now);
    const bool ends_program = line == "}" || line.ends_with(" }");
    if (!ends_program || scopes.size() == 1) continue;
    scope.end_line();
    const std::string inner = std::move(scope.out);
    scopes.pop_back();
    scopes.back().last.text += inner;
  }
  scopes[0].end_line();
  return scopes[0].out;
}

}  // namespace postern::internal::file
