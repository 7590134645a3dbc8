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

/// The arguments of an entry.
template <class Args>
Args arguments_of(PJRT_Error* (*PJRT_Api::*)(Args*));
template <auto Entry>
using ArgumentsOf = decltype(arguments_of(Entry));

/// Sets the handle that an entry is about.
void set_handle(auto& args, PJRT_Buffer* handle) { args.buffer = handle; }
void set_handle(auto& args, PJRT_Client* handle) { args.client = handle; }
void set_handle(auto& args, PJRT_Device* handle) { args.device = handle; }
void set_handle(auto& args, PJRT_DeviceDescription* handle) { args.device_description = handle; }
void set_handle(auto& args, PJRT_Event* handle) { args.event = handle; }
void set_handle(auto& args, PJRT_Executable* handle) { args.executable = handle; }
void set_handle(auto& args, PJRT_ExecuteContext* handle) { args.context = handle; }
void set_handle(auto& args, PJRT_LoadedExecutable* handle) { args.executable = handle; }
void set_handle(auto& args, PJRT_Memory* handle) { args.memory = handle; }

/// Calls an entry that is given one handle and no more; returns its arguments, filled in.
template <auto Entry, class Handle>
ArgumentsOf<Entry> ask(const PJRT_Api* api, Handle* handle, std::string_view what) {
  auto args = make_args<ArgumentsOf<Entry>>();
  set_handle(args, handle);
  call<Entry>(api, args, what);
  return args;
}

}  // namespace postern::internal::pjrt
