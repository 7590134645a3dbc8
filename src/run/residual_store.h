// Residual stores of loops that are evaluated step by step: what control/residual_store.h says of
// them.
#pragma once
#include "control/residual_store.h"

namespace postern::internal::run {

void write_residuals(std::int64_t k, Tensors& tickets, TensorSpan leaves,
                     const ResidualOptions& options);
Tensors read_residuals(std::int64_t k, TensorSpan tickets, const Types& steps);
std::shared_ptr<const void> stores_of(const Tensor& ticket);
void keep_stores(Tensor& tickets);
/// Makes what a program has made of tickets keep their stores.
void keep_stores(std::span<const Tensor* const> operands, std::span<Tensor> results);

}  // namespace postern::internal::run
