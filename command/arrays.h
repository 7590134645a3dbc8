// Arrays that a user gives.
#pragma once
#include <postern/tensor.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace command {

/// The arrays of the inputs given by a user, in order, for a program that takes these types: files,
/// or numbers as text. Throws Problem.
std::vector<postern::Tensor> read_inputs(const std::vector<std::string>& inputs,
                                         const std::vector<postern::Type>& types);

/// All elements in nested lists, as many digits as tell them. What JSON lacks are the texts "NaN",
/// "Infinity" and "-Infinity", complex numbers the pair of their parts.
nlohmann::json json_of(const postern::Tensor& array);

}  // namespace command
