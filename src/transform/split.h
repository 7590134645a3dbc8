// Splitting a program by what is known of its inputs: a known half that can run at once, and an
// unknown half that needs the first one's residuals. With the tangents as what is unknown, the
// unknown half is the linear map of reverse mode.
#pragma once
#include "trace/trace.h"

namespace postern::internal {

/// What the split rule of a primitive gives: the results that are known, written into the current
/// trace, and an equation for the rest.
struct Primitive::SplitResult {
  struct Source {
    Tensor known;
    int operand = -1;  // where that is empty: which operand of the equation, an unknown one
  };
  Tensors known;                         // by result of the equation; empty: unknown
  const Primitive* primitive = nullptr;  // of the rest; null: there is none
  ParamsPtr params;
  std::vector<Source> operands;
  std::vector<int>
      results;  // by result of the rest: which result of the equation it is; -1: none of them
};

struct Halves {
  ProgramPtr known;                   // known inputs -> known outputs, residuals
  ProgramPtr unknown;                 // residuals, unknown inputs -> unknown outputs
  std::vector<bool> unknown_outputs;  // by output of the program
  std::size_t residuals = 0;
};

/// Makes what a split rule gives when the known half has run: its first results are those that
/// `unknown` does not mark, in order; the rest is `primitive` of `residuals` and of the operands
/// that are empty in `x`, and makes the others.
Primitive::SplitResult split_result(const Primitive& primitive, ParamsPtr params,
                                    const std::vector<bool>& unknown, TensorSpan known,
                                    TensorSpan residuals, TensorSpan x);

/// Splits by which inputs are unknown. Outputs that `force` marks become unknown even when they
/// could be known.
Halves split(const Program& program, const std::vector<bool>& unknown,
             const std::vector<bool>& force = {});

}  // namespace postern::internal
