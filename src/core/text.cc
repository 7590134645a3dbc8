// Escaping; numbers as text.
#include "core/text.h"

#include <fmt/format.h>
#include <locale.h>

#include <algorithm>
#include <cstdlib>

namespace postern::internal {

namespace {

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7F; }

/// Returns the text with controls and what is no UTF-8 as \xNN. `escapes`: characters that get a
/// backslash; `keeps_lines`: newlines and tabs stay.
std::string escaped(std::string_view text, std::string_view escapes, bool keeps_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    const std::size_t size = utf8_size(text);  // 0: of no character, and one byte is taken
    const std::size_t taken = std::max<std::size_t>(size, 1);
    // The controls of Latin-1, U+0080 to U+009F, mean to a terminal what the others do.
    const bool control =
        is_control(c) || (size == 2 && c == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0);
    if (size > 0 && !control) {
      if (escapes.find(text[0]) != std::string_view::npos) out += '\\';
      out += text.substr(0, size);
    } else if (keeps_lines && (c == '\n' || c == '\t')) {
      out += text[0];
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      for (const char byte : text.substr(0, taken))
        out += fmt::format("\\x{:02X}", static_cast<unsigned char>(byte));
    }
    text.remove_prefix(taken);
  }
  return out;
}

}  // namespace

// By the table of well-formed sequences: the first byte says how many there are, all others are of
// the form 10xxxxxx, and after four first bytes the second one's range is narrower.
std::size_t utf8_size(std::string_view text) {
  auto byte = [&](std::size_t i) -> unsigned { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return 0;
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  std::size_t size = 2;
  if (first >= 0xE0) ++size;
  if (first >= 0xF0) ++size;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Not the shortest form, a surrogate, or beyond the last character.
  const unsigned second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
    return 0;
  return size;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = utf8_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string printable(std::string_view text) { return escaped(text, "", true); }
std::string one_line(std::string_view text) { return escaped(text, "", false); }
std::string quoted(std::string_view text) { return '"' + escaped(text, "\"\\", false) + '"'; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_of_name(char c) {
  constexpr std::string_view others = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
  return is_digit(c) || others.find(c) != others.npos;
}
bool is_name(std::string_view text) {
  return !text.empty() && !is_digit(text[0]) && std::ranges::all_of(text, is_of_name);
}

std::string word_or_quoted(std::string_view text) {
  const auto in_word = [](char c) { return is_of_name(c) || c == '.' || c == '-'; };
  if (!text.empty() && std::ranges::all_of(text, in_word)) return std::string(text);
  return internal::quoted(text);
}

double parse_number(const std::string& text, std::size_t* size) {
  static const locale_t c_locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  char* end = nullptr;
  const double value = ::strtod_l(text.c_str(), &end, c_locale);
  if (size) *size = static_cast<std::size_t>(end - text.c_str());
  return value;
}

std::string plural(std::size_t n, std::string_view word) {
  std::string text = fmt::format("{} {}", n, word);
  if (n != 1) text += 's';
  return text;
}

std::string limited(std::string_view text) {
  constexpr std::size_t most = std::size_t{1} << 16;
  if (text.size() <= most) return std::string(text);
  std::size_t end = most;
  // Not inside a character: bytes after the first one of it, at most three, are 10xxxxxx.
  while (end > most - 4 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return fmt::format("{}... (cut, it has {} bytes)", text.substr(0, end), text.size());
}

}  // namespace postern::internal
