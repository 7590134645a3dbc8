// How programs run outside of any trace: what trace/'s Evaluator stands for.
#pragma once
#include "trace/elsewhere.h"
#include "trace/trace.h"

namespace postern::internal::run {

Tensors evaluate_equation(const Primitive& primitive, const ParamsPtr& params, TensorSpan operands);
Tensors evaluate_program(const ProgramPtr& program, TensorSpan inputs);
/// And its Elsewhere.
Tensors call_on_device(int device, const detail::TensorFunction& f, TensorSpan x, bool in_site);
void trace_for_device(int device, const std::function<void()>& act);

}  // namespace postern::internal::run
