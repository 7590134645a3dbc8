// Loops: their rules, and binding them.
#pragma once
#include "control/control.h"
#include "transform/split.h"

namespace postern::internal {

/// A list of operands, or of their tangents, in its parts; before them come those that the body is
/// not given.
struct ScanParts {
  TensorSpan constants, carry, xs;
  ScanParts(TensorSpan own_constants, TensorSpan own_carry, TensorSpan own_xs)
      : constants(own_constants), carry(own_carry), xs(own_xs) {}
  ScanParts(const ScanParams& p, TensorSpan x)
      : constants(x.subspan(p.first_operand(), p.constants)),
        carry(x.subspan(p.first_operand() + p.constants, p.carries)),
        xs(x.subspan(p.first_operand() + p.constants + p.carries)) {}
};

/// The same of a while.
struct WhileParts {
  TensorSpan condition_constants, body_constants, carry;
  WhileParts(const WhileParams& p, TensorSpan x)
      : condition_constants(x.first(p.condition_constants)),
        body_constants(x.subspan(p.condition_constants, p.body_constants)),
        carry(x.subspan(p.condition_constants + p.body_constants)) {}
};

Jvp scan_jvp(const Op& op, TensorSpan x, TensorSpan dx);
Tensors scan_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types);
Primitive::SplitResult scan_split(const Op& op, TensorSpan x, const std::vector<bool>& wanted);
Batched scan_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                   const Tensor& mask);

Primitive::SplitResult while_split(const Op& op, TensorSpan x, const std::vector<bool>& wanted);

Batched while_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                    const Tensor& mask);

/// Returns a while's body as that of an offloaded scan without xs, for what the rules of both
/// share.
ScanParams scan_of_body(const WhileParams& p);

/// A loop's body with its tangents. Constants and carry have theirs behind them.
struct StepJvp {
  Closed body;
  Tensors constants, carry;
  std::vector<bool> carry_moves, ys_move;
};
StepJvp step_jvp(const ScanParams& p, const ScanParts& of, const ScanParts& tangent);

/// Binds a scan like `p` with another body, which takes (what it captured, constants, the step's
/// number if p.counted, carry, slices of xs). `steps`: of one that is offloaded.
Tensors bind_scan(ScanParams p, const Closed& body, TensorSpan constants, TensorSpan carry,
                  TensorSpan xs, const Tensor& steps = {});

/// Binds a while like `p` with other programs, which take (what they captured, their constants, the
/// carry).
Tensors bind_while(WhileParams p, const Closed& condition, const Closed& body,
                   TensorSpan condition_constants, TensorSpan body_constants, TensorSpan carry);

/// Traces a while like `p` and binds it: `more` of the carry says whether to go on, `body` makes
/// the next one. Both may capture.
template <class More>
Tensors trace_while(const WhileParams& p, const Tensors& carry, const More& more,
                    const TensorFunction& body) {
  const Closed condition = trace_inner("condition", types_of(carry),
                                       [&](TensorSpan in) { return Tensors{more(in)}; }),
               step = trace_inner("body", types_of(carry), body);
  return bind_while(p, condition, step, {}, {}, carry);
}

}  // namespace postern::internal
