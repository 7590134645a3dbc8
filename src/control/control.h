// Control flow as equations that hold programs. A body's captured tensors are operands of the
// equation, and so inputs of the body.
#pragma once
#include "analysis/control_flow.h"
#include "ops/family.h"
#include "transform/alive.h"
#include "transform/batch.h"
#include "transform/jvp.h"
#include "transform/walk.h"

namespace postern::internal {

/// Adds what `more` marks to `mask`, which may be empty yet.
inline void join(std::vector<bool>& mask, const std::vector<bool>& more) {
  mask.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) mask[i] = mask[i] || more[i];
}

extern const Primitive cond_p, while_p, scan_p, offloaded_while_p, offloaded_scan_p;

inline const Primitive& scan_primitive(bool offloaded) {
  if (offloaded) return offloaded_scan_p;
  return scan_p;
}

/// Brings programs that captured different tensors to the same inputs: the captures of all, each
/// tensor once, then their own inputs. Returns these captures.
Tensors join_captures(std::vector<Closed>& programs);

/// Makes an integer scalar of that dtype.
inline Tensor integer_of(std::int64_t i, DType dtype) {
  return full_of({Number::Kind::integer, i, static_cast<double>(i), 0}, {dtype, {}});
}

/// Returns the types of both, one after the other.
inline Types joined_types(TensorSpan a, TensorSpan b) { return types_of(joined({a, b})); }

/// Returns the type with an axis of that extent in front, and of one slice along the first axis.
Type stacked_type(const Type& type, std::int64_t length);
Type slice_type_of(const Type& type);

/// Refuses a carry that the body gives back with other types. A weak leaf adopts the body's dtype
/// instead; returns whether one has changed so, and the body has to be traced again.
bool settle_carry(const char* what, Tensors& carry, const Types& body_gives,
                  const std::vector<std::string>& paths);

/// Selects `x` where `mask` (a pred for each element of the batch, x's first axis), else `y`.
Tensor select_elements(const Tensor& mask, const Tensor& x, const Tensor& y);

/// Writes a `case`: `branch(b)` writes the b-th region and gives its values, which have these
/// types. The tokens of ordered effects go through.
std::vector<Ssa> write_case(Lowering& out, Ssa index, std::size_t branches, const Types& types,
                            bool ordered,
                            const std::function<std::vector<Ssa>(std::size_t)>& branch);

}  // namespace postern::internal
