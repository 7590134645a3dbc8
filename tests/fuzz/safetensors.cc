// For libFuzzer: files of tensors are refused, or what they say lies inside of them.
// scripts/fuzz builds and runs it.
#include <postern/error.h>

#include <cstdlib>

#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  try {
    for (const postern::internal::formats::StoredTensor& t :
         postern::internal::formats::read_safetensors_head(
             {reinterpret_cast<const char*>(data), size}))
      if (t.offset > size || t.type.byte_size() > size - t.offset) std::abort();
  } catch (const postern::Error&) {
  }
  return 0;
}
