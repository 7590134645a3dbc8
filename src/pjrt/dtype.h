// Element types as PJRT numbers them. Codes are plain integers here so that this header needs no C
// header.
#pragma once
#include <postern/dtype.h>

namespace postern::internal::pjrt {

/// Returns the PJRT_Buffer_Type of a dtype, and back; the way back throws Error for a code that
/// Postern has no dtype for.
int to_buffer_type(DType dtype);
DType from_buffer_type(int code);

}  // namespace postern::internal::pjrt
