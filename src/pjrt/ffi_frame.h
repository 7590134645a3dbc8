// Reading and answering XLA's call frame: what a handler written in C does on the hot path. Nothing
// here allocates, except an error.
#pragma once
#include "pjrt/dtype_codes.h"
#include "pjrt/number_of.h"

#include <postern/error.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include <xla/ffi/api/c_api.h>

namespace postern::internal::pjrt {

/// The FFI version that our handlers claim: the lowest that runtimes still accept, whatever the
/// header's is.
inline constexpr int ffi_api_major = 0;
inline constexpr int ffi_api_minor = 1;

/// Answers what XLA asks each handler once: what it is, with a frame that holds nothing else. True
/// if this is such a frame; it is then answered, and the handler must return null.
inline bool answer_metadata(XLA_FFI_CallFrame* frame, XLA_FFI_Handler_Traits traits = 0,
                            XLA_FFI_TypeId state = XLA_FFI_UNKNOWN_TYPE_ID) {
  for (XLA_FFI_Extension_Base* at = frame->extension_start; at; at = at->next) {
    if (number_of(at->type) != XLA_FFI_Extension_Metadata) continue;
    XLA_FFI_Metadata* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(at)->metadata;
    metadata->api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, ffi_api_major,
                             ffi_api_minor};
    metadata->traits = traits;
    if (metadata->struct_size >=
        offsetof(XLA_FFI_Metadata, state_type_id) + sizeof metadata->state_type_id)
      metadata->state_type_id = state;
    return true;
  }
  return false;
}

/// Makes the error that a handler returns; XLA copies `text` (null-terminated) and frees the error.
inline XLA_FFI_Error* make_error(const XLA_FFI_CallFrame* frame, ErrorCode code, const char* text) {
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = text;
  // Postern's own reasons have no number of XLA's.
  args.errc = static_cast<XLA_FFI_Error_Code>(
      static_cast<int>(code) <= XLA_FFI_Error_Code_UNAUTHENTICATED ? code : ErrorCode::unknown);
  return frame->api->XLA_FFI_Error_Create(&args);
}

