// NumPy's file formats: .npy, and .npz, which is an uncompressed zip of them.
#pragma once
#include <postern/view.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "zip.h"

namespace postern::internal::formats {

/// Returns the dtype that NumPy reads this one as: itself, or f32 for the narrow floats that it
/// does not know, s8 and u8 for narrow integers.
POSTERN_API DType npy_dtype(DType dtype);

/// Returns how NumPy spells a dtype that npy_dtype leaves as it is: "<f4".
const char* npy_descriptor(DType dtype);

/// Returns the array's elements as npy_dtype's.
POSTERN_API std::vector<std::byte> npy_data(const AnyView& array);

/// Returns the header of an array of this type, which npy_dtype leaves as it is.
POSTERN_API std::string npy_header(const Type& type);
/// Returns the header of an array of rows, padded so that it can be written again with another
/// number of rows.
POSTERN_API std::string npy_header(DType dtype, std::int64_t rows, const Dims& row);

/// Makes an array one of the files of a .npz.
POSTERN_API ZipFile npz_entry(const std::string& name, std::string header,
                              std::span<const std::byte> data = {});

}  // namespace postern::internal::formats
