// The registry: host functions by name, for programs that call them as Named.
#pragma once
#include <postern/attributes.h>
#include <postern/detail/api.h>
#include <postern/host.h>

#include <string>
#include <vector>

namespace postern {

struct RegisterOptions {
  bool replace = false;  // whether a function of that name may be there already
};

/// Makes `fn` the function of that name for runs that start from now on; a run that has started
/// keeps what it found. Throws TypeError for an empty name, Error (already_exists) for one that is
/// taken unless `replace`. Thread-safe, also from inside host functions.
POSTERN_API void register_function(const std::string& name, Callee fn,
                                   const RegisterOptions& options = {});
/// Whether there was one.
POSTERN_API bool unregister_function(const std::string& name);
/// Sorted.
POSTERN_API std::vector<std::string> registered_functions();

/// As JSON, each with its type: {"factor": {"double": "3"}}. For functions in other processes.
POSTERN_API std::string to_json_text(const Attributes& attributes);

}  // namespace postern
