// Tapes of loops that are evaluated step by step: what control/loop_tape.h says of them.
#pragma once
#include "control/loop_tape.h"

namespace postern::internal::run {

void write_tapes(std::int64_t k, Tensors& tickets, TensorSpan leaves,
                 const LoopTapeOptions& options);
Tensors read_tapes(std::int64_t k, TensorSpan tickets, const Types& steps);
std::shared_ptr<const void> tapes_of(const Tensor& ticket);
Tensor keeping_tapes(const Tensor& tickets, std::vector<std::shared_ptr<const void>> tapes);

}  // namespace postern::internal::run
