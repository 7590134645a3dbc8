// Finding, loading and checking a plug-in.
#include "pjrt/plugin.h"

#include "core/log.h"
#include "core/mutex.h"
#include "core/text.h"
#include "pjrt/call.h"

#include <fmt/format.h>
#include <postern/error.h>

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>

namespace postern::internal::pjrt {

const FfiExtension* find_ffi(const Plugin& plugin);  // ffi.cc knows its layout

namespace {

namespace fs = std::filesystem;

// XLA reads this once, when it is loaded; a value that the user set stays.
void quiet_xla() {
  if (!log_has("xla")) setenv("TF_CPP_MIN_LOG_LEVEL", "3", 0);
}

std::string to_text(const PJRT_NamedValue& value) {
  switch (number_of(value.type)) {
    case PJRT_NamedValue_kString: return {value.string_value, value.value_size};
    case PJRT_NamedValue_kInt64: return std::to_string(value.int64_value);
    case PJRT_NamedValue_kFloat: return fmt::format("{}", value.float_value);
    case PJRT_NamedValue_kBool: return bool_text(value.bool_value);
    case PJRT_NamedValue_kInt64List: break;
    default: return "?";  // of a newer plug-in
  }
  Separator point(".");
  std::string text;
  for (std::size_t i = 0; i < value.value_size; ++i)
    text += fmt::format("{}{}", point(), value.int64_array_value[i]);
  return text;
}

const PJRT_Api* open_api(const std::string& path) {
  quiet_xla();
  // RTLD_LOCAL: several plug-ins carry the same XLA symbols and must not see each other's.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw PluginError(ErrorCode::not_found, fmt::format("cannot load the plug-in {}: {}", path,
                                                        text_or(dlerror(), "unknown reason")));
  using GetApi = const PJRT_Api*();
  auto* get_api = reinterpret_cast<GetApi*>(dlsym(library, "GetPjrtApi"));
  if (!get_api) {
    dlclose(library);
    throw PluginError(ErrorCode::invalid_argument,
                      path + " is not a PJRT plug-in: it exports no function GetPjrtApi");
  }
  const PJRT_Api* api = get_api();
  if (!api)
    throw PluginError(ErrorCode::internal,
                      "the plug-in " + path + " gave no API: its GetPjrtApi returned null");
  return api;
}

}  // namespace

void check_api_version(int major, int minor, const std::string& path) {
  if (major == required_api_major && minor >= required_api_minor) return;
  throw PluginError(ErrorCode::failed_precondition,
                    fmt::format("the plug-in {} speaks PJRT API {}.{}; Postern needs {}.{} or a "
                                "later minor version",
                                path, major, minor, required_api_major, required_api_minor));
}

const Plugin& Plugin::load(std::string_view path) {
  static Mutex mutex;
  static auto& loaded =
      *new std::map<std::string, std::unique_ptr<Plugin>>;  // never destroyed, as the plug-ins
  std::error_code none;
  const fs::path file = fs::canonical(path, none);
  if (none)
    throw PluginError(ErrorCode::not_found,
                      fmt::format("cannot load the plug-in {}: {}", path, none.message()));
  std::lock_guard lock(mutex);
  auto& place = loaded[file.string()];
  if (!place) place.reset(new Plugin(file.string()));
  return *place;
}

Plugin::Plugin(std::string path) : path_(std::move(path)), api_(open_api(path_)) {
  check_api_version(api_->pjrt_api_version.major_version, api_->pjrt_api_version.minor_version,
                    path_);
  try {
    initialize();
  } catch (const Error& error) {
    throw PluginError(error.code(), "cannot use the plug-in " + path_ + ": " + error.what());
  }
}

void Plugin::initialize() {
  constexpr std::string_view read_errors = "to offer what its errors are read by";
  entry<&PJRT_Api::PJRT_Error_Destroy>(api_, read_errors);
  entry<&PJRT_Api::PJRT_Error_Message>(api_, read_errors);
  entry<&PJRT_Api::PJRT_Error_GetCode>(api_, read_errors);
  auto initialize = make_args<PJRT_Plugin_Initialize_Args>();
  call<&PJRT_Api::PJRT_Plugin_Initialize>(api_, initialize, "to initialise its plug-in");
  ffi_ = find_ffi(*this);

  auto attributes = make_args<PJRT_Plugin_Attributes_Args>();
  call<&PJRT_Api::PJRT_Plugin_Attributes>(api_, attributes, "to describe its plug-in");
  identity_ = fmt::format("pjrt {}.{}", api_->pjrt_api_version.major_version, api_minor());
  for (std::size_t i = 0; i < attributes.num_attributes; ++i) {
    const PJRT_NamedValue& value = attributes.attributes[i];
    identity_ += " " + std::string(value.name, value.name_size) + "=" + to_text(value);
  }
  // The attributes of two builds can be the same; the file is not.
  std::error_code ignored;
  const auto changed = fs::last_write_time(path_, ignored);
  identity_ += fmt::format(" size={} time={}", fs::file_size(path_, ignored),
                           changed.time_since_epoch().count());
}

int Plugin::api_minor() const { return api_->pjrt_api_version.minor_version; }

const void* Plugin::extension(int type) const {
  for (const auto* at = api_->extension_start; at; at = at->next)
    if (number_of(at->type) == type) return at;
  return nullptr;
}

std::vector<std::string> Plugin::extensions() const {
  constexpr const char* names[] = {"Gpu_Custom_Call",
                                   "Profiler",
                                   "Custom_Partitioner",
                                   "Stream",
                                   "Layouts",
                                   "FFI",
                                   "MemoryDescriptions",
                                   "Triton",
                                   "RawBuffer",
                                   "PhaseCompile",
                                   "Example",
                                   "Unknown",
                                   "CrossHostTransfers",
                                   "ExecutableMetadata",
                                   "Callback",
                                   "HostAllocator"};
  std::vector<std::string> out;
  for (const auto* at = api_->extension_start; at; at = at->next) {
    const auto type = static_cast<std::size_t>(number_of(at->type));
    out.push_back(type < std::size(names) ? names[type] : "extension " + std::to_string(type));
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace postern::internal::pjrt
