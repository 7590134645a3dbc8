// The format of safetensors files: how long the head is, a head of JSON, and the tensors' bytes.
#pragma once
#include <postern/tensor.h>
#include <postern/type.h>

#include <string>
#include <string_view>
#include <vector>

namespace postern::internal::formats {

/// A tensor of a file. Its bytes are row-major and begin at `offset`, `type.byte_size()` of them.
struct StoredTensor {
  std::string name;
  Type type;
  std::size_t offset = 0;  // from the file's beginning
};

/// Returns what stands before the bytes of these tensors, which follow it in this order without
/// gaps; fills in their offsets. Dtypes that the format lacks are written as bytes, with a note
/// that our reader understands. It has a multiple of so many bytes, `multiple` being one of 8
/// itself. Throws TypeError for a name that is empty, no UTF-8, or there twice.
POSTERN_API std::string safetensors_head(std::vector<StoredTensor>& tensors,
                                         std::size_t multiple = 8);

/// Returns the tensors of a file, in the order of their bytes. Nothing that the file says is
/// believed: the tensors' bytes are there, and cover all that follows the head, each byte once.
/// Throws Error: invalid_argument for what is no such file, data_loss for one that is cut short,
/// unimplemented for a dtype that Postern lacks.
POSTERN_API std::vector<StoredTensor> read_safetensors_head(std::string_view file);

}  // namespace postern::internal::formats
