// Saved programs with changes that a checksum would show.
#pragma once
#include "core/digest.h"
#include "support.h"

namespace postern::test {

/// The text with a true checksum again.
inline std::string summed(std::string text) {
  const auto sum = text.find("// checksum ") + 12, body = text.find('\n', sum) + 1;
  return text.replace(sum, body - 1 - sum, internal::digest(std::string_view(text).substr(body)));
}
inline std::string replaced(std::string text, const std::string& part, const std::string& other) {
  const auto at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), other);
}

}  // namespace postern::test
