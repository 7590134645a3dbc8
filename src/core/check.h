// One way to refuse: what was asked, what was required, what came, and the user's line.
#pragma once
#include <fmt/format.h>
#include <postern/error.h>

#include <typeinfo>

#include "core/scoped.h"

namespace postern::internal {

/// The place that errors and equations get while a public function of ours calls others: the
/// outermost one's, the user's.
class POSTERN_API PlaceScope {
 public:
  explicit PlaceScope(const Place& place);
  ~PlaceScope();
  PlaceScope(const PlaceScope&) = delete;
  static const Place& current();

  /// Takes the place of whatever is there: for code that replays equations, each with its own
  /// place.
  struct POSTERN_API Replace : Scoped<Place> {
    explicit Replace(const Place& place);
  };

 private:
  bool outermost_;
};

/// Returns a place whose file name lives as long as the process: errors may outlive the program.
POSTERN_API Place place_in_file(const std::string& file, std::uint32_t line);

[[noreturn]] POSTERN_API void throw_type_error(std::string text);

/// Spells a name as written in the source: "std::vector<float>".
std::string readable_name(const std::type_info& type);

/// Throws TypeError "<text> (at file:line)" unless `ok`.
template <class... A>
void check(bool ok, fmt::format_string<A...> format, A&&... args) {
  if (!ok) [[unlikely]]
    throw_type_error(fmt::format(format, std::forward<A>(args)...));
}

}  // namespace postern::internal
