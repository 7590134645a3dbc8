// How programs run outside of any trace: what trace/'s Evaluator stands for.
#pragma once
#include "trace/trace.h"

namespace postern::run {

Tensors evaluate_equation(const Primitive& primitive, const ParamsPtr& params,
                          std::span<const Tensor> operands);
Tensors evaluate_program(const ProgramPtr& program, std::span<const Tensor> inputs);

}  // namespace postern::run
