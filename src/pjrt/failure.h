// What PJRT reported, as a value: for places that must look at an error without throwing it.
#pragma once
#include <postern/error.h>

#include <string>

namespace postern::internal::pjrt {

struct Failure {
  ErrorCode code = ErrorCode::unknown;
  std::string text;  // XLA's own words
};

}  // namespace postern::internal::pjrt
