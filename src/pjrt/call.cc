// Turning PJRT's errors into Postern's.
#include "pjrt/call.h"

#include <cxxabi.h>

#include <new>

namespace postern::internal::pjrt {

Failure take_failure(const PJRT_Api* api, PJRT_Error* error) {
  auto message = make_args<PJRT_Error_Message_Args>();
  message.error = error;
  api->PJRT_Error_Message(&message);
  auto code = make_args<PJRT_Error_GetCode_Args>();
  code.error = error;
  Failure failure;
  failure.text.assign(message.message, message.message_size);
  if (PJRT_Error* second = api->PJRT_Error_GetCode(&code)) {
    auto destroy = make_args<PJRT_Error_Destroy_Args>();
    destroy.error = second;
    api->PJRT_Error_Destroy(&destroy);
  } else {
    failure.code = static_cast<ErrorCode>(number_of(code.code));  // the same numbers
  }
  // XLA:CPU loses the code of an allocation that fails when a run has begun.
  if (failure.code == ErrorCode::internal &&
      failure.text.find("Out of memory allocating") != std::string::npos)
    failure.code = ErrorCode::resource_exhausted;
  auto destroy = make_args<PJRT_Error_Destroy_Args>();
  destroy.error = error;
  api->PJRT_Error_Destroy(&destroy);
  return failure;
}

void throw_error(const PJRT_Api* api, PJRT_Error* error, std::string_view what) {
  Failure failure = take_failure(api, error);
  throw Error(failure.code, "XLA failed " + std::string(what) + ": " + failure.text);
}

void throw_thrown(std::string_view what) {
  const std::string failed = "XLA failed " + std::string(what) + ": ";
  try {
    throw;
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::resource_exhausted, failed + "there is no memory for it");
  } catch (const std::exception& e) {
    throw Error(ErrorCode::internal, failed + e.what());
  } catch (const abi::__forced_unwind&) {  // no error: a thread that is ended unwinds so
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
