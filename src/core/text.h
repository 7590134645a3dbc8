// Text that users bring - names, messages - on its way into errors, prints and files.
#pragma once
#include <postern/detail/api.h>

#include <string>
#include <string_view>
#include <utility>

namespace postern::internal {

/// Returns how many bytes the well-formed UTF-8 character has with which `text` begins; 0: it
/// begins with none.
std::size_t utf8_size(std::string_view text);
POSTERN_API bool is_utf8(std::string_view text);

/// Returns valid UTF-8 without control characters but newline and tab: other bytes as \xNN. For
/// messages.
POSTERN_API std::string printable(std::string_view text);

/// Does as `printable`, on one line: \n, \t. For names.
POSTERN_API std::string one_line(std::string_view text);

/// Puts it in double quotes, with quotes and backslashes escaped too, so that different texts read
/// differently.
POSTERN_API std::string quoted(std::string_view text);

/// Returns whether it is a decimal digit; a letter of ASCII, a digit or "_": in any locale.
bool is_digit(char c);
bool is_of_name(char c);
/// Returns whether there are such characters alone, and no digit first.
bool is_name(std::string_view text);
/// Leaves a word as it is, puts anything else in quotes: for names in lists.
std::string word_or_quoted(std::string_view text);

/// Keeps at most 64 KiB of it, saying how long it was.
std::string limited(std::string_view text);

/// Written before each item of a list: `first` before the first one, `between` before the others.
class Separator {
 public:
  explicit Separator(std::string_view between = ", ", std::string_view first = "")
      : next_(first), between_(between) {}
  std::string_view operator()() { return std::exchange(next_, between_); }

 private:
  std::string_view next_, between_;
};

/// Reads the number with which `text` begins, as strtod does in the C locale whatever the process's
/// is; `size`: of how many characters it is, 0 where there is none.
POSTERN_API double parse_number(const std::string& text, std::size_t* size = nullptr);

/// Returns "1 value", "2 values".
std::string plural(std::size_t n, std::string_view word);

inline const char* bool_text(bool value) {
  if (value) return "true";
  return "false";
}

/// Returns what C gives for a text: `otherwise` where that is null.
inline const char* text_or(const char* text, const char* otherwise) {
  if (text) return text;
  return otherwise;
}

}  // namespace postern::internal
