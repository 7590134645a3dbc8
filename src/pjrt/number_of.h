// Numbers that a plug-in writes as values of C's enumerations.
#pragma once
#include <cstring>

namespace postern::internal::pjrt {

/// Returns the number. A newer plug-in may have values that the header lacks: to read one as the
/// enumeration is undefined.
template <class Enumeration>
int number_of(const Enumeration& written) {
  int number;
  static_assert(sizeof number == sizeof written);
  std::memcpy(&number, &written, sizeof number);
  return number;
}

}  // namespace postern::internal::pjrt
