// Lowering an operation as a composition of others.
#pragma once
#include "lower/lowering.h"
#include "trace/trace.h"

namespace postern::internal {

/// Converts a value of the module to another dtype.
inline Ssa converted(Lowering& out, Ssa x, const Type& from, const Type& to) {
  if (from.dtype == to.dtype) return x;
  return out.op("convert", {x}, {&from}, to);
}

/// Writes `f` of the equation's operands in the equation's place.
inline void lower_as(Lowering& out, const Equation& e, const TensorFunction& f) {
  std::vector<Type> types;
  for (std::size_t i = 0; i < e.operands.size(); ++i) types.push_back(out.operand_type(e, i));
  const Closed closed = trace_program(e.primitive->name, types, f);
  out.define_all(e, out.inlined(*closed.program, out.operands(e)));
}

}  // namespace postern::internal
