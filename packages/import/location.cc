// Reading locations. Of names in each other the outermost is the operation's, those inside are the
// functions of the source; of calls and of several locations the first is nearest to it.
#include "location.h"

#include <charconv>

namespace postern::internal::imported {

namespace {

constexpr std::string_view opening = "loc(";

std::string_view inside(std::string_view location) {
  return MlirText::trimmed(location.substr(opening.size(), location.size() - opening.size() - 1));
}

}  // namespace

std::string location_text(const Location& location) {
  std::string place;
  if (location.line) place = fmt::format("{}:{}:0", mlir_quoted(location.file), location.line);
  if (!location.name.empty())
    return fmt::format(" loc({}{})", mlir_quoted(location.name),
                       place.empty() ? "" : fmt::format("({})", place));
  return place.empty() ? "" : fmt::format(" loc({})", place);
}

Locations::Locations(const MlirText& text) {
  constexpr std::string_view definition = "#loc";
  const std::string_view all = text.text();
  for (std::size_t i = all.starts_with(definition) ? 0 : all.find("\n#loc"); i != all.npos;
       i = all.find("\n#loc", i + 1)) {
    const std::size_t from = all.find('#', i), to = text.word_end(from + 1),
                      equal = text.skip_space(to);
    if (text.at(equal) != '=') continue;
    const std::size_t value = text.skip_space(equal + 1);
    if (!all.substr(value).starts_with(opening)) continue;
    named_[text.part(from, to)] = text.part(value, text.bracket_end(value + opening.size() - 1));
  }
}

Location Locations::of(std::string_view operation) const {
  const std::string none;
  const MlirText text(operation, none);
  for (std::size_t i = operation.rfind(opening); i != operation.npos && operation.ends_with(")");
       i = i == 0 ? operation.npos : operation.rfind(opening, i - 1))
    if (text.bracket_end(i + opening.size() - 1) == operation.size())
      return read(operation.substr(i));
  return {};
}

Location Locations::read(std::string_view location) const {
  Location out;
  constexpr int most = 100;  // a location may name another, and that the first
  const std::string none;
  std::string_view rest = inside(location);
  bool outermost = true;
  for (int steps = 0; steps < most && !rest.empty(); ++steps) {
    const MlirText text(rest, none);
    if (rest.starts_with("#")) {
      const auto found = named_.find(rest.substr(0, text.word_end(1)));
      if (found == named_.end()) return out;
      rest = inside(found->second);
    } else if (rest.starts_with("callsite(")) {
      rest.remove_prefix(std::string_view("callsite(").size());
      outermost = false;
    } else if (rest.starts_with("fused")) {
      const std::size_t open = text.find_outside(0, "[", rest.size());
      if (open == rest.size()) return out;
      rest.remove_prefix(open + 1);
    } else if (rest.starts_with("\"")) {
      const std::size_t end = text.string_end(0);
      std::string word = MlirText::unescaped(rest.substr(0, end));
      if (text.at(end) == ':') {
        out.file = std::move(word);
        std::from_chars(rest.data() + end + 1, rest.data() + rest.size(), out.line);
        return out;
      }
      if (outermost) out.name = std::move(word);
      outermost = false;
      if (text.at(end) != '(') return out;
      rest.remove_prefix(end + 1);
    } else {
      return out;
    }
  }
  return out;
}

}  // namespace postern::internal::imported
