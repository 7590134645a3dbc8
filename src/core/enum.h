// Enums that a caller may have cast from any number.
#pragma once
#include "core/check.h"

namespace postern::internal {

/// Throws TypeError "<what> 77 is not one of the 3 there are" for a value beyond `last`.
template <class E>
void check_enum(std::string_view what, E value, E last) {
  const auto number = static_cast<unsigned>(value), count = static_cast<unsigned>(last) + 1;
  check(number < count, "{} {} is not one of the {} there are", what, number, count);
}

}  // namespace postern::internal
