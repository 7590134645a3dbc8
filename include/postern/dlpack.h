// DLPack's exchange of arrays with other libraries (https://dmlc.github.io/dlpack; the structure
// without version).
#pragma once
#include <postern/detail/api.h>
#include <postern/tensor.h>

struct DLManagedTensor;

namespace postern {

/// Takes the array over, and calls its deleter once: row-major memory is used as by Tensor::borrow,
/// other is copied. The dtype and extents are kept. Throws TypeError for what is null, is not on
/// the CPU or has no dtype; the array is then still the caller's.
POSTERN_API Tensor from_dlpack(DLManagedTensor* managed, Place place = Place::current());
/// Waits for the data, and shows it without a copy on CPU: nobody may write to it while others have
/// the tensor. Throws as Tensor::read does, and TypeError for a dtype that DLPack has not.
POSTERN_API DLManagedTensor* to_dlpack(const Tensor& tensor, Place place = Place::current());

}  // namespace postern
