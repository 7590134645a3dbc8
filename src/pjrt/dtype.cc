// Looking up element types in the table of dtype_codes.h.
#include "pjrt/dtype.h"

#include "pjrt/dtype_codes.h"

#include <postern/error.h>

#include <string>

namespace postern::internal::pjrt {

int to_buffer_type(DType dtype) { return dtype_codes[static_cast<std::size_t>(dtype)].buffer; }

DType from_buffer_type(int code) {
  const auto place = static_cast<std::size_t>(code);
  if (place >= by_buffer_type.size() || by_buffer_type[place] < 0)
    throw Error(ErrorCode::unimplemented,
                "XLA gave an element type that Postern does not know: PJRT_Buffer_Type number " +
                    std::to_string(code));
  return static_cast<DType>(by_buffer_type[place]);
}

}  // namespace postern::internal::pjrt
