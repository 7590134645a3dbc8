// Stores of loops that are evaluated step by step: what control/residual_store.h says of them.
#pragma once
#include "control/residual_store.h"

namespace postern::internal::run {

void write_residuals(std::int64_t k, Tensors& handles, TensorSpan leaves,
                     const ResidualOptions& options);
Tensors read_residuals(std::int64_t k, TensorSpan handles, const Types& steps);
std::shared_ptr<const void> owner_of(const Tensor& handle);
void keep_owned(Tensor& handles);
/// Makes what a program has made of handles keep what is behind them.
void keep_owned(std::span<const Tensor* const> operands, std::span<Tensor> results);
/// Makes the handles of calls that were started outside of programs keep these.
void own_calls(Tensor& handles);

}  // namespace postern::internal::run
