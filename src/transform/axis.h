// Batch axes with names: what elements of a vmap tell each other. Three primitives, of which the
// collectives are made, and which batching over their axis does away with.
#pragma once
#include "trace/trace.h"

#include <string>

namespace postern::internal {

/// Two of one name are different axes.
struct BatchAxis {
  std::string name;
  std::int64_t size;
};
using BatchAxisPtr = std::shared_ptr<const BatchAxis>;

/// While it lives, what is traced on this thread may name the axis (null: none).
class AxisScope : Scoped<const AxisScope*> {
 public:
  explicit AxisScope(BatchAxisPtr axis);
  /// Returns all that may be named, the innermost first.
  static std::vector<BatchAxisPtr> all();

 private:
  BatchAxisPtr axis_;
};

/// While it lives, nothing that is outside may be named: for what is traced as a function of its
/// operands alone.
class NoAxes : Scoped<const AxisScope*> {
 public:
  NoAxes();
};

/// While it lives, `batch_of` on this thread batches over the axis (null: over one without a name).
class BatchScope : Scoped<BatchAxisPtr> {
 public:
  explicit BatchScope(BatchAxisPtr axis);
  static const BatchAxisPtr& current();
};

/// Returns whether the equation, or one in its programs, is about that axis.
bool names_axis(const Equation& equation, const BatchAxis& axis);

/// Gathers x of all elements on a new first axis: the same for all elements.
Tensor gathered(const BatchAxisPtr& axis, const Tensor& x);
/// Exchanges rows: element i's row j of the result is element j's row i of x, whose first axis has
/// a row for each.
Tensor exchanged(const BatchAxisPtr& axis, const Tensor& x);
/// Computes which element it is, s32[].
Tensor position_along(const BatchAxisPtr& axis);

}  // namespace postern::internal
