// A PJRT plug-in: the shared object, its table of functions, its extensions. Loaded once per path
// and never unloaded.
#pragma once
#include <string>
#include <string_view>
#include <vector>

struct PJRT_Api;

namespace postern::internal::pjrt {

struct FfiExtension;  // ffi.cc

/// The lowest PJRT API that Postern can talk to: the layout of the FFI extension changed just
/// before it.
inline constexpr int required_api_major = 0;
inline constexpr int required_api_minor = 81;
inline constexpr int tested_api_minor = 115;  ///< The latest of scripts/dependencies.txt.

/// Throws PluginError unless a plug-in of this version can be used; `path` is for the text.
void check_api_version(int major, int minor, const std::string& path);

class Plugin {
 public:
  /// Loads and initialises the plug-in, or returns the one already loaded from this file. The
  /// result lives as long as the process: XLA's threads cannot be stopped, so its code must stay.
  /// Throws PluginError.
  static const Plugin& load(std::string_view path);

  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const PJRT_Api* api() const { return api_; }
  const std::string& path() const { return path_; }
  int api_minor() const;

  /// Returns the extension struct of this type (PJRT_Extension_Type), or null.
  const void* extension(int type) const;
  /// Returns the names of the extensions that it has, as the C header has them ("FFI", "Stream",
  /// ...); "extension 24" of those that came after it.
  std::vector<std::string> extensions() const;
  /// Returns the FFI extension, or null when the plug-in has none.
  const FfiExtension* ffi() const { return ffi_; }

  /// Returns all that identifies the plug-in's build (API version, attributes, size and time of the
  /// file), on one line: part of cache keys.
  const std::string& identity() const { return identity_; }

 private:
  explicit Plugin(std::string path);
  void initialize();

  std::string path_;
  const PJRT_Api* api_ = nullptr;
  const FfiExtension* ffi_ = nullptr;
  std::string identity_;
};

}  // namespace postern::internal::pjrt
