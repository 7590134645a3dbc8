// MLIR's text, as much of its grammar as where strings, brackets and types end.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spi.h"

namespace postern::internal::imported {

/// Positions are in the text. What is not as it should be throws Error with the line.
class MlirText {
 public:
  static constexpr auto npos = std::string_view::npos;

  MlirText(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  [[noreturn]] void refuse(std::size_t at, const std::string& why,
                           ErrorCode code = ErrorCode::invalid_argument) const;
  std::uint32_t line_of(std::size_t at) const;
  std::string_view text() const { return text_; }
  std::string_view part(std::size_t from, std::size_t to) const {
    return text_.substr(from, to - from);
  }

  char at(std::size_t i) const {
    if (i < text_.size()) return text_[i];
    return '\0';
  }
  /// Skips spaces, ends of lines and comments.
  std::size_t skip_space(std::size_t i) const;
  /// Returns the place behind `word`, which must come next.
  std::size_t expect(std::size_t i, std::string_view word) const;
  /// Returns the place behind the string that begins at i.
  std::size_t string_end(std::size_t i) const;
  /// Returns whether it is a character of an identifier or keyword.
  static bool is_word(char c);
  /// Returns the place behind the identifier or keyword at i: "func.func".
  std::size_t word_end(std::size_t i) const;
  /// Returns where the comment at i ends, if one begins there; else i.
  std::size_t comment_end(std::size_t i) const;
  struct Symbol {
    std::string name;
    std::size_t end;  // behind it
  };
  /// Returns the symbol whose @ is at i: @name or @"name".
  Symbol symbol(std::size_t i) const;
  /// Returns what stands in quotes, which it still has: \n, \t, \", \\ and two hexadecimal digits
  /// are read.
  static std::string unescaped(std::string_view quoted);
  /// Returns the first of `stops` outside of strings, comments and brackets, from i on; `end` at
  /// the latest.
  std::size_t find_outside(std::size_t i, std::string_view stops, std::size_t end) const;
  /// Returns the place behind the bracket that closes the one at i.
  std::size_t bracket_end(std::size_t i) const;

  using Range = std::pair<std::size_t, std::size_t>;
  /// Returns what stands between commas, in the brackets at i, or in a range.
  std::vector<Range> items(std::size_t i) const { return items({i + 1, bracket_end(i) - 1}); }
  std::vector<Range> items(Range range) const;
  /// Reads "(a, b)", or one type: where they begin and end, attributes behind them included; `end`
  /// is behind all.
  std::vector<Range> types(std::size_t i, std::size_t& end) const;
  /// Returns the type that a range begins with.
  std::string_view type(Range range) const;

  static std::string_view trimmed(std::string_view part);
  std::string_view trimmed(std::size_t from, std::size_t to) const {
    return trimmed(part(from, to));
  }

 protected:
  std::string_view text_;
  const std::string& name_;

 private:
  static std::size_t type_length(std::string_view t);
};

inline constexpr std::string_view mlir_token = "!stablehlo.token";

/// A part of the text that another takes the place of.
struct Edit {
  std::size_t from, to;
  std::string text;
};

/// What @main takes and gives. Tokens of ordered effects begin and end with the program: `edits`
/// make them, and take them off the lists. They also take away what would let XLA reuse the memory
/// of arguments. `open` is behind the function's name.
struct MainText {
  std::vector<std::string_view> inputs, outputs;  // types
  std::vector<std::string> input_names, output_names;
  std::vector<Edit> edits;
};
MainText read_main(const MlirText& text, std::size_t open);

}  // namespace postern::internal::imported
