// Values as text: elements by a format specification, arrays as NumPy writes them, containers with
// their brackets.
#pragma once
#include <postern/print.h>
#include <postern/view.h>

#include <iosfwd>
#include <span>
#include <string>

namespace postern::internal::host {

struct TextStyle {
  int precision = -1;
  std::int64_t threshold = 1000;
  int edge_items = 3;
  bool suppress = false;
  bool types = false;  // in front of each leaf
};

/// Throws fmt::format_error when `spec` does not fit the dtype.
POSTERN_API std::string text_of(const AnyView& view, const std::string& spec,
                                const TextStyle& style);

/// Writes a node; `next` is its first leaf, and is moved behind its last.
std::string text_of(const detail::PrintNode& node, std::span<const AnyView> leaves,
                    std::size_t& next, const std::string& spec, const TextStyle& style);

/// Writes a text and flushes. Texts of several threads follow each other, also where two streams
/// end in one place; who has waited for a second leaves its text to the thread that writes. Whether
/// the stream is found bad for the first time.
POSTERN_API bool write_to(std::ostream& stream, std::string text);

/// A format string cut at its placeholders.
struct FormatPiece {
  std::string text;  // in front of the placeholder
  int value = -1;    // -1: none, the end
  std::string spec;
  std::string placeholder;  // as written
};
/// Returns whether no width or precision is over 999: a field takes the memory that it asks for.
bool is_reasonable(std::string_view spec);

/// Throws TypeError for a format that is wrong in itself, or that does not fit the values' number
/// and names.
std::vector<FormatPiece> parse_format(const std::string& format,
                                      std::span<const detail::PrintValue> values);

}  // namespace postern::internal::host
