// Attention as a block: what programs use. A process that loads the plug-in gets its kernel, any
// other the default.
#pragma once
#include <postern/postern.h>

/// Identity and configuration. `scale` is usually 1 / sqrt(depth).
struct Attention {
  static constexpr std::string_view name = "example.attention";
  bool causal = false;
  double scale = 1;
};

/// softmax(q k^T * scale) v in ordinary operations, computed in f32.
inline postern::Tensor attention_by_default(const Attention& config, postern::Tensor q,
                                            postern::Tensor k, postern::Tensor v) {
  namespace pn = postern;
  const pn::Tensor x = pn::convert(q, pn::DType::f32), y = pn::convert(k, pn::DType::f32);
  pn::Tensor scores = pn::matmul(x, pn::move_axis(y, -1, -2)) * config.scale;
  if (config.causal) {
    const std::int64_t n = scores.dims().back();
    const pn::Tensor row = pn::iota({pn::DType::s32, {n, n}}, 0),
                     column = pn::iota({pn::DType::s32, {n, n}}, 1);
    scores = pn::where(column <= row, scores, -1e30f);
  }
  return pn::convert(pn::matmul(pn::softmax(scores), pn::convert(v, pn::DType::f32)), q.dtype());
}

/// The same as one step, for q, k and v of shape [..., length, depth]; causal: query i sees keys 0
/// to i.
inline postern::Tensor attention(const Attention& config, postern::Tensor q, postern::Tensor k,
                                 postern::Tensor v) {
  return postern::block(config, attention_by_default, q, k, v);
}
