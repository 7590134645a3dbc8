// For libFuzzer: what a browser or anybody else sends to the live page is a request, or has a
// status with a name. scripts/fuzz builds and runs it.
#include <cstdlib>
#include <cstring>

#include "live/http.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace postern::internal::live;
  const Parsed parsed = parse_request({reinterpret_cast<const char*>(data), size});
  if (parsed.status != 0 && std::strcmp(reason(parsed.status), "Error") == 0) std::abort();
  static_cast<void>(is_own_host(parsed.request, {"localhost"}));
  static_cast<void>(is_own_origin(parsed.request));
  return 0;
}
