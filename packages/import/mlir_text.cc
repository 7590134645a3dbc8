// Finding one's way in MLIR's text, and @main without tokens.
#include "mlir_text.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace postern::internal::imported {

namespace {
constexpr std::string_view spaces = " \t\r\n";
bool is_space(char c) { return spaces.find(c) != std::string_view::npos; }
}  // namespace

void MlirText::refuse(std::size_t at, const std::string& why, ErrorCode code) const {
  throw Error(code, fmt::format("load: {}:{}: {}", name_, line_of(at), why));
}

std::uint32_t MlirText::line_of(std::size_t at) const {
  return static_cast<std::uint32_t>(1 + std::ranges::count(text_.substr(0, at), '\n'));
}

std::size_t MlirText::skip_space(std::size_t i) const {
  for (std::size_t from = npos; from != i;) {
    from = i;
    while (i < text_.size() && is_space(text_[i])) ++i;
    i = comment_end(i);
  }
  return i;
}

std::size_t MlirText::comment_end(std::size_t i) const {
  if (!text_.substr(std::min(i, text_.size())).starts_with("//")) return i;
  return std::min(text_.find('\n', i), text_.size());
}

bool MlirText::is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) ||
         (c != '\0' && std::string_view("_$.-").find(c) != npos);
}

std::size_t MlirText::word_end(std::size_t i) const {
  while (is_word(at(i))) ++i;
  return i;
}

MlirText::Symbol MlirText::symbol(std::size_t i) const {
  ++i;
  if (at(i) != '"') return {std::string(part(i, word_end(i))), word_end(i)};
  const std::size_t end = string_end(i);
  return {unescaped(part(i, end)), end};
}

std::size_t MlirText::expect(std::size_t i, std::string_view word) const {
  i = skip_space(i);
  if (!text_.substr(i).starts_with(word))
    refuse(i, fmt::format("'{}' was expected, '{}' is there", word, text_.substr(i, 20)));
  return i + word.size();
}

std::size_t MlirText::string_end(std::size_t i) const {
  for (std::size_t k = i + 1; k < text_.size(); ++k) {
    if (text_[k] == '"') return k + 1;
    if (text_[k] == '\\') ++k;
  }
  refuse(i, "a string has no end");
}

std::string MlirText::unescaped(std::string_view quoted) {
  const std::string_view in = quoted.substr(1, quoted.size() - 2);
  std::string out;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i] != '\\' || i + 1 == in.size()) {
      out += in[i];
      continue;
    }
    int code = 0;
    const char next = in[++i];
    if (const auto [at, error] =
            std::from_chars(&in[i], in.data() + std::min(i + 2, in.size()), code, 16);
        error == std::errc() && at == &in[i] + 2) {
      out += static_cast<char>(code);
      ++i;
    } else if (next == 'n') {
      out += '\n';
    } else if (next == 't') {
      out += '\t';
    } else {
      out += next;
    }
  }
  return out;
}

std::size_t MlirText::find_outside(std::size_t i, std::string_view stops, std::size_t end) const {
  int depth = 0;
  while (i < end) {
    const char c = text_[i];
    if (depth == 0 && stops.find(c) != npos) return i;
    if (c == '"') {
      i = string_end(i);
      continue;
    }
    if (const std::size_t behind = comment_end(i); behind != i) {
      i = behind;
      continue;
    }
    if (c == '-' && at(i + 1) == '>')
      ++i;
    else if (c == '(' || c == '[' || c == '{' || c == '<')
      ++depth;
    else if (c == ')' || c == ']' || c == '}' || c == '>')
      --depth;
    if (depth < 0) return i;
    ++i;
  }
  return end;
}

std::size_t MlirText::bracket_end(std::size_t i) const {
  const std::size_t close = find_outside(i + 1, ")]}>", text_.size());
  if (close >= text_.size()) refuse(i, fmt::format("a '{}' is never closed", at(i)));
  return close + 1;
}

std::vector<MlirText::Range> MlirText::items(Range range) const {
  std::vector<Range> out;
  for (std::size_t from = range.first; !trimmed(from, range.second).empty();) {
    const std::size_t to = find_outside(from, ",", range.second);
    out.emplace_back(from, to);
    if (to >= range.second) break;
    from = to + 1;
  }
  return out;
}

