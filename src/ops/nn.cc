// Functions of neural networks, made of others.
#include <postern/detail/transform_core.h>
#include <postern/indexing.h>
#include <postern/nn.h>
#include <postern/random.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "ops/axes.h"
#include "ops/elementwise.h"
#include "ops/family.h"
#include "ops/index.h"
#include "ops/reduce.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

void require_real(const char* op, const Tensor& x) {
  check(!is_complex(x.dtype()), "{}: real numbers are needed, got {}", op, to_string(x.type()));
}

/// `f` of an activation's operand, in f32 or wider, brought back to the operand's dtype.
template <class F>
Tensor activation(const char* op, const Operand& operand, F&& f) {
  PlaceScope at(operand.place());
  require_real(op, operand.tensor());
  const Tensor x = as_float(operand.tensor());
  return convert_to(f(convert_to(x, sum_dtype(x.dtype()))), x.dtype(), x.type().weak);
}

/// Returns each example's loss from the class that it belongs to: logsumexp(logits) less the logit
/// of the class. No label counts from the end: a negative one is out of range too, and gives NaN.
Tensor loss_of_classes(const Tensor& logits, const Tensor& labels, std::int64_t axis) {
  const Dims examples = pick(logits.dims(), other_axes(logits.rank(), {axis}));
  check(labels.dims() == examples, "cross_entropy: integer labels must be of shape {}, got {}",
        dims_to_string(examples), to_string(labels.type()));
  const Tensor place = wide_indices("cross_entropy", labels, at(logits.dims(), axis));
  const Tensor none = full(place.type(), std::numeric_limits<std::int32_t>::max());
  const Tensor known = expand_dims(where(place < 0, none, place), axis);
  const Tensor chosen = take_along_axis(logits, known, axis);
  return logsumexp(logits, {.axes = Dims{axis}}) - squeeze(chosen, {axis});
}

/// Returns each example's loss from the probabilities of all classes, in their and x's common
/// dtype.
Tensor loss_of_shares(const Type& x, const Tensor& logits, const Tensor& labels,
                      std::int64_t axis) {
  check(is_float(labels.dtype()) && labels.dims() == logits.dims(),
        "cross_entropy: labels must be integers, or floats of shape {}, got {}",
        dims_to_string(logits.dims()), to_string(labels.type()));
  const DType dtype = promote("cross_entropy", x, labels.type()).dtype;
  return convert_to(-sum(labels * log_softmax(logits, axis), {.axes = Dims{axis}}), dtype);
}

}  // namespace

Tensor relu(const Operand& operand) {
  PlaceScope at(operand.place());
  const Tensor& x = operand.tensor();
  require_real("relu", x);
  // Where x is not positive nothing moves the result, which is NaN where x is.
  return where(x > 0, x, detail::stop_gradient(maximum(x, 0), PlaceScope::current()));
}

Tensor gelu(const Operand& operand, bool approximate) {
  return activation("gelu", operand, [&](const Tensor& x) {
    if (!approximate) return 0.5 * x * erfc(x * -std::sqrt(0.5));
    const double scale = std::sqrt(2 * std::numbers::inv_pi);
    return x * (0.5 * (1 + tanh(scale * (x + 0.044715 * (x * x * x)))));
  });
}

Tensor silu(const Operand& operand) {
  return activation("silu", operand, [](const Tensor& x) { return x * logistic(x); });
}

Tensor dropout(const Operand& key, const Operand& operand, double rate) {
  PlaceScope at(operand.place());
  check(rate >= 0 && rate <= 1, "dropout: the rate must be from 0 to 1, got {}", rate);
  require_real("dropout", operand.tensor());
  const Tensor x = as_float(operand.tensor());
  // Drawn whatever the rate is, so that a wrong key is always refused.
  const Tensor kept = random::bernoulli(key, static_cast<float>(1 - rate), x.dims());
  const Tensor none = zeros_like(x);
  if (rate == 0) return x;
  if (rate == 1) return none;  // x / 0 has no derivative
  return where(kept, x / (1 - rate), none);
}

Tensor cross_entropy(const Operand& operand, const Operand& labels_operand, std::int64_t axis) {
  PlaceScope at(operand.place());
  const Tensor& labels = labels_operand.tensor();
  require_real("cross_entropy", operand.tensor());
  const Tensor x = as_float(operand.tensor());
  const Tensor logits = convert_to(x, sum_dtype(x.dtype()));
  axis = normal_axis("cross_entropy", axis, x.rank());
  if (is_integer(labels.dtype()))
    return convert_to(loss_of_classes(logits, labels, axis), x.dtype());
  return loss_of_shares(x.type(), logits, labels, axis);
}

}  // namespace postern
