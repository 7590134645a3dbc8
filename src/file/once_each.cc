// Texts of programs, each value made once.
#include "file/once_each.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/text.h"

namespace postern::internal::file {

/// Whether an operation whose result has its operand's type gives just that.
static bool moves_nothing(std::string_view line) {
  const std::size_t axes = line.find("axes=[");
  if (line.find(" = reshape[") != line.npos) return true;
  if (line.find(" = broadcast[") == line.npos || axes == line.npos) return false;
  const std::string_view order = line.substr(axes + 6, line.find(']', axes) - axes - 6);
  return std::string_view("0,1,2,3,4,5,6,7").starts_with(order);
}

// Goes through the lines as core/program writes them. A value `%7: f32[2]` gets a new name, that of
// the first line which makes the same: what the line says, with the new names of its operands and
// the programs that stand below it. A line that is there is left out; so is a reshape or broadcast
// of a tensor to its own type, whose value has its operand's name. What has an effect, or makes
// nothing, is told from others by its number. Programs within programs number their own values.
std::string once_each(std::string_view program) {
  struct Value {
    std::string name, type;
  };
  struct Scope {
    std::map<std::string, Value, std::less<>> values;
    std::map<std::string, std::size_t> lines;  // their numbers
    std::string out;
    // The last line, to which the programs in it are added, and what it makes, with the types.
    std::string text = {};
    std::vector<std::pair<std::string_view, std::string_view>> made = {};
    void end_line() {
      if (text.empty()) return;
      const auto [found, is_new] = lines.try_emplace(text, lines.size());
      for (std::size_t i = 0; i < made.size(); ++i)
        values[std::string(made[i].first)] = {fmt::format("%{}.{}", found->second, i),
                                              std::string(made[i].second)};
      if (is_new) out += text + "\n";
      text.clear();
    }
  };
  std::vector<Scope> scopes(1);
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
    std::vector<std::pair<std::string_view, std::string_view>> made;
    std::vector<Value> taken;
    std::string text;
    for (std::size_t i = 0; i < line.size();) {
      std::size_t behind = i + 1;
      while (line[i] == '%' && behind < line.size() && is_digit(line[behind])) ++behind;
      const std::string_view word = line.substr(i, behind - i);
      i = behind;
      if (word.size() > 1 && line.substr(behind).starts_with(": ")) {
        made.emplace_back(word, line.substr(behind, line.find(']', behind) - behind));
        text += '%';
      } else if (const auto value = scope.values.find(word); value != scope.values.end()) {
        taken.push_back(value->second);
        text += value->second.name;
      } else {
        text += word;
      }
    }
    const bool same_type = made.size() == 1 && taken.size() == 1 && made[0].second == taken[0].type;
    if (same_type && moves_nothing(text)) {
      scope.values[std::string(made[0].first)] = taken[0];
      continue;
    }
    // What has an effect stands for itself.
    if (made.empty() || line.find("  !") != line.npos)
      text += fmt::format(" {}", scope.lines.size());
    scope.text = std::move(text);
    scope.made = std::move(made);
    const bool ends_program = line == "}" || line.ends_with(" }");
    if (!ends_program || scopes.size() == 1) continue;
    scope.end_line();
    const std::string inner = std::move(scope.out);
    scopes.pop_back();
    scopes.back().text += inner;
  }
  scopes[0].end_line();
  return scopes[0].out;
}

}  // namespace postern::internal::file
