// Libraries: shared objects that bring FFI handlers and overrides of blocks to a running process.
//
// A library is built against these headers, links postern::postern and states once:
//
//   void load() {
//     postern::register_ffi_handler("my_attention", my_attention_handler);
//     postern::override_block<Attention>({.platform = "cpu", .target = "my_attention"});
//   }
//   POSTERN_LIBRARY("my_kernels", "1.0", load)
#pragma once
#include <postern/detail/api.h>
#include <postern/place.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;

/// What a library's entry point `postern_library` returns.
extern "C" struct PosternLibrary {
  std::uint32_t struct_size;
  std::uint32_t interface_version;  // of the headers that it was built with
  const char* name;
  const char* version;  // the library's own, for people
  void (*load)();
};

namespace postern {

/// Changes whenever a library built before could not work any more.
inline constexpr std::uint32_t library_interface_version = 2;

/// An XLA FFI handler, as the macros of <xla/ffi/api/ffi.h> define one.
using FfiHandler = XLA_FFI_Error*(XLA_FFI_CallFrame*);

/// Makes `handler` the target of that name on a platform ("cpu", "cuda"). The same again is
/// harmless; another one under a name that is taken is a TypeError. So are a null handler, a name
/// that is empty or begins with "postern_", and a platform that there is not. `command_buffer`: a
/// GPU handler that may be recorded into a CUDA graph.
POSTERN_API void register_ffi_handler(const std::string& name, FfiHandler* handler,
                                      const std::string& platform = "cpu",
                                      bool command_buffer = false, Place place = Place::current());
/// Returns them sorted; of one platform. Throws TypeError for a platform that there is not.
POSTERN_API std::vector<std::string> ffi_handlers(const std::string& platform = "cpu",
                                                  Place place = Place::current());

struct LibraryInfo {
  std::string path, name, version;
  std::size_t overrides;              // that it added
  std::vector<std::string> handlers;  // that it registered
};

/// Opens a shared object and runs its load function; once: again it gives back what is there, and
/// who asks for it meanwhile waits. It stays until the process ends. Throws PluginError, and undoes
/// the overrides that were added, when the file is missing or cannot be opened (the text is the
/// dynamic loader's), has no entry point, was built for another version of the interface, or its
/// load function throws or asks for the library itself.
POSTERN_API LibraryInfo load_library(const std::string& path);
/// Returns them in the order in which they were loaded. Throws nothing.
POSTERN_API std::vector<LibraryInfo> loaded_libraries();

/// Runs body(0) ... body(n - 1) on this thread and on others of Postern's, which kernels share;
/// returns when all are done; none where n is not positive. Throws what `body` throws, of several
/// the failure of the lowest number.
///
///   std::vector<float> x(1000, 2);
///   const std::int64_t parts = pn::core_count(), n = std::ssize(x);
///   pn::parallel_for(parts, [&](std::int64_t p) {
///     for (std::int64_t i = n * p / parts; i < n * (p + 1) / parts; ++i) x[i] *= x[i];
///   });
POSTERN_API void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body);
/// Returns how many cores the process was allowed when somebody first asked; at least 1. Throws
/// nothing.
POSTERN_API std::int64_t core_count();

}  // namespace postern

/// The entry point of a library; `load_function` takes and returns nothing.
#define POSTERN_LIBRARY(library_name, library_version, load_function)                         \
  extern "C" __attribute__((visibility("default"))) const PosternLibrary* postern_library() { \
    static const PosternLibrary library{sizeof(PosternLibrary),                               \
                                        postern::library_interface_version, library_name,     \
                                        library_version, load_function};                      \
    return &library;                                                                          \
  }
