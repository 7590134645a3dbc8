// Types of Postern and of torch, and torch tensors over memory of Postern.
#pragma once
#include <ATen/core/Tensor.h>
#include <postern/error.h>
#include <postern/type.h>

#include <span>
#include <string>

namespace postern::torch {

/// Whether torch has tensors of that dtype.
bool torch_has(DType dtype);
/// Throws TypeError where the other side has none.
at::ScalarType scalar_type_of(DType dtype);
DType dtype_of(at::ScalarType type);
Type type_of(const at::Tensor& tensor);
bool differentiable(const at::Tensor& tensor);

/// Between torch's gradients of complex numbers and ours, whose conjugates they are.
at::Tensor conjugate(const at::Tensor& t);

/// A row-major tensor over memory that stays somebody else's.
at::Tensor over(const void* data, std::span<const std::int64_t> dims, DType dtype);

/// What a function of torch threw, without the backtrace in its text.
[[noreturn]] void rethrow_shortly();

}  // namespace postern::torch
