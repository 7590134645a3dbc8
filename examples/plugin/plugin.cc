// The plug-in: FFI handlers for attention, forward and backward, and the override that brings them
// to the block.
#include <postern/library.h>
#include <xla/ffi/api/ffi.h>

#include "attention.h"
#include "kernel.h"
#include "share.h"

namespace {

namespace ffi = xla::ffi;
namespace pn = postern;
using Result = ffi::Result<ffi::AnyBuffer>;

/// The matrix number `i` of buffers of shape [..., length, depth].
struct Heads {
  std::int64_t count = 1, length, depth;
  bool bf16;
  explicit Heads(const ffi::AnyBuffer& q) : bf16(q.element_type() == ffi::BF16) {
    const auto dims = q.dimensions();
    for (std::size_t i = 0; i + 2 < dims.size(); ++i) count *= dims[i];
    length = dims[dims.size() - 2];
    depth = dims[dims.size() - 1];
  }
  template <class Byte = std::byte>
  Byte* at(void* data, std::int64_t i) const {
    return reinterpret_cast<Byte*>(static_cast<std::byte*>(data) +
                                   i * length * depth * (bf16 ? 2 : 4));
  }
};

kernel::Head head_of(const Heads& h, std::int64_t i, ffi::AnyBuffer q, ffi::AnyBuffer k,
                     ffi::AnyBuffer v, bool causal, double scale) {
  return {h.at(q.untyped_data(), i),
          h.at(k.untyped_data(), i),
          h.at(v.untyped_data(), i),
          h.length,
          h.depth,
          h.bf16,
          causal,
          static_cast<float>(scale)};
}

ffi::Error run_forward(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k, ffi::AnyBuffer v,
                       void* out, float* lse, bool causal, double scale) {
  const Heads h(q);
  const std::int64_t tiles = kernel::tiles(h.length);
  share(pool, h.count * tiles, [&, h](std::int64_t job) {
    const std::int64_t i = job / tiles;
    kernel::forward(head_of(h, i, q, k, v, causal, scale), tiles - 1 - job % tiles, h.at(out, i),
                    lse ? lse + i * h.length : nullptr);
  });
  return ffi::Error::Success();
}

ffi::Error only_out(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k, ffi::AnyBuffer v,
                    Result out, bool causal, double scale) {
  return run_forward(pool, q, k, v, out->untyped_data(), nullptr, causal, scale);
}
ffi::Error out_and_lse(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k, ffi::AnyBuffer v,
                       Result out, Result lse, bool causal, double scale) {
  return run_forward(pool, q, k, v, out->untyped_data(), static_cast<float*>(lse->untyped_data()),
                     causal, scale);
}

ffi::Error cotangents(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k, ffi::AnyBuffer v,
                      ffi::AnyBuffer out, ffi::AnyBuffer lse, ffi::AnyBuffer d_out, Result dq,
                      Result dk, Result dv, bool causal, double scale) {
  const Heads h(q);
  share(pool, h.count, [&, h](std::int64_t i) {
    kernel::backward(head_of(h, i, q, k, v, causal, scale), h.at(out.untyped_data(), i),
                     static_cast<const float*>(lse.untyped_data()) + i * h.length,
                     h.at(d_out.untyped_data(), i), h.at(dq->untyped_data(), i),
                     h.at(dk->untyped_data(), i), h.at(dv->untyped_data(), i));
  });
  return ffi::Error::Success();
}

auto operands() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>();
}
XLA_FFI_DEFINE_HANDLER(attention_forward, only_out,
                       operands().Ret<ffi::AnyBuffer>().Attr<bool>("causal").Attr<double>("scale"));
XLA_FFI_DEFINE_HANDLER(
    attention_with_lse, out_and_lse,
    operands().Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Attr<bool>("causal").Attr<double>(
        "scale"));
XLA_FFI_DEFINE_HANDLER(attention_backward, cotangents,
                       operands()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Attr<bool>("causal")
                           .Attr<double>("scale"));

pn::FfiTarget target(const char* name, const Attention& c) {
  return {name, {{"causal", pn::Attribute(c.causal)}, {"scale", c.scale}}};
}

/// f32 or bf16, all of one shape.
bool accepts(const Attention&, std::span<const pn::Type> x) {
  return (x[0].dtype == pn::DType::f32 || x[0].dtype == pn::DType::bf16) && x[0].rank() >= 2 &&
         x[0] == x[1] && x[0] == x[2];
}

std::pair<std::vector<pn::Tensor>, std::vector<pn::Tensor>> forward_rule(
    const Attention& c, std::span<const pn::Tensor> x) {
  const pn::Type lse{pn::DType::f32, pn::Dims(x[0].dims().begin(), x[0].dims().end() - 1)};
  const auto [out, kept] =
      pn::ffi_call(target("example_attention_with_lse", c), std::pair{x[0].type(), lse},
                   pn::VmapMethod::broadcast_all, x[0], x[1], x[2]);
  return {{out}, {x[0], x[1], x[2], out, kept}};
}

std::vector<pn::Tensor> backward_rule(const Attention& c, std::span<const pn::Tensor> kept,
                                      std::span<const pn::Tensor> ct) {
  const pn::Type type = kept[0].type();
  const auto [dq, dk, dv] = pn::ffi_call(
      target("example_attention_backward", c), std::tuple{type, type, type},
      pn::VmapMethod::broadcast_all, kept[0], kept[1], kept[2], kept[3], kept[4], ct[0]);
  return {dq, dk, dv};
}

void load() {
  pn::register_ffi_handler("example_attention", attention_forward);
  pn::register_ffi_handler("example_attention_with_lse", attention_with_lse);
  pn::register_ffi_handler("example_attention_backward", attention_backward);
  pn::override_block<Attention>({.platform = "cpu",
                                 .when = accepts,
                                 .target = "example_attention",
                                 .vjp = {.forward = forward_rule, .backward = backward_rule},
                                 .batch = pn::VmapMethod::broadcast_all});
}

}  // namespace

POSTERN_LIBRARY("attention", "1.0", load)
