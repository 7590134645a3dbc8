// Functions of neural networks that are none of layers: activations, dropout, cross entropy. Those
// of optimizers are in optimize.h, first weights in initialize.h; softmax is in ops.h, layer_norm
// in reduce.h, conv in conv.h. Layers are structs of yours: see docs/cookbook.md.
//
// Every function throws TypeError for complex numbers, and for what else is said beside it.
#pragma once
#include <postern/detail/api.h>
#include <postern/tensor.h>

namespace postern {

/// Returns x where it is positive, else 0, of x's type; NaN stays. The slope at 0 is 0.
[[nodiscard]] POSTERN_API Tensor relu(const Operand& x);

// Of x's type; integers and pred become f32, f16 and bf16 are computed in f32.

/// Returns x times the distribution function of the normal distribution: approximated by tanh, as
/// jax.nn.gelu does, or, if not `approximate`, by erfc.
[[nodiscard]] POSTERN_API Tensor gelu(const Operand& x, bool approximate = true);
/// Returns x times logistic(x), also called swish.
[[nodiscard]] POSTERN_API Tensor silu(const Operand& x);

/// Returns x with elements replaced by 0, each with probability `rate`, and the others divided by
/// 1 - rate; of x's type, integers become f32. `key` is one of random.h, of its own for each step
/// and use. Throws TypeError for a rate outside of 0 to 1, and for what is no key.
///
///   const pn::Tensor x = pn::ones(pn::type<float>({100}));
///   const pn::Tensor y = pn::dropout(pn::random::key(1), x, 0.5);
///   const pn::Tensor largest = pn::max(y);  // 2
[[nodiscard]] POSTERN_API Tensor dropout(const Operand& key, const Operand& x, double rate);

/// Returns the cross entropy of softmax(logits) along `axis`, which disappears: one number for each
/// example, whose mean is a loss. `labels` are integers, of the shape without that axis (those out
/// of range give NaN), or floats, probabilities of the logits' shape: TypeError otherwise.
///
///   const pn::Tensor logits = pn::tensor<float>({{0, 0}, {100, 0}});
///   const pn::Tensor y = pn::cross_entropy(logits, pn::tensor<int>({1, 0}));  // [0.6931472 0]
[[nodiscard]] POSTERN_API Tensor cross_entropy(const Operand& logits, const Operand& labels,
                                               std::int64_t axis = -1);

}  // namespace postern
