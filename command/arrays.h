// Arrays that a user gives.
#pragma once
#include <postern/file.h>
#include <postern/tensor.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace command {

/// The arrays given by a user for what the program takes. `named`: files whose arrays have inputs'
/// names; those left over are `inputs`, in order: files, or numbers as text. Throws Problem.
std::vector<postern::Tensor> read_inputs(const std::vector<std::string>& inputs,
                                         const std::vector<std::string>& named,
                                         const postern::Loaded& program);

/// Compares results with the arrays of a .npz file, which have the results' names or are in their
/// order, or of a .npy file: prints a line for each. Whether each is within `tolerance` of what is
/// expected, or of so many parts of it where that is more than 1. Throws Problem for a file with
/// other arrays than the results are.
bool as_expected(const std::vector<postern::Tensor>& results, const postern::Loaded& program,
                 const std::string& file, double tolerance);

/// All elements in nested lists, as many digits as tell them. What JSON lacks are the texts "NaN",
/// "Infinity" and "-Infinity", complex numbers the pair of their parts.
nlohmann::json json_of(const postern::Tensor& array);

}  // namespace command
