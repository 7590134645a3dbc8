// Turning PJRT's errors into Postern's.
#include "pjrt/call.h"

#include "pjrt/owned.h"

#include <cxxabi.h>

#include <new>

namespace postern::internal::pjrt {

Failure take_failure(const PJRT_Api* api, PJRT_Error* error) {
  const auto destroy = [&](PJRT_Error* seen) {
    auto args = make_args<PJRT_Error_Destroy_Args>();
    args.error = seen;
    api->PJRT_Error_Destroy(&args);
  };
  auto message = make_args<PJRT_Error_Message_Args>();
  message.error = error;
  api->PJRT_Error_Message(&message);
  auto code = make_args<PJRT_Error_GetCode_Args>();
  code.error = error;
  Failure failure;
  failure.text.assign(message.message, message.message_size);
  if (PJRT_Error* second = api->PJRT_Error_GetCode(&code))
    destroy(second);
  else
    failure.code = static_cast<ErrorCode>(number_of(code.code));  // the same numbers
  // XLA:CPU loses the code of an allocation that fails when a run has begun.
  if (failure.code == ErrorCode::internal &&
      failure.text.find("Out of memory allocating") != std::string::npos)
    failure.code = ErrorCode::resource_exhausted;
  destroy(error);
  return failure;
}

namespace {

/// Forgets an error of letting go of something, which can help nobody.
template <auto Entry, class Handle>
void destroy(const PJRT_Api* api, Handle* handle) noexcept {
  auto args = make_args<ArgumentsOf<Entry>>();
  set_handle(args, handle);
  const auto function = find_entry<Entry>(api);
  if (PJRT_Error* error = function ? function(&args) : nullptr) take_failure(api, error);
}

}  // namespace

void Free::operator()(PJRT_Buffer* handle) const noexcept {
  destroy<&PJRT_Api::PJRT_Buffer_Destroy>(api, handle);
}
void Free::operator()(PJRT_Client* handle) const noexcept {
  destroy<&PJRT_Api::PJRT_Client_Destroy>(api, handle);
}
void Free::operator()(PJRT_Event* handle) const noexcept {
  destroy<&PJRT_Api::PJRT_Event_Destroy>(api, handle);
}
void Free::operator()(PJRT_Executable* handle) const noexcept {
  destroy<&PJRT_Api::PJRT_Executable_Destroy>(api, handle);
}
void Free::operator()(PJRT_ExecuteContext* handle) const noexcept {
  destroy<&PJRT_Api::PJRT_ExecuteContext_Destroy>(api, handle);
}
void Free::operator()(PJRT_LoadedExecutable* handle) const noexcept {
  destroy<&PJRT_Api::PJRT_LoadedExecutable_Destroy>(api, handle);
}

void throw_error(const PJRT_Api* api, PJRT_Error* error, std::string_view what) {
  Failure failure = take_failure(api, error);
  throw Error(failure.code, "XLA failed " + std::string(what) + ": " + failure.text);
}

__attribute__((no_sanitize("null"))) void throw_thrown(std::string_view what) {
  const std::string failed = "XLA failed " + std::string(what) + ": ";
  try {
    throw;
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::resource_exhausted, failed + "there is no memory for it");
  } catch (const std::exception& e) {
    throw Error(ErrorCode::internal, failed + e.what());
  } catch (const abi::__forced_unwind&) {  // no error, and no object
    throw;
  } catch (...) {
    throw Error(ErrorCode::internal, failed + "it threw what is no std::exception");
  }
}

void throw_missing_entry(const PJRT_Api* api, std::string_view entry, std::string_view what) {
  throw Error(ErrorCode::unimplemented,
              "XLA failed " + std::string(what) + ": the plug-in (PJRT API " +
                  std::to_string(api->pjrt_api_version.major_version) + "." +
                  std::to_string(api->pjrt_api_version.minor_version) + ") has no " +
                  std::string(entry));
}

}  // namespace postern::internal::pjrt
