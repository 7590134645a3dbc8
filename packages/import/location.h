// Where operations come from: MLIR's locations in a text.
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>

#include "mlir_text.h"

namespace postern::internal::imported {

/// A name in JAX's stack of scopes, and a line of a source; either may be missing.
struct Location {
  std::string name, file;
  std::uint32_t line = 0;
};

/// Returns `location` as MLIR writes it behind an operation, with the space before it.
std::string location_text(const Location& location);

/// The locations of a text, also those that it names `#loc1`.
class Locations {
 public:
  explicit Locations(const MlirText& text);
  /// Returns that at the end of an operation's text; an empty one where it says none.
  Location of(std::string_view operation) const;

 private:
  Location read(std::string_view location) const;
  std::unordered_map<std::string_view, std::string_view> named_;
};

}  // namespace postern::internal::imported
