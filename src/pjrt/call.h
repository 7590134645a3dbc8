// The one way to call an entry of PJRT's table. For the .cc files of this folder only: it brings in
// the C header.
#pragma once
#include "pjrt/failure.h"
#include "pjrt/number_of.h"

#include <cstring>
#include <string_view>

#include <pjrt_c_api.h>

namespace postern::internal::pjrt {

/// Makes an argument struct with every byte zero and its size filled in. Zero padding matters: a
/// newer plug-in may have a field there.
template <class Args>
Args make_args() {
  Args args;
  std::memset(&args, 0, sizeof args);
  args.struct_size = sizeof args;
  return args;
}

/// Looks at an error and frees it.
Failure take_failure(const PJRT_Api* api, PJRT_Error* error);

/// Throws Error: "<what>: <XLA's text>". Frees `error`.
[[noreturn]] void throw_error(const PJRT_Api* api, PJRT_Error* error, std::string_view what);

/// Throws while an exception of the plug-in is handled, which should not let any out: the same as
/// an Error.
[[noreturn]] void throw_thrown(std::string_view what);

[[noreturn]] void throw_missing_entry(const PJRT_Api* api, std::string_view entry,
                                      std::string_view what);

/// Returns "PJRT_Client_Compile" for &PJRT_Api::PJRT_Client_Compile.
template <auto Entry>
std::string_view entry_name() {
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_prefix(text.find("PJRT_Api::") + std::string_view("PJRT_Api::").size());
  return text.substr(0, text.find_first_of(";]"));
}

/// Returns the function behind an entry; null where there is none. A plug-in that is older than the
/// header has a shorter table.
template <auto Entry>
auto find_entry(const PJRT_Api* api) {
  const auto* place = &(api->*Entry);
  const auto end = reinterpret_cast<const char*>(place + 1) - reinterpret_cast<const char*>(api);
  return static_cast<std::size_t>(end) > api->struct_size ? nullptr : *place;
}
template <auto Entry>
auto entry(const PJRT_Api* api, std::string_view what) {
  const auto function = find_entry<Entry>(api);
  if (!function) throw_missing_entry(api, entry_name<Entry>(), what);
  return function;
}

/// Enters a function of the plug-in and returns what it reports.
template <class Function, class Args>
PJRT_Error* enter(Function function, Args& args, std::string_view what) {
  try {
    return function(&args);
  } catch (...) {
    throw_thrown(what);
  }
}

/// Calls an entry; what it reports becomes an Error that says `what` was attempted ("to compile a
/// program").
template <auto Entry, class Args>
void call(const PJRT_Api* api, Args& args, std::string_view what) {
  if (PJRT_Error* error = enter(entry<Entry>(api, what), args, what)) [[unlikely]]
    throw_error(api, error, what);
}

/// Calls from destructors: an error while letting go of something can help nobody, so it is freed
/// and forgotten.
template <auto Entry, class Args>
void call_quietly(const PJRT_Api* api, Args& args) noexcept {
  const auto function = find_entry<Entry>(api);
  if (PJRT_Error* error = function ? function(&args) : nullptr) take_failure(api, error);
}

}  // namespace postern::internal::pjrt
