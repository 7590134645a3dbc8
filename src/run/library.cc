// Registering FFI handlers, loading shared objects.
#include "run/library.h"

#include <dlfcn.h>
#include <postern/library.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "block/overrides.h"
#include "block/own_kernels.h"
#include "core/check.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "core/once.h"
#include "core/scoped.h"
#include "core/text.h"
#include "host/text_file.h"
#include "pjrt/ffi.h"
#include "run/runtime.h"

namespace postern {
using namespace internal;

using platforms::Platform;

namespace {

struct Handler {
  FfiHandler* function;
  int traits = 0;
  bool own;                // Postern's, which is not listed, and which another one replaces
  bool asked_for = false;  // by a program: from then on it is not replaced
  bool known_to_xla = false;
};
using Handlers = std::map<std::pair<const Platform*, std::string>, Handler>;
struct Libraries {
  Mutex guard;        // not held while somebody else's code runs
  Handlers handlers;  // by platform and name
  std::vector<LibraryInfo> loaded;
  std::map<std::string, Once> loading;  // by path
};
/// Where the names of handlers go that this thread adds while it loads a library; null: nowhere.
constinit thread_local std::vector<std::string>* recorded = nullptr;

Libraries& libraries() { return never_destroyed<Libraries>(); }

std::vector<std::string> names_of(const Handlers& handlers, const Platform& on) {
  std::vector<std::string> out;
  for (const auto& [key, handler] : handlers)
    if (key.first == &on && !handler.own) out.push_back(key.second);
  return out;
}

[[noreturn]] void refuse(ErrorCode code, const std::string& path, const std::string& why) {
  throw PluginError(code, fmt::format("load_library: {}: {}", path, why));
}

const PosternLibrary& entry_of(void* object, const std::string& path) {
  void* symbol = dlsym(object, "postern_library");
  if (!symbol)
    refuse(
        ErrorCode::failed_precondition, path,
        "it has no entry point postern_library; state POSTERN_LIBRARY(name, version, load) in it");
  const PosternLibrary* library = reinterpret_cast<const PosternLibrary* (*)()>(symbol)();
  if (!library || library->struct_size < sizeof(PosternLibrary) ||
      library->interface_version != library_interface_version) {
    std::string why = "its entry point gives nothing";
    if (library)
      why = fmt::format(
          "it was built for version {} of the library interface, this is version {}; build it "
          "again",
          library->interface_version, library_interface_version);
    refuse(ErrorCode::failed_precondition, path, why);
  }
  if (!library->load) refuse(ErrorCode::failed_precondition, path, "its load function is null");
  return *library;
}

/// Runs the load function; what it added is taken back when it throws.
void run_load(const PosternLibrary& library, const std::string& path, LibraryInfo& info) {
  std::vector<std::uint64_t> overrides;
  auto failed = [&](const std::string& what) {
    for (const std::uint64_t id : overrides) detail::remove_override(id);
    refuse(ErrorCode::threw, path, fmt::format("its load function failed: {}", what));
  };
  const Scoped into(blocks::recorded(), &overrides);
  const Scoped handlers_into(recorded, &info.handlers);
  enters_users_code();
  try {
    library.load();
  } catch (const std::exception& e) {
    failed(e.what());
  } catch (...) {
    failed("an exception that is not a std::exception");
  }
  info.overrides = overrides.size();
}

}  // namespace

void register_ffi_handler(const std::string& name, FfiHandler* handler, const std::string& platform,
                          bool command_buffer, Place place) {
  PlaceScope at(place);
  check(!name.empty() && handler != nullptr,
        "register_ffi_handler: a name and a handler are needed, got '{}' and {}", name,
        handler ? "one" : "null");
  check(!name.starts_with("postern_"),
        "register_ffi_handler: names that begin with postern_ are the library's own, got '{}'",
        name);
  const Platform& on = platforms::named(platform, fmt::format("register_ffi_handler '{}'", name));
  Libraries& l = libraries();
  std::scoped_lock lock(l.guard);
  Handler added{.function = handler, .own = blocks::OwnScope::here()};
  if (command_buffer) added.traits = pjrt::command_buffer_compatible;
  auto [found, is_new] = l.handlers.try_emplace({&on, name}, added);
  Handler& there = found->second;
  if (!is_new && added.own) return;  // what is there stays
  if (!is_new && there.own && !there.asked_for) {
    there = added;
    is_new = true;
  }
  check(there.function == handler,
        "register_ffi_handler: '{}' is registered for {} with another handler", name, platform);
  if (is_new && recorded) recorded->push_back(name);
}

std::vector<std::string> ffi_handlers(const std::string& platform, Place place) {
  PlaceScope at(place);
  const Platform& on = platforms::named(platform, "ffi_handlers");
  Libraries& l = libraries();
  std::scoped_lock lock(l.guard);
  return names_of(l.handlers, on);
}

static bool is_registered(const std::string& name, const Platform& platform) {
  Libraries& l = libraries();
  std::scoped_lock lock(l.guard);
  return l.handlers.contains({&platform, name});
}

bool run::has_handler(const std::string& name, const Platform& platform) {
  if (is_registered(name, platform)) return true;
  return platform.on_host && blocks::open_lapack_for_target(name) && is_registered(name, platform);
}

void run::require_handler(const std::string& name, const Platform& platform) {
  static_cast<void>(has_handler(name, platform));  // opens what has it
  Libraries& l = libraries();
  std::unique_lock lock(l.guard);
  const auto found = l.handlers.find({&platform, name});
  check(found != l.handlers.end(),
        "the FFI target '{}' is not registered for {}; see register_ffi_handler and load_library. "
        "Registered: [{}]",
        name, platform.name, fmt::join(names_of(l.handlers, platform), ", "));
  found->second.asked_for = true;
  const Handler handler = found->second;
  if (handler.known_to_xla) return;
  lock.unlock();  // two threads may tell XLA twice, which does no harm
  const run::Backend& here = run::Runtime::get().here();
  for (const auto& backend : run::Runtime::get().backends()) {
    const bool is_of_platform = backend->used.calls_back && &backend->platform() == &platform;
    if (backend.get() == &here || is_of_platform)
      pjrt::register_handler(*backend->plugin, name, handler.function, platform.xla_name,
                             handler.traits);
  }
  lock.lock();
  found->second.known_to_xla = true;
}

namespace {

/// Makes the symbols of the object that holds Postern global, for libraries that are not linked
/// with it: Python opens its module with RTLD_LOCAL. NOLOAD opens nothing new. Where it fails, the
/// dlopen that needs a symbol says which.
void show_own_symbols() {
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&load_library), &own) && own.dli_fname)
    static_cast<void>(dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL));
}

