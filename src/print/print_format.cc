// Format strings: cut at their placeholders, and checked against the values.
#include <algorithm>

#include "core/check.h"
#include "core/lists.h"
#include "core/text.h"
#include "print/print_text.h"

namespace postern::internal::host {

namespace {

/// Gives each placeholder its value: by position, by number, or by name.
class Matcher {
 public:
  explicit Matcher(std::span<const detail::PrintValue> values)
      : values_(values), used_(values.size(), false) {}

  /// Returns which value the placeholder is for, whose `field` is "", a number or a name.
  int match(const std::string& field, const std::string& placeholder) {
    int value = -1;
    if (field.empty()) {  // the next that has no name
      while (next_ < values_.size() && !values_[next_].name.empty()) ++next_;
      value = static_cast<int>(next_++);
      by_position_ = true;
    } else if (std::ranges::all_of(field, is_digit)) {
      value = 1'000'000;  // what has more digits is missing in any case
      if (field.size() <= 6) value = std::stoi(field);
      by_number_ = true;
    } else {
      const auto found = std::ranges::find(values_, field, &detail::PrintValue::name);
      check(found != values_.end(),
            "print: nothing is given for the placeholder '{}'; the names are [{}]", placeholder,
            names());
      value = static_cast<int>(found - values_.begin());
    }
    check(!(by_position_ && by_number_),
          "print: the placeholder '{}' mixes counting with numbers; use one of them", placeholder);
    if (size_of(value) >= values_.size()) refuse_missing(placeholder, field);
    used_[size_of(value)] = true;
    return value;
  }

  void check_all_used(const std::string& format) const {
    for (std::size_t i = 0; i < used_.size(); ++i) {
      std::string name = "'" + values_[i].name + "'";
      if (values_[i].name.empty()) name = std::to_string(i);
      check(used_[i], "print: the format '{}' has no placeholder for value {}", format, name);
    }
  }

 private:
  [[noreturn]] void refuse_missing(std::string_view placeholder, const std::string& field) const {
    const char* verb = values_.size() == 1 ? "is" : "are";
    std::string hint;
    if (field.empty() && !names().empty())
      hint = fmt::format("; those with a name, [{}], go where the name stands in braces", names());
    throw_type_error(fmt::format("print: nothing is given for the placeholder '{}': {} {} given{}",
                                 placeholder, plural(values_.size(), "value"), verb, hint));
  }

  std::string names() const {
    Separator comma;
    std::string out;
    for (const detail::PrintValue& v : values_) {
      if (v.name.empty()) continue;
      out += comma();
      out += v.name;
    }
    return out;
  }

  std::span<const detail::PrintValue> values_;
  std::vector<bool> used_;
  std::size_t next_ = 0;
  bool by_position_ = false, by_number_ = false;
};

}  // namespace

bool is_reasonable(std::string_view spec) {
  std::size_t digits = 0;
  for (const char c : spec) {
    if (!is_digit(c))
      digits = 0;
    else if (++digits > 3)
      return false;
  }
  return true;
}

std::vector<FormatPiece> parse_format(const std::string& format,
                                      std::span<const detail::PrintValue> values) {
  std::vector<FormatPiece> pieces(1);
  Matcher matcher(values);
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    const bool is_brace = c == '{' || c == '}';
    const bool is_doubled = is_brace && i + 1 < format.size() && format[i + 1] == c;
    if (!is_brace || is_doubled) {
      pieces.back().text += c;
      if (is_doubled) ++i;
      continue;
    }
    check(c == '{', "print: the format '{}' has a '}}' without '{{'", format);
    const std::size_t end = format.find('}', i);
    check(end != std::string::npos, "print: the format '{}' has a '{{' without '}}'", format);
    const std::string placeholder = format.substr(i, end - i + 1),
                      inside = format.substr(i + 1, end - i - 1);
    check(inside.find('{') == std::string::npos,
          "print: a placeholder inside the placeholder '{}' is not supported", placeholder);
    const std::size_t colon = inside.find(':');
    FormatPiece& piece = pieces.back();
    piece.placeholder = placeholder;
    piece.value = matcher.match(inside.substr(0, colon), placeholder);
    if (colon != std::string::npos) piece.spec = inside.substr(colon + 1);
    check(is_reasonable(piece.spec),
          "print: the width and precision of the placeholder '{}' must be at most 999",
          placeholder);
    pieces.emplace_back();
    i = end;
  }
  matcher.check_all_used(format);
  return pieces;
}

}  // namespace postern::internal::host
