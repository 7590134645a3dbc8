// vmap on leaves.
#include <postern/ops.h>
#include <postern/transforms.h>

#include "core/check.h"
#include "transform/axis.h"
#include "transform/batch.h"
#include "transform/walk.h"

namespace postern::detail {
using namespace internal;

namespace {

/// Returns the axis counted from the front.
int normal(int axis, std::int64_t rank, const char* what, std::size_t leaf, const Type& type) {
  check(axis >= -rank && axis < rank, "vmap: {} of leaf {} is {}, out of range for {}", what, leaf,
        axis, to_string(type));
  if (axis < 0) return static_cast<int>(axis + rank);
  return axis;
}

/// Checks axes and sizes, and returns the size of the batch. `types` become those of one element,
/// `axes` count from the front, -1 for what is unmapped.
std::int64_t batch_size(Types& types, std::vector<int>& axes, std::optional<std::int64_t> size) {
  std::size_t first = types.size();
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (axes[i] == unmapped) {
      axes[i] = -1;
      continue;
    }
    axes[i] = normal(axes[i], types[i].rank(), "in_axes", i, types[i]);
    const auto axis = types[i].dims.begin() + axes[i];
    if (!size) {
      size = *axis;
      first = i;
    }
    std::string given = "axis_size says";
    if (first < i) given = fmt::format("that of leaf {}", first);
    check(*axis == *size, "vmap: the batch axis {} of leaf {}, {}, must have {} elements as {}",
          axes[i], i, to_string(types[i]), *size, given);
    types[i].dims.erase(axis);
  }
  check(size.has_value(), "vmap: no argument is mapped, so axis_size is needed");
  check(*size >= 0, "vmap: axis_size must be 0 or more, got {}", *size);
  return *size;
}

}  // namespace

Tensors vmap(const TensorFunction& f, const Tensors& x, const std::vector<int>& in_axes,
             FunctionRef<std::vector<int>()> out_axes, std::optional<std::int64_t> axis_size,
             const std::string& axis_name, const Place& place) {
  PlaceScope at(place);
  for (const Tensor& t : x)
    check(t.has_value(), "vmap: an argument is an empty Tensor, one that was never given a value");
  Types types = types_of(x);
  std::vector<int> axes = in_axes;
  const std::int64_t size = batch_size(types, axes, axis_size);
  BatchAxisPtr axis;
  if (!axis_name.empty()) axis = std::make_shared<const BatchAxis>(BatchAxis{axis_name, size});
  const Closed closed = [&] {
    const AxisScope named(axis);
    return trace_user("vmap", types, f);
  }();
  const BatchScope batching(axis);
  auto [y, from] = batch_of(closed, x, axes, size);
  const std::vector<int> to = out_axes();
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (to[i] == unmapped) {
      check(from[i] < 0,
            "vmap: out_axes says that result {} is unmapped, but it depends on a mapped argument",
            i);
      continue;
    }
    const std::int64_t rank = y[i].rank() + (from[i] < 0);
    y[i] = move_batch(y[i], from[i], normal(to[i], rank, "out_axes", i, y[i].type()), size);
  }
  return std::move(y);
}

}  // namespace postern::detail
