// Tapes of loops that are evaluated step by step: what control/loop_tape.h says of them.
#pragma once
#include "control/loop_tape.h"

namespace postern::internal::run {

void write_tapes(std::int64_t k, Tensors& tickets, TensorSpan leaves,
                 const LoopTapeOptions& options);
Tensors read_tapes(std::int64_t k, TensorSpan tickets, const Types& steps);
std::shared_ptr<const void> tapes_of(const Tensor& ticket);
void keep_tapes(Tensor& tickets);
/// Makes what a program has made of tickets keep their tapes.
void keep_tapes(std::span<const Tensor* const> operands, std::span<Tensor> results);

}  // namespace postern::internal::run