std::vector<MlirText::Range> MlirText::types(std::size_t i, std::size_t& end) const {
  i = skip_space(i);
  if (at(i) == '(') {
    end = bracket_end(i);
    return items(i);
  }
  end = i + type_length(text_.substr(i));
  return std::vector<Range>{{i, end}};
}

std::string_view MlirText::type(Range range) const {
  const std::string_view t = trimmed(range.first, range.second);
  return t.substr(0, type_length(t));
}

/// Of "tensor<...>" at the front.
std::size_t MlirText::type_length(std::string_view t) {
  int depth = 0;
  for (std::size_t i = 0; i < t.size(); ++i) {
    if (t[i] == '<') ++depth;
    if (t[i] == '>' && --depth == 0) return i + 1;
    if (depth == 0 && std::string_view(" \t\r\n,){").find(t[i]) != npos) return i;
  }
  return t.size();
}

std::string_view MlirText::trimmed(std::string_view part) {
  while (!part.empty() && is_space(part.front())) part.remove_prefix(1);
  while (!part.empty() && is_space(part.back())) part.remove_suffix(1);
  return part;
}

namespace {

void append_item(std::string& list, std::string_view item) {
  if (!list.empty()) list += ", ";
  list += item;
}

/// What an argument would say of being taken away, while whoever runs the program keeps his
/// tensors, and an argument or a result of where its elements lie, while ours are row-major.
constexpr std::string_view not_kept[] = {"tf.aliasing_output", "jax.buffer_donor",
                                         "mhlo.layout_mode"};

/// An argument or a result of @main, or a value or a type, as it is for us.
std::string kept(const MlirText& text, MlirText::Range item) {
  const auto& [from, to] = item;
  const std::size_t open = text.find_outside(from, "{", to);
  if (open == to) return std::string(text.trimmed(from, to));
  std::string attributes;
  for (const auto& [begin, end] : text.items(open)) {
    const std::string_view said = text.trimmed(begin, end);
    const auto begins = [&](std::string_view name) { return said.starts_with(name); };
    if (std::ranges::none_of(not_kept, begins)) append_item(attributes, said);
  }
  return fmt::format("{}{{{}}}{}", text.part(from, open), attributes,
                     text.part(text.bracket_end(open), to));
}

/// The list without those of its items that are of no use.
std::string without(const MlirText& text, const std::vector<MlirText::Range>& items,
                    const std::vector<bool>& dropped) {
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (!dropped[i]) append_item(out, kept(text, items[i]));
  return out;
}

/// The text in quotes that follows on these words; "" where they are not there.
std::string quoted_after(std::string_view where, std::string_view words) {
  const std::size_t at = where.find(words);
  if (at == where.npos) return "";
  const std::size_t from = at + words.size();
  std::size_t to = from;
  while (to < where.size() && where[to] != '"') to += where[to] == '\\' ? 2 : 1;
  return MlirText::unescaped(fmt::format("\"{}\"", where.substr(from, to - from)));
}

constexpr std::string_view info_of_argument = "jax.arg_info = \"",
                           info_of_result = "jax.result_info = \"", location = "loc(\"";

/// Whether a location is a name alone, `loc("x")`.
bool is_name(std::string_view all) {
  const std::size_t at = all.find(location);
  return at != all.npos && all.find("\")", at + location.size()) != all.npos &&
         all.find("\":", at) == all.npos && all.find("\"(", at) == all.npos;
}

/// What JAX says of it, its location where that is a name, `loc("x")` or a `#loc1` of that kind, or
/// its own name if somebody chose it.
std::string name_of_argument(const MlirText& text, MlirText::Range argument) {
  const std::string_view all = text.part(argument.first, argument.second);
  if (std::string name = quoted_after(all, info_of_argument); !name.empty()) return name;
  if (is_name(all)) return quoted_after(all, location);
  constexpr std::string_view alias = "loc(";
  if (const std::size_t at = all.find("loc(#"); at != all.npos) {
    const std::string_view label =
        all.substr(at + alias.size(), all.find(')', at) - at - alias.size());
    const std::size_t defined = text.text().find(fmt::format("\n{} = loc(", label));
    if (defined != MlirText::npos) {
      const std::string_view line =
          text.text().substr(defined + 1, text.text().find('\n', defined + 1) - defined - 1);
      if (is_name(line)) return quoted_after(line, location);
    }
  }
  const std::size_t begin = all.find('%') + 1;
  const std::string_view name = MlirText::trimmed(all.substr(begin, all.find(':') - begin));
  constexpr std::string_view digits = "0123456789", made = "arg";
  const std::string_view number = name.starts_with(made) ? name.substr(made.size()) : name;
  if (number.find_first_not_of(digits) == number.npos) return "";
  return std::string(name);
}

/// `return %a, %b : types`, the last operation of the function: without those values.
Edit without_values(const MlirText& text, std::size_t body, std::size_t end,
                    const std::vector<bool>& dropped) {
  const std::size_t word = text.text().substr(0, end).rfind("return ");
  if (word == MlirText::npos || word < body) text.refuse(body, "@main does not return its results");
  const std::size_t line_end = std::min(text.text().find('\n', word), end - 1), values = word + 7;
  const std::size_t colon = text.find_outside(values, ":", line_end);
  const auto names = text.items({values, colon});
  const auto types = text.items({std::min(colon + 1, line_end), line_end});
  if (names.size() != dropped.size() || types.size() != dropped.size())
    text.refuse(word, "@main does not return its results");
  std::string returned = without(text, names, dropped);
  if (!returned.empty()) returned += " : " + without(text, types, dropped);
  return {values, line_end, returned};
}

/// Adds what @main takes, whose list opens there, and returns what makes its tokens.
std::string read_arguments(const MlirText& text, std::size_t open, MainText& out) {
  std::string tokens, arguments;
  for (const auto& [from, to] : text.items(open)) {
    const auto colon = text.find_outside(from, ":", to);
    if (colon == to) text.refuse(from, "an argument of @main has no type");
    const std::string_view type = text.type({colon + 1, to});
    if (const std::string_view about = text.part(colon, to);
        about.find("jax.global_constant") != about.npos)
      text.refuse(
          from,
          "it was exported for several platforms or for shapes that are not fixed; load what "
          "serialize() of the exported function writes, or export it for one",
          ErrorCode::unimplemented);
    if (type == mlir_token) {
      tokens +=
          fmt::format(" {} = stablehlo.create_token : {} ", text.trimmed(from, colon), mlir_token);
    } else {
      out.inputs.push_back(type);
      out.input_names.push_back(name_of_argument(text, {from, to}));
      append_item(arguments, kept(text, {from, to}));
    }
  }
  out.edits.push_back({open + 1, text.bracket_end(open) - 1, arguments});
  return tokens;
}

}  // namespace

