// The plug-in without its FFI extension (unless TEST_WITH_FFI is set): programs cannot call back.
// With TEST_PLATFORM_NAME it says that it is of that platform.
#include <dlfcn.h>
#include <pjrt_c_api.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

static PJRT_Error* name_of_platform(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = std::getenv("TEST_PLATFORM_NAME");
  args->platform_name_size = std::strlen(args->platform_name);
  return nullptr;
}

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api* const api = []() -> const PJRT_Api* {
    void* library = dlopen(REAL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (!library) return nullptr;
    const PJRT_Api* real = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
    // Copies as large as they say, chained anew.
    static std::vector<char> copy(reinterpret_cast<const char*>(real),
                                  reinterpret_cast<const char*>(real) + real->struct_size);
    static std::deque<std::vector<char>> extensions;
    auto* mine = reinterpret_cast<PJRT_Api*>(copy.data());
    mine->extension_start = nullptr;
    for (PJRT_Extension_Base* e = real->extension_start; e; e = e->next) {
      if (e->type == PJRT_Extension_Type_FFI && !std::getenv("TEST_WITH_FFI")) continue;
      const auto* bytes = reinterpret_cast<const char*>(e);
      auto& kept = extensions.emplace_back(bytes, bytes + e->struct_size);
      auto* base = reinterpret_cast<PJRT_Extension_Base*>(kept.data());
      base->next = mine->extension_start;
      mine->extension_start = base;
    }
    if (std::getenv("TEST_PLATFORM_NAME")) mine->PJRT_Client_PlatformName = name_of_platform;
    return mine;
  }();
  return api;
}