namespace detail {
/// Asks XLA through an entry of its table; false if it refused, and the error is freed.
template <class Args>
bool ask(const XLA_FFI_CallFrame* frame, XLA_FFI_Error* (*entry)(Args*), Args& args) {
  XLA_FFI_Error* error = entry(&args);
  if (!error) [[likely]]
    return true;
  XLA_FFI_Error_Destroy_Args destroy{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
  frame->api->XLA_FFI_Error_Destroy(&destroy);
  return false;
}
}  // namespace detail

/// Returns the pointer that the run's ExecuteContext holds for this type, or null if it holds none.
inline void* user_data(const XLA_FFI_CallFrame* frame, std::int64_t type_id) {
  XLA_FFI_TypeId id{type_id};
  XLA_FFI_ExecutionContext_Get_Args args{};
  args.struct_size = XLA_FFI_ExecutionContext_Get_Args_STRUCT_SIZE;
  args.ctx = frame->ctx;
  args.type_id = &id;
  return detail::ask(frame, frame->api->XLA_FFI_ExecutionContext_Get, args) ? args.data : nullptr;
}

/// Returns the run's id, which is its Launch::number, or 0.
inline std::int64_t run_id(const XLA_FFI_CallFrame* frame) {
  XLA_FFI_RunId_Get_Args args{};
  args.struct_size = XLA_FFI_RunId_Get_Args_STRUCT_SIZE;
  args.ctx = frame->ctx;
  return detail::ask(frame, frame->api->XLA_FFI_RunId_Get, args) ? args.run_id : 0;
}

/// Returns the ordinal of the device that runs the handler, or -1.
inline int device_ordinal(const XLA_FFI_CallFrame* frame) {
  XLA_FFI_DeviceOrdinal_Get_Args args{};
  args.struct_size = XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE;
  args.ctx = frame->ctx;
  return detail::ask(frame, frame->api->XLA_FFI_DeviceOrdinal_Get, args) ? args.device_ordinal : -1;
}

/// Returns the value of the integer attribute at a position of the (name-sorted) attributes. Null
/// if there is none there, or it is no 64-bit integer, or has another name.
inline const std::int64_t* int_attribute(const XLA_FFI_CallFrame* frame, std::int64_t position,
                                         std::string_view name) {
  const XLA_FFI_Attrs& attrs = frame->attrs;
  if (position >= attrs.size || number_of(attrs.types[position]) != XLA_FFI_AttrType_SCALAR)
      [[unlikely]]
    return nullptr;
  const XLA_FFI_ByteSpan& has = *attrs.names[position];
  if (has.len != name.size() || std::memcmp(has.ptr, name.data(), name.size()) != 0) [[unlikely]]
    return nullptr;
  const auto* scalar = static_cast<const XLA_FFI_Scalar*>(attrs.attrs[position]);
  if (number_of(scalar->dtype) != XLA_FFI_DataType_S64) [[unlikely]]
    return nullptr;
  return static_cast<const std::int64_t*>(scalar->value);
}

/// Returns the operands or results of a call, in order. All are buffers: version 0.1 knows nothing
/// else. Types below 8 bits are packed here, several elements a byte, the first in the lowest bits;
/// empty arrays may have a null pointer.
inline std::span<XLA_FFI_Buffer* const> operands(const XLA_FFI_CallFrame* frame) {
  return {reinterpret_cast<XLA_FFI_Buffer* const*>(frame->args.args),
          static_cast<std::size_t>(frame->args.size)};
}
inline std::span<XLA_FFI_Buffer* const> results(const XLA_FFI_CallFrame* frame) {
  return {reinterpret_cast<XLA_FFI_Buffer* const*>(frame->rets.rets),
          static_cast<std::size_t>(frame->rets.size)};
}

inline std::span<const std::int64_t> dims_of(const XLA_FFI_Buffer* buffer) {
  return {buffer->dims, static_cast<std::size_t>(buffer->rank)};
}

/// Returns false for an element type that Postern has no dtype for.
inline bool dtype_of(const XLA_FFI_Buffer* buffer, DType& dtype) {
  const auto code = static_cast<std::size_t>(number_of(buffer->dtype));
  if (code >= by_ffi_type.size() || by_ffi_type[code] < 0) [[unlikely]]
    return false;
  dtype = static_cast<DType>(by_ffi_type[code]);
  return true;
}

/// Has task(data) called on a thread of the runtime's pool that computes; false where there is no
/// pool.
inline bool schedule(const XLA_FFI_CallFrame* frame, XLA_FFI_Task* task, void* data) {
  XLA_FFI_ThreadPool_Schedule_Args args{};
  args.struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE;
  args.ctx = frame->ctx;
  args.task = task;
  args.data = data;
  return detail::ask(frame, frame->api->XLA_FFI_ThreadPool_Schedule, args);
}

/// What runtimes want to be told of the state of a call, by the minor version of their FFI: 1 has
/// the deleter here, 2 has it in the type's info, 3 asks for the stage. The header has version 1,
/// this is 3, to set and to get.
struct StateArgs3 {
  std::size_t struct_size = sizeof(StateArgs3);
  XLA_FFI_Extension_Base* extension_start = nullptr;
  XLA_FFI_ExecutionContext* ctx;
  XLA_FFI_ExecutionStage stage = XLA_FFI_ExecutionStage_INSTANTIATE;  // whose state it is
  XLA_FFI_TypeId* type_id;
  void* state = nullptr;
};
inline constexpr int last_known_ffi_minor = 5;  // of JAX 0.12

inline int ffi_minor(const XLA_FFI_CallFrame* frame) {
  return frame->api->api_version.minor_version;
}

namespace detail {
template <class Args>
bool ask3(const XLA_FFI_CallFrame* frame, XLA_FFI_Error* (*entry)(Args*), StateArgs3& args) {
  using Entry3 = XLA_FFI_Error*(StateArgs3*);
  return ask(frame, reinterpret_cast<Entry3*>(reinterpret_cast<void*>(entry)), args);
}
}  // namespace detail

/// Sets, in the instantiate stage, what later stages of this call get. The runtime deletes it, by
/// `deleter` or the one of the type's info. False when it refuses, or is one that is not known.
inline bool set_state(const XLA_FFI_CallFrame* frame, XLA_FFI_TypeId type, void* state,
                      void (*deleter)(void*)) {
  const int minor = ffi_minor(frame);
  if (minor < 1 || minor > last_known_ffi_minor) return false;
  if (minor >= 3) {
    StateArgs3 args{.ctx = frame->ctx, .type_id = &type, .state = state};
    return detail::ask3(frame, frame->api->XLA_FFI_State_Set, args);
  }
  XLA_FFI_State_Set_Args args{
      XLA_FFI_State_Set_Args_STRUCT_SIZE, nullptr, frame->ctx, &type, state, deleter};
  if (minor > 1) args.struct_size = offsetof(XLA_FFI_State_Set_Args, deleter);
  return detail::ask(frame, frame->api->XLA_FFI_State_Set, args);
}

/// Returns what set_state has given this call; null if it has none.
inline void* state_of(const XLA_FFI_CallFrame* frame, XLA_FFI_TypeId type) {
  const int minor = ffi_minor(frame);
  if (minor < 1 || minor > last_known_ffi_minor) [[unlikely]]
    return nullptr;
  if (minor >= 3) {
    StateArgs3 args{.ctx = frame->ctx, .type_id = &type};
    return detail::ask3(frame, frame->api->XLA_FFI_State_Get, args) ? args.state : nullptr;
  }
  XLA_FFI_State_Get_Args args{XLA_FFI_State_Get_Args_STRUCT_SIZE, nullptr, frame->ctx, &type,
                              nullptr};
  return detail::ask(frame, frame->api->XLA_FFI_State_Get, args) ? args.state : nullptr;
}

/// Returns the stream of a GPU handler (CUstream), or null.
inline void* stream_of(const XLA_FFI_CallFrame* frame) {
  XLA_FFI_Stream_Get_Args args{};
  args.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE;
  args.ctx = frame->ctx;
  return detail::ask(frame, frame->api->XLA_FFI_Stream_Get, args) ? args.stream : nullptr;
}

}  // namespace postern::internal::pjrt
