// Looking up element types in the table of dtype_codes.h.
#include "pjrt/dtype.h"

#include "pjrt/dtype_codes.h"

#include <postern/error.h>

#include <string>

namespace postern::internal::pjrt {
namespace {

DType find(const CodeIndex& index, int code, const char* numbering) {
  const auto place = static_cast<std::size_t>(code);
  if (place >= index.size() || index[place] < 0)
    throw Error(ErrorCode::unimplemented,
                std::string("XLA gave an element type that Postern does not know: ") + numbering +
                    " number " + std::to_string(code));
  return static_cast<DType>(index[place]);
}

}  // namespace

int to_buffer_type(DType dtype) { return dtype_codes[static_cast<std::size_t>(dtype)].buffer; }
DType from_buffer_type(int code) { return find(by_buffer_type, code, "PJRT_Buffer_Type"); }
int to_ffi_type(DType dtype) { return dtype_codes[static_cast<std::size_t>(dtype)].ffi; }
DType from_ffi_type(int code) { return find(by_ffi_type, code, "XLA_FFI_DataType"); }

}  // namespace postern::internal::pjrt
