// The type of a tensor: element type and extents.
#pragma once
#include <postern/detail/api.h>
#include <postern/dtype.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace postern {

using Dims = std::vector<std::int64_t>;

/// Element type and extents; `dims` empty is a scalar (rank 0). Prints as "f32[2,3]". May be read
/// by several threads at once.
/// A weak type comes from a C++ number in an expression: it gives way to the other operand's dtype,
/// as in JAX.
struct Type {
  DType dtype = DType::f32;
  Dims dims;
  bool weak = false;

  /// How many axes, elements, and bytes. Only `size` and `byte_size` throw.
  std::int64_t rank() const { return static_cast<std::int64_t>(dims.size()); }
  POSTERN_API std::int64_t size()
      const;  // number of elements; throws TypeError when it exceeds 63 bits
  POSTERN_API std::size_t byte_size() const;  // on the host; likewise a TypeError
  bool operator==(const Type&) const = default;
};

/// `type<float>({2, 3})` is f32[2,3]. Throws TypeError for a negative extent, for more bytes than
/// 63 bits count, and for DType::token.
POSTERN_API Type make_type(DType dtype, Dims dims);
template <Element T>
Type type(Dims dims = {}) {
  return make_type(dtype_v<T>, std::move(dims));
}

/// As types, lists of them and extents are written in errors and prints. They throw nothing.
POSTERN_API std::string to_string(const Type& type);                         // "f32[2,3]"
POSTERN_API std::string to_string(std::span<const Type> types);              // "(f32[2], s32[])"
POSTERN_API std::string dims_to_string(std::span<const std::int64_t> dims);  // "[2,3]"

}  // namespace postern
