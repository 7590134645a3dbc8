// A place in the user's source: what errors, prints of programs and taps report.
#pragma once
#include <postern/detail/api.h>

#include <cstdint>
#include <string>
#include <version>
#if defined(__cpp_lib_source_location) && !(defined(__clang__) && __clang_major__ < 16)
#include <source_location>
#endif

namespace postern {

/// A source position. `Place::current()` as a default argument is the caller's line. No member
/// throws.
struct POSTERN_API Place {
  const char* file = "";
  const char* function = "";
  std::uint32_t line = 0;

#ifdef POSTERN_INSIDE
  /// Returns where the call stands that has it as a default argument. No line of the library is
  /// one.
  static constexpr Place current() { return {}; }
#elif defined(__cpp_lib_source_location) && !(defined(__clang__) && __clang_major__ < 16)
  static constexpr Place current(std::source_location at = std::source_location::current()) {
    return {at.file_name(), at.function_name(), at.line()};
  }
#else
  static constexpr Place current(const char* file = __builtin_FILE(),
                                 const char* function = __builtin_FUNCTION(),
                                 std::uint32_t line = __builtin_LINE()) {
    return {file, function, line};
  }
#endif
  /// Returns whether it is a place at all.
  constexpr bool known() const { return line != 0; }
};

/// A place that no braces are taken for, where `{}` may be another argument.
struct Caller {
  /// Throws nothing.
  explicit constexpr Caller(const Place& at) : place(at) {}
  Place place;
};

/// Returns "digits.cc:42": the file without its folders, and the line; "?" for an unknown place.
/// Throws nothing.
POSTERN_API std::string to_string(const Place& place);

}  // namespace postern
