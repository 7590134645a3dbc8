// How programs run outside of any trace: what trace/'s Evaluator stands for.
#pragma once
#include "trace/trace.h"

namespace postern::internal::run {

Tensors evaluate_equation(const Primitive& primitive, const ParamsPtr& params, TensorSpan operands);
Tensors evaluate_program(const ProgramPtr& program, TensorSpan inputs);

}  // namespace postern::internal::run
