// Where plug-ins are looked for.
#pragma once
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

namespace postern::internal::platforms {

/// Returns null where the variable is not set, or empty.
const char* environment(const char* name);

/// Finds a file that was installed with Postern: in the folder `postern` beside its own binary.
std::filesystem::path installed_beside(const char* file);

/// Returns the first of these files that is where Python's packages are: of the environment that is
/// active, of PYTHONPATH, of the user, of the system. Empty if there is none.
std::filesystem::path in_python_folders(std::initializer_list<const char*> files);
/// Returns that nothing that these packages bring is there, for the text of an error.
std::string not_in_python_folders(std::string_view packages);

/// Throws PluginError: nothing says where the plug-in for `platform` is, and there is no file
/// `tried`.
[[noreturn]] void refuse_plugin(std::string_view platform, const std::string& tried);

}  // namespace postern::internal::platforms
