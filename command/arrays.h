// Arrays from files and text, and back.
#pragma once
#include <postern/tensor.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace command {

/// A .npy header, read through `take`, which gives exactly so many bytes: the type of the array
/// that follows, row-major and little-endian. Throws Problem for what is none, or is in column
/// order.
postern::Type read_npy_header(const std::string& who,
                              const std::function<void(void* to, std::size_t bytes)>& take);
/// The whole .npy message for an array in memory.
std::string npy_message(const postern::Type& type, const void* data);

/// The arrays of the inputs given by a user, in order, for a program that takes these types: files,
/// or numbers as text. Throws Problem.
std::vector<postern::Tensor> read_inputs(const std::vector<std::string>& inputs,
                                         const std::vector<postern::Type>& types);
void write_npy(const std::string& path, const postern::Tensor& tensor);

/// As NumPy would print it.
std::string text_of(const postern::Tensor& tensor);

}  // namespace command