MainText read_main(const MlirText& text, std::size_t open) {
  MainText out;
  open = text.expect(open, "(") - 1;
  const std::string tokens = read_arguments(text, open, out);
  std::size_t end = text.bracket_end(open);

  std::vector<bool> results_dropped;
  std::size_t i = text.skip_space(end);
  if (text.text().substr(i).starts_with("->")) {
    const auto results = text.types(i + 2, end);
    for (const auto& range : results) {
      results_dropped.push_back(text.type(range) == mlir_token);
      if (results_dropped.back()) continue;
      out.outputs.push_back(text.type(range));
      out.output_names.push_back(
          quoted_after(text.part(range.first, range.second), info_of_result));
    }
    const bool have_attributes = text.part(i + 2, end).find('{') != MlirText::npos;
    if (out.outputs.size() < results.size() || have_attributes)
      out.edits.push_back(
          {i + 2, end, fmt::format(" ({})", without(text, results, results_dropped))});
  }
  const bool gives_tokens = out.outputs.size() < results_dropped.size();
  if (tokens.empty() && !gives_tokens) return out;
  i = text.skip_space(end);
  if (text.text().substr(i).starts_with("attributes"))
    i = text.skip_space(text.bracket_end(text.expect(text.expect(i, "attributes"), "{") - 1));
  const std::size_t body = text.expect(i, "{");
  out.edits.push_back({body, body, tokens});
  if (gives_tokens)
    out.edits.push_back(without_values(text, body, text.bracket_end(body - 1), results_dropped));
  return out;
}

}  // namespace postern::internal::imported
