// Lowering an operation as a composition of others.
#pragma once
#include "lower/lowering.h"
#include "trace/trace.h"

namespace postern {

/// Writes `f` of the equation's operands in the equation's place.
inline void lower_as(Lowering& out, const Equation& e, const TensorFunction& f) {
  std::vector<Type> types;
  std::vector<Ssa> inputs;
  for (std::size_t i = 0; i < e.operands.size(); ++i) {
    types.push_back(out.operand_type(e, i));
    inputs.push_back(out.operand(e, i));
  }
  const Closed closed = trace_program(e.primitive->name, types, f);
  const std::vector<Ssa> outputs = out.inlined(*closed.program, inputs);
  for (int i = 0; i < e.results; ++i) out.define(e, i, outputs[static_cast<std::size_t>(i)]);
}

}  // namespace postern
