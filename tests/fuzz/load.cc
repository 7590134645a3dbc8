// For libFuzzer: the loader of programs must refuse what is wrong, and do nothing else.
// scripts/fuzz builds and runs it.
#include <postern/file.h>

#include <string>

#include "core/digest.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  // Behind a checksum that does not fit nothing would ever be reached.
  if (const auto sum = text.find("// checksum "); sum != std::string::npos)
    if (const auto end = text.find('\n', sum); end != std::string::npos)
      text.replace(sum + 12, end - sum - 12,
                   postern::internal::digest(std::string_view(text).substr(end + 1)));
  try {
    const postern::Loaded program = postern::load_text(text);
    static_cast<void>(program.required_functions());
  } catch (const postern::Error&) {
  }
  return 0;
}
