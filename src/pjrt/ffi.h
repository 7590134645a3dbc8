// The FFI extension: handlers that compiled programs call, and the user data that a run carries to
// them.
#pragma once
#include "pjrt/owned.h"
#include "pjrt/plugin.h"

#include <cstdint>
#include <string_view>

struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;

namespace postern::internal::pjrt {

using Handler = XLA_FFI_Error*(XLA_FFI_CallFrame*);

/// XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE: all that the handler does is to queue work.
inline constexpr int command_buffer_compatible = 1;

/// Makes `handler` the target `name` of custom calls with api_version 4. Again with the same
/// handler is harmless; with another it throws Error already_exists. `platform` is XLA's
/// name. Throws Error; unimplemented when the plug-in has no FFI extension.
void register_handler(const Plugin& plugin, std::string_view name, Handler* handler,
                      std::string_view platform, int traits = 0);

/// Registers a type of user data, and returns the id that XLA assigned; ask once per name and
/// process.
std::int64_t register_type(const Plugin& plugin, std::string_view name);

/// What a run carries to its handlers: at most one pointer per type id. Keep it until the run's
/// events are ready.
class ExecuteContext {
 public:
  explicit ExecuteContext(const Plugin& plugin);

  /// Adds `data`, which the context does not own.
  void add(std::int64_t type_id, void* data);

  explicit operator bool() const { return handle_ != nullptr; }
  PJRT_ExecuteContext* handle() const { return handle_.get(); }

 private:
  const Plugin* plugin_ = nullptr;
  Owned<PJRT_ExecuteContext> handle_;
};

}  // namespace postern::internal::pjrt
