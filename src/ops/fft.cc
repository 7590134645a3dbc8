// Fourier transforms.
#include <postern/signal.h>

#include <algorithm>

#include "ops/family.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

struct FftParams {
  const char* kind;  // StableHLO's: FFT, IFFT, RFFT, IRFFT
  Dims lengths;
  bool is(std::string_view name) const { return kind == name; }
};

Types fft_type(const Params* params, TypeSpan operands) {
  const auto& p = as<FftParams>(*params);
  const Type& x = operands[0];
  const std::size_t n = p.lengths.size();
  const bool from_real = p.is("RFFT"), to_real = p.is("IRFFT");
  if (from_real)
    check(x.dtype == DType::f32 || x.dtype == DType::f64, "fft: {} takes f32 or f64, got {}",
          p.kind, to_string(x));
  else
    check(is_complex(x.dtype), "fft: {} takes complex numbers, got {}", p.kind, to_string(x));
  check(n >= 1 && n <= 3 && x.dims.size() >= n,  // fft_c1, fft_c3
        "fft: 1 to 3 axes can be transformed, asked for {} of {}", n, to_string(x));
  Type out{x.dtype, x.dims};
  if (from_real) out.dtype = complex_dtype(x.dtype);
  if (to_real) out.dtype = real_dtype(x.dtype);
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t& extent = out.dims[x.dims.size() - n + i];
    // Of the last axis the complex side has the first half alone: the rest mirrors it.
    const std::int64_t half = p.lengths[i] / 2 + 1;
    const bool is_last = i + 1 == n;
    const std::int64_t want = to_real && is_last ? half : p.lengths[i];
    check(want > 0, "fft: axis {} from the end of {} must have 1 or more elements", n - i,
          to_string(x));
    check(extent == want,  // fft_c4, fft_c5
          "fft: axis {} from the end of {} must have {} elements", n - i, to_string(x), want);
    extent = from_real && is_last ? half : p.lengths[i];
  }
  return {std::move(out)};
}

Tensor bind_fft(const char* kind, const Dims& lengths, const Tensor& x);

/// Puts zeros behind the last axis of z up to `extent` elements.
Tensor extended(const Tensor& z, std::int64_t extent) {
  Dims low(z.dims().size(), 0), high = low;
  high.back() = extent - z.dims().back();
  return pad(z, zeros_of({z.dtype(), {}}), low, high);
}

/// Returns the cotangent of an IRFFT, which divides by the count of elements: RFFT, where all but
/// the first number of the half (and, for even lengths, the last) stand for two.
Tensor irfft_cotangent(const Dims& lengths, const Tensor& ct) {
  const std::int64_t n = lengths.back(), half = n / 2 + 1;
  const Tensor x = bind_fft("RFFT", lengths, ct);
  const Tensor index = iota({DType::s32, {half}}, 0);
  const Tensor once =
      equal(index, 0) | (n % 2 == 0 ? equal(index, half - 1) : zeros({DType::pred, {half}}));
  double count = 1;
  for (const std::int64_t length : lengths) count *= static_cast<double>(length);
  const Tensor weights = where(once, Tensor(1.0 / count), Tensor(2.0 / count));
  return conj(x * convert(weights, ct.dtype()));
}

/// Returns ct transformed the same way, of whole transforms. RFFT transforms, then keeps the first
/// half: its transpose puts zeros for the rest, transforms and keeps the real part.
Tensors fft_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan) {
  const auto& p = op.as<FftParams>();
  if (p.is("RFFT")) return {real(bind_fft("FFT", p.lengths, extended(ct[0], p.lengths.back())))};
  if (p.is("IRFFT")) return {irfft_cotangent(p.lengths, ct[0])};
  return {bind_fft(p.kind, p.lengths, ct[0])};
}

void fft_lower(Lowering& out, const Equation& e) {
  const auto& p = as<FftParams>(*e.params);
  out.simple(e, "fft",
             fmt::format("fft_type = #stablehlo<fft_type {}>, fft_length = {}", p.kind,
                         array_text(p.lengths)));
}

constexpr Primitive fft_p = linear("fft", "fft", fft_type, fft_transpose, front_batch, fft_lower);
static_assert(complete(fft_p));

Tensor bind_fft(const char* kind, const Dims& lengths, const Tensor& x) {
  return bind1(fft_p, make_params(FftParams{kind, lengths}), {x});
}

/// Returns the last `axes` extents; what fft_type would refuse, here in the name of the caller.
Dims lengths_of(const char* op, const Tensor& x, std::int64_t axes) {
  check(axes >= 1 && axes <= 3 && axes <= x.rank(),
        "{}: 1 to 3 of the axes of {} can be transformed, asked for {}", op, to_string(x.type()),
        axes);
  return Dims(x.dims().end() - axes, x.dims().end());
}

Tensor as_complex(const Tensor& x) {
  if (is_complex(x.dtype())) return x;
  return convert_to(x, complex_dtype(x.dtype()));
}

}  // namespace

Tensor fft(const Operand& x, std::int64_t axes) {
  PlaceScope at(x.place());
  return bind_fft("FFT", lengths_of("fft", x.tensor(), axes), as_complex(x.tensor()));
}

Tensor ifft(const Operand& x, std::int64_t axes) {
  PlaceScope at(x.place());
  return bind_fft("IFFT", lengths_of("ifft", x.tensor(), axes), as_complex(x.tensor()));
}

Tensor rfft(const Operand& x, std::int64_t axes) {
  PlaceScope at(x.place());
  check(!is_complex(x.tensor().dtype()), "rfft: the input must be real, got {}",
        to_string(x.tensor().type()));
  Tensor real = x.tensor();
  if (real.dtype() != DType::f64) real = convert_to(real, DType::f32);
  return bind_fft("RFFT", lengths_of("rfft", real, axes), real);
}

Tensor irfft(const Operand& x, std::int64_t axes, std::optional<std::int64_t> n) {
  PlaceScope at(x.place());
  Tensor z = as_complex(x.tensor());
  Dims lengths = lengths_of("irfft", z, axes);
  lengths.back() = n.value_or(2 * (lengths.back() - 1));
  check(lengths.back() > 0, "irfft: the result's last axis must have 1 or more elements, got {}",
        lengths.back());
  const std::int64_t want = lengths.back() / 2 + 1, has = z.dims().back();
  if (want < has) z = slice_axis(z, -1, 0, want);
  if (want > has) z = extended(z, want);
  return bind_fft("IRFFT", lengths, z);
}

}  // namespace postern
