// Shape operations that other families build on, on bare tensors.
#pragma once
#include "core/primitive.h"

namespace postern::internal {

extern const Primitive convert_p, broadcast_p, reshape_p, transpose_p;

Tensor convert_to(const Tensor& x, DType dtype, bool weak = false);
/// Returns the dtype to compute in. Numbers of 2 or 4 bits have a byte or more each in what XLA:CPU
/// cannot do with fewer bits; all other dtypes are as they are.
DType unpacked_dtype(DType dtype);
inline Tensor unpacked(const Tensor& x) { return convert_to(x, unpacked_dtype(x.dtype())); }
/// Converts a factor to the dtype of a product, integers of less than a byte to bytes: the low bits
/// of sums of products are the same.
Tensor as_factor(const Tensor& x, const Type& type);
/// Does as NumPy's broadcast_to: new axes in front, extents of 1 stretched.
Tensor broadcast_to_dims(const Tensor& x, const Dims& dims);
/// Does as StableHLO's broadcast_in_dim: axis i of `x` becomes axis `axes[i]`.
Tensor broadcast_in_dim(const Tensor& x, const Dims& dims, const Dims& axes);

}  // namespace postern::internal
