// Writing a text without the names that it gives to types, attributes and bytes.
#include "text_aliases.h"

#include <algorithm>
#include <map>

#include "mlir_text.h"

namespace postern::internal::imported {

namespace {

constexpr std::string_view resource = "dense_resource<", trailer = "{-#", is_location = "loc(";

class Expansion {
 public:
  Expansion(std::string_view text, const std::string& name)
      : text_(text, name), end_(std::min(text.rfind(trailer), text.size())) {}

  std::string write() {
    if (end_ < text_.text().size()) read_resources();
    std::string out = expanded(0, end_);
    out.append(lines(end_, text_.text().size()), '\n');
    return out;
  }

 private:
  std::size_t lines(std::size_t from, std::size_t to) const {
    return static_cast<std::size_t>(std::ranges::count(text_.part(from, to), '\n'));
  }

  /// name: "0x...", of which the first four bytes are an alignment.
  void read_resources() {
    for (std::size_t i = end_; i < text_.text().size();) {
      if (text_.at(i) != '"') {
        const std::size_t to = text_.word_end(i);
        if (to > i && text_.at(text_.skip_space(to)) == ':') name_ = text_.part(i, to);
        i = std::max(to, i + 1);
        continue;
      }
      const std::size_t to = text_.string_end(i);
      const std::string_view bytes = text_.part(i + 1, to - 1);
      if (bytes.starts_with("0x") && bytes.size() >= 10) resources_[name_] = bytes.substr(10);
      if (text_.at(text_.skip_space(to)) == ':') name_ = bytes;
      i = to;
    }
  }

  std::string expanded(std::size_t from, std::size_t to) {
    std::string out;
    bool begins = true;  // a line
    for (std::size_t i = from, next = i; i < to; i = next) {
      const char c = text_.at(i);
      next = i + 1;
      if (c == '"') {
        next = text_.string_end(i);
      } else if (c == '/') {
        next = std::max(text_.comment_end(i), next);
      } else if (c == '!' || c == '#') {
        next = text_.word_end(next);
        if (begins && define(i, next, out)) continue;
        if (const auto found = aliases_.find(text_.part(i, next)); found != aliases_.end()) {
          append(out, i, found->second);
          continue;
        }
      } else if (MlirText::is_word(c)) {
        next = text_.word_end(i);
        if (text_.text().substr(i).starts_with(resource)) {
          next = text_.bracket_end(next);
          append(out, i, bytes_of(i, text_.part(i + resource.size(), next - 1)));
          continue;
        }
      }
      begins = c == '\n' || (begins && c == ' ');
      append(out, i, text_.part(i, next));
    }
    return out;
  }

  void append(std::string& out, std::size_t at, std::string_view part) const {
    const std::size_t most = 64 * text_.text().size() + (1 << 20);
    if (out.size() + part.size() > most)
      text_.refuse(at, "its names stand for more text than a file of its size can have",
                   ErrorCode::resource_exhausted);
    out += part;
  }

  /// `!t = ...` from i on. Locations, of which there may be very many, stay.
  bool define(std::size_t i, std::size_t& next, std::string& out) {
    const std::size_t equal = text_.skip_space(next);
    if (text_.at(equal) != '=') return false;
    const std::size_t value = text_.skip_space(equal + 1),
                      to = text_.find_outside(value, "\n", end_);
    if (text_.text().substr(value).starts_with(is_location)) return false;
    std::string all = expanded(value, to);
    std::ranges::replace(all, '\n', ' ');
    aliases_[text_.part(i, next)] = std::move(all);
    out.append(lines(i, to), '\n');
    next = to;
    return true;
  }

  std::string bytes_of(std::size_t at, std::string_view name) const {
    if (name.starts_with("\"")) name = name.substr(1, name.size() - 2);
    const auto found = resources_.find(name);
    if (found == resources_.end())
      text_.refuse(at, fmt::format("the bytes of dense_resource '{}' are not in the file", name));
    return fmt::format("dense<\"0x{}\">", found->second);
  }

  const MlirText text_;
  const std::size_t end_;  // of the operations
  std::string_view name_;  // of the resource that is read
  std::map<std::string_view, std::string> aliases_;
  std::map<std::string_view, std::string_view> resources_;
};

bool has_aliases(std::string_view text) {
  if (text.find(resource) != text.npos || text.starts_with("!") || text.starts_with("#"))
    return true;
  if (text.find("\n!") != text.npos) return true;
  for (std::size_t i = 0; (i = text.find("\n#", i)) != text.npos; ++i)
    if (!text.substr(i).starts_with("\n#loc")) return true;
  return false;
}

}  // namespace

std::string without_aliases(std::string_view text, const std::string& name) {
  if (!has_aliases(text)) return {};
  return Expansion(text, name).write();
}

}  // namespace postern::internal::imported
