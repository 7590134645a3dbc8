// Reading and answering XLA's call frame, as its C header lays it out.
#pragma once
#include <postern/dtype.h>
#include <postern/error.h>
#include <xla/ffi/api/c_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace postern_lapack::ffi {

using postern::DType;

/// XLA asks each handler once what it is, with a frame that holds nothing else. True if this is
/// such a frame; it is then answered. The version is the lowest that runtimes still accept.
inline bool answer_metadata(XLA_FFI_CallFrame* frame) {
  for (XLA_FFI_Extension_Base* at = frame->extension_start; at; at = at->next) {
    if (at->type != XLA_FFI_Extension_Metadata) continue;
    XLA_FFI_Metadata* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(at)->metadata;
    metadata->api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, 0, 1};
    metadata->traits = 0;
    if (metadata->struct_size >=
        offsetof(XLA_FFI_Metadata, state_type_id) + sizeof metadata->state_type_id)
      metadata->state_type_id = XLA_FFI_UNKNOWN_TYPE_ID;
    return true;
  }
  return false;
}

/// The error that a handler returns; XLA copies the text and frees the error.
inline XLA_FFI_Error* make_error(const XLA_FFI_CallFrame* frame, postern::ErrorCode code,
                                 const char* text) {
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = text;
  args.errc = XLA_FFI_Error_Code_UNKNOWN;  // also for reasons that are Postern's own
  if (static_cast<int>(code) <= XLA_FFI_Error_Code_UNAUTHENTICATED)
    args.errc = static_cast<XLA_FFI_Error_Code>(code);
  return frame->api->XLA_FFI_Error_Create(&args);
}

/// The integer attribute of that name, of at most 32 bits or boolean; nothing if there is no such
/// one.
inline std::optional<std::int64_t> small_attribute(const XLA_FFI_CallFrame* frame,
                                                   std::string_view name) {
  const XLA_FFI_Attrs& attrs = frame->attrs;
  for (std::int64_t i = 0; i < attrs.size; ++i) {
    if (attrs.types[i] != XLA_FFI_AttrType_SCALAR ||
        std::string_view(attrs.names[i]->ptr, attrs.names[i]->len) != name)
      continue;
    const auto* scalar = static_cast<const XLA_FFI_Scalar*>(attrs.attrs[i]);
    switch (scalar->dtype) {
      case XLA_FFI_DataType_PRED: return *static_cast<const bool*>(scalar->value);
      case XLA_FFI_DataType_U8: return *static_cast<const std::uint8_t*>(scalar->value);
      case XLA_FFI_DataType_S32: return *static_cast<const std::int32_t*>(scalar->value);
      default: return std::nullopt;
    }
  }
  return std::nullopt;
}

/// Operands and results of a call, in order. All are buffers: version 0.1 knows nothing else.
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

/// Nothing for types narrower than a byte, which LAPACK has nothing to do with.
inline std::optional<DType> dtype_of(const XLA_FFI_Buffer* buffer) {
  static constexpr std::pair<XLA_FFI_DataType, DType> known[] = {
      {XLA_FFI_DataType_PRED, DType::pred}, {XLA_FFI_DataType_S8, DType::s8},
      {XLA_FFI_DataType_S16, DType::s16},   {XLA_FFI_DataType_S32, DType::s32},
      {XLA_FFI_DataType_S64, DType::s64},   {XLA_FFI_DataType_U8, DType::u8},
      {XLA_FFI_DataType_U16, DType::u16},   {XLA_FFI_DataType_U32, DType::u32},
      {XLA_FFI_DataType_U64, DType::u64},   {XLA_FFI_DataType_F16, DType::f16},
      {XLA_FFI_DataType_BF16, DType::bf16}, {XLA_FFI_DataType_F32, DType::f32},
      {XLA_FFI_DataType_F64, DType::f64},   {XLA_FFI_DataType_C64, DType::c64},
      {XLA_FFI_DataType_C128, DType::c128}};
  for (const auto& [code, dtype] : known)
    if (code == buffer->dtype) return dtype;
  return std::nullopt;
}

}  // namespace postern_lapack::ffi
