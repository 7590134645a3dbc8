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
/// keeps what it found. Throws TypeError for an empty name and for an `fn` that is a Named itself,
/// Error(already_exists) for a name that is taken unless `replace`. Thread-safe, also from inside
/// host functions.
///
///   pn::register_function("half", [](float x) { return x / 2; });
///   auto f = pn::jit([](pn::Tensor x) {
///     return pn::call(pn::type<float>(), pn::Named{"half"}, x);
///   });
///   const pn::Tensor y = f(3.0f);  // 1.5
POSTERN_API void register_function(const std::string& name, Callee fn,
                                   const RegisterOptions& options = {});
/// Takes the name away for runs that start from now on. Whether there was one. Throws nothing.
POSTERN_API bool unregister_function(const std::string& name);
/// Returns their names, sorted. Throws nothing.
POSTERN_API std::vector<std::string> registered_functions();

/// Writes them as JSON, each with its type: {"factor": {"double": "3"}}. For functions in other
/// processes. Throws TypeError for a name or text that is no UTF-8.
POSTERN_API std::string to_json_text(const Attributes& attributes, Place place = Place::current());

}  // namespace postern
