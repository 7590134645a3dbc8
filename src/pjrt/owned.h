// Handles of PJRT's that have one owner.
#pragma once
#include <memory>

struct PJRT_Api;
struct PJRT_Buffer;
struct PJRT_Client;
struct PJRT_Event;
struct PJRT_Executable;
struct PJRT_ExecuteContext;
struct PJRT_LoadedExecutable;

namespace postern::internal::pjrt {

/// Frees a handle by its entry of the plug-in's table. Errors are forgotten: they can help nobody.
struct Free {
  const PJRT_Api* api = nullptr;
  void operator()(PJRT_Buffer* handle) const noexcept;
  void operator()(PJRT_Client* handle) const noexcept;
  void operator()(PJRT_Event* handle) const noexcept;
  void operator()(PJRT_Executable* handle) const noexcept;
  void operator()(PJRT_ExecuteContext* handle) const noexcept;
  void operator()(PJRT_LoadedExecutable* handle) const noexcept;
};

template <class Handle>
using Owned = std::unique_ptr<Handle, Free>;

}  // namespace postern::internal::pjrt
