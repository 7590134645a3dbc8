// Arrays that a user gives.
#pragma once
#include <postern/tensor.h>

#include <string>
#include <vector>

namespace command {

/// The arrays of the inputs given by a user, in order, for a program that takes these types: files,
/// or numbers as text. Throws Problem.
std::vector<postern::Tensor> read_inputs(const std::vector<std::string>& inputs,
                                         const std::vector<postern::Type>& types);

}  // namespace command
