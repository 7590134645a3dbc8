// The one table between Postern's dtypes and XLA's two numberings. For this folder and ffi_frame.h:
// it brings in the C headers.
#pragma once
#include <postern/dtype.h>
#include <postern/error.h>

#include <array>
#include <cstddef>
#include <string>

#include <pjrt_c_api.h>
#include <xla/ffi/api/c_api.h>

namespace postern::internal::pjrt {

struct DtypeCodes {
  DType dtype;
  PJRT_Buffer_Type buffer;
  XLA_FFI_DataType ffi;
};

inline constexpr std::array<DtypeCodes, dtype_count> dtype_codes = {{
    {DType::pred, PJRT_Buffer_Type_PRED, XLA_FFI_DataType_PRED},
    {DType::s2, PJRT_Buffer_Type_S2, XLA_FFI_DataType_S2},
    {DType::s4, PJRT_Buffer_Type_S4, XLA_FFI_DataType_S4},
    {DType::s8, PJRT_Buffer_Type_S8, XLA_FFI_DataType_S8},
    {DType::s16, PJRT_Buffer_Type_S16, XLA_FFI_DataType_S16},
    {DType::s32, PJRT_Buffer_Type_S32, XLA_FFI_DataType_S32},
    {DType::s64, PJRT_Buffer_Type_S64, XLA_FFI_DataType_S64},
    {DType::u2, PJRT_Buffer_Type_U2, XLA_FFI_DataType_U2},
    {DType::u4, PJRT_Buffer_Type_U4, XLA_FFI_DataType_U4},
    {DType::u8, PJRT_Buffer_Type_U8, XLA_FFI_DataType_U8},
    {DType::u16, PJRT_Buffer_Type_U16, XLA_FFI_DataType_U16},
    {DType::u32, PJRT_Buffer_Type_U32, XLA_FFI_DataType_U32},
    {DType::u64, PJRT_Buffer_Type_U64, XLA_FFI_DataType_U64},
    {DType::f16, PJRT_Buffer_Type_F16, XLA_FFI_DataType_F16},
    {DType::bf16, PJRT_Buffer_Type_BF16, XLA_FFI_DataType_BF16},
    {DType::f32, PJRT_Buffer_Type_F32, XLA_FFI_DataType_F32},
    {DType::f64, PJRT_Buffer_Type_F64, XLA_FFI_DataType_F64},
    {DType::c64, PJRT_Buffer_Type_C64, XLA_FFI_DataType_C64},
    {DType::c128, PJRT_Buffer_Type_C128, XLA_FFI_DataType_C128},
    {DType::f8e5m2, PJRT_Buffer_Type_F8E5M2, XLA_FFI_DataType_F8E5M2},
    {DType::f8e4m3fn, PJRT_Buffer_Type_F8E4M3FN, XLA_FFI_DataType_F8E4M3FN},
    {DType::f8e4m3b11fnuz, PJRT_Buffer_Type_F8E4M3B11FNUZ, XLA_FFI_DataType_F8E4M3B11FNUZ},
    {DType::f8e5m2fnuz, PJRT_Buffer_Type_F8E5M2FNUZ, XLA_FFI_DataType_F8E5M2FNUZ},
    {DType::f8e4m3fnuz, PJRT_Buffer_Type_F8E4M3FNUZ, XLA_FFI_DataType_F8E4M3FNUZ},
    {DType::f8e4m3, PJRT_Buffer_Type_F8E4M3, XLA_FFI_DataType_F8E4M3},
    {DType::f8e3m4, PJRT_Buffer_Type_F8E3M4, XLA_FFI_DataType_F8E3M4},
    {DType::f8e8m0fnu, PJRT_Buffer_Type_F8E8M0FNU, XLA_FFI_DataType_F8E8M0FNU},
    {DType::f4e2m1fn, PJRT_Buffer_Type_F4E2M1FN, XLA_FFI_DataType_F4E2M1FN},
    {DType::token, PJRT_Buffer_Type_TOKEN, XLA_FFI_DataType_TOKEN},
}};

/// From a code to the dtype, by index; -1 where there is none. Both numberings end below 64.
using CodeIndex = std::array<signed char, 64>;

template <auto Member>
constexpr CodeIndex index_by() {
  CodeIndex index{};
  for (auto& place : index) place = -1;
  for (const auto& row : dtype_codes)
    index[static_cast<std::size_t>(row.*Member)] = static_cast<signed char>(row.dtype);
  return index;
}
inline constexpr CodeIndex by_buffer_type = index_by<&DtypeCodes::buffer>();
inline constexpr CodeIndex by_ffi_type = index_by<&DtypeCodes::ffi>();

constexpr bool in_dtype_order() {
  for (std::size_t i = 0; i < dtype_codes.size(); ++i)
    if (dtype_codes[i].dtype != static_cast<DType>(i)) return false;
  return true;
}
static_assert(in_dtype_order(), "the row of a dtype stands at its number");

/// Returns what PJRT calls a dtype, and back; the way back throws Error for a code that Postern has
/// no dtype for.
inline PJRT_Buffer_Type to_buffer_type(DType dtype) {
  return dtype_codes[static_cast<std::size_t>(dtype)].buffer;
}
inline DType from_buffer_type(int code) {
  const auto place = static_cast<std::size_t>(code);
  if (place >= by_buffer_type.size() || by_buffer_type[place] < 0)
    throw Error(ErrorCode::unimplemented,
                "XLA gave an element type that Postern does not know: PJRT_Buffer_Type number " +
                    std::to_string(code));
  return static_cast<DType>(by_buffer_type[place]);
}

}  // namespace postern::internal::pjrt
