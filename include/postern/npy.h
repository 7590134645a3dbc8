// NumPy's files: arrays to and from .npy and .npz.
//
//   write_npy("weights.npy", w);
//   for (const auto& [name, array] : read_npz("model.npz")) ...
//
// Arrays are row-major and little-endian, of pred, s8 to s64, u8 to u64, f16, f32, f64, c64 or
// c128. Of other dtypes they are written as what NumPy knows and holds all of them: bf16 and the
// floats of 8 and 4 bits as f32, integers of 4 and 2 bits as those of 8. Of ml_dtypes' arrays those
// of bfloat16 and float8_e5m2 are read; of the others a file does not say which they are.
//
// Every function throws errors that name the file: Error(not_found) or Error(unavailable) when it
// cannot be read or written, Error(invalid_argument) when it is no array, Error(data_loss) when it
// is cut short or damaged, Error(unimplemented) for a dtype or an order of elements that Postern
// does not have; TypeError for tensors that are traced, which have no data.
#pragma once
#include <postern/detail/api.h>
#include <postern/tensor.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace postern {

/// Returns the array of a .npy file.
[[nodiscard]] POSTERN_API Tensor read_npy(const std::filesystem::path& file);
/// Makes `file` hold the value, all of it or, with an error, what it held before. Waits for it.
POSTERN_API void write_npy(const std::filesystem::path& file, const Tensor& value,
                           Place place = Place::current());

/// Arrays by name, as `numpy.savez` gets and `numpy.load` gives them.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
/// Returns the arrays of a .npz file, in its order, compressed or not; their names without ".npy".
[[nodiscard]] POSTERN_API NamedTensors read_npz(const std::filesystem::path& file);
/// Writes a .npz file, not compressed, like write_npy; as ZIP64, like NumPy, where it has more than
/// 4 GiB or 65534 arrays. Throws TypeError for a name that is empty, stands twice, is no UTF-8 or
/// holds a NUL.
POSTERN_API void write_npz(const std::filesystem::path& file, const NamedTensors& arrays,
                           Place place = Place::current());

/// Returns the bytes of a .npy file, for pipes and sockets. Throws TypeError for a dtype that NumPy
/// does not have.
[[nodiscard]] POSTERN_API std::string npy_bytes(const AnyView& array,
                                                Place place = Place::current());
/// Returns the type of the array that follows a .npy header. `take` gives exactly so many bytes of
/// it. Errors as above, without a file's name.
POSTERN_API Type read_npy_header(const std::function<void(void* to, std::size_t bytes)>& take);

}  // namespace postern