/// Opens and loads it. What this thread adds meanwhile is the library's: others may load others.
LibraryInfo load_now(const std::string& path, const std::string& canonical) {
  show_own_symbols();
  const bool exists = host::is_there(path);
  std::string file = path;
  if (exists && path.find('/') == std::string::npos) file = "./" + path;
  void* object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!object) {
    const std::string why = text_or(dlerror(), "the dynamic loader gives no reason");
    if (!exists) refuse(ErrorCode::not_found, path, why);
    refuse(ErrorCode::failed_precondition, path, why);
  }
  const PosternLibrary& library = entry_of(object, path);
  LibraryInfo info{canonical, text_or(library.name, ""), text_or(library.version, ""), 0, {}};
  run_load(library, path, info);
  return info;
}

}  // namespace

LibraryInfo load_library(const std::string& path) {
  Libraries& l = libraries();
  std::error_code ignored;
  const std::string canonical = std::filesystem::weakly_canonical(path, ignored).string();
  std::unique_lock lock(l.guard);
  Once& once = l.loading[canonical];
  lock.unlock();
  try {
    once([&] {
      LibraryInfo info = load_now(path, canonical);
      const std::scoped_lock adding(l.guard);
      l.loaded.push_back(std::move(info));
    });
  } catch (const Error& e) {
    if (e.code() == ErrorCode::reentry)
      refuse(ErrorCode::reentry, path, "its load function asks for the library itself");
    throw;
  }
  lock.lock();
  return *std::ranges::find(l.loaded, canonical, &LibraryInfo::path);
}

std::vector<LibraryInfo> loaded_libraries() {
  Libraries& l = libraries();
  std::scoped_lock lock(l.guard);
  return l.loaded;
}

}  // namespace postern
