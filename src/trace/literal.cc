// Numbers in programs and in host memory.
#include "trace/literal.h"

#include <Eigen/Core>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.h"
#include "core/text.h"
#include "trace/trace.h"

namespace postern::internal {

namespace {

Types literal_type(const Params* params, TypeSpan) { return {as<LiteralParams>(*params).type}; }

template <class T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

Number of_real(double x) { return {Number::Kind::real, 0, x, 0}; }
Number of_complex(std::complex<double> z) { return {Number::Kind::complex, 0, z.real(), z.imag()}; }

/// Converts a float to an integer dtype as XLA does: stops at the dtype's ends, nan is 0. Of u64
/// the result has the bits.
std::int64_t saturated(double x, DType dtype) {
  if (std::isnan(x)) return 0;
  const int width = bit_width(dtype);
  const int unused = 64 - width;
  if (is_signed(dtype)) {
    const std::int64_t most = std::numeric_limits<std::int64_t>::max() >> unused;
    const double beyond = std::ldexp(1.0, width - 1);  // which is exact, as `most` may not be
    if (x >= beyond) return most;
    if (x <= -beyond) return -most - 1;
    return static_cast<std::int64_t>(x);
  }
  if (x >= std::ldexp(1.0, width)) return static_cast<std::int64_t>(~std::uint64_t{0} >> unused);
  if (x <= 0) return 0;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(x));
}

/// Converts the number to an integer dtype as XLA does: integers wrap around, floats saturate.
std::int64_t to_integer(const Number& n, DType dtype) {
  if (n.kind == Number::Kind::real || n.kind == Number::Kind::complex)
    return saturated(n.real, dtype);
  // Shifting up and down again leaves the dtype's bits, with its sign in front.
  const int unused = 64 - bit_width(dtype);
  const auto bits = static_cast<std::uint64_t>(n.integer) << unused;
  if (is_signed(dtype)) return static_cast<std::int64_t>(bits) >> unused;
  return static_cast<std::int64_t>(bits >> unused);
}

/// Returns x rounded to odd, a float from which f16 and bf16 are rounded as from x itself: where it
/// is not exact it is the float next to x towards zero, with its last bit set, so that x, when it
/// is just beside the middle of two of their numbers, is not taken for that middle.
float rounded_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  if (std::isnan(x) || static_cast<double>(nearest) == x) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  const bool away_from_zero = std::abs(static_cast<double>(nearest)) > std::abs(x);
  if (away_from_zero) --bits;  // the next float towards zero, of either sign
  return std::bit_cast<float>(bits | 1);
}

/// Returns the real part as a double from which the dtype's numbers are rounded as from the number
/// itself: an integer beyond the 53 bits of a double is rounded to odd, so as not to be so twice.
double real_for(DType dtype, const Number& n) {
  const bool is_exact = n.integer == 0 || std::abs(n.real) < 0x1p53;
  if (is_exact || real_dtype(dtype) == DType::f64) return n.real;
  // The upper 53 of the 64 bits; where the lower 11 are not zero, the last of these is set.
  const int cut_off = (n.integer & 0x7ff) != 0;
  if (n.kind == Number::Kind::integer)
    return 0x1p11 * static_cast<double>(n.integer >> 11 | cut_off);
  const auto natural = static_cast<std::uint64_t>(n.integer) >> 11;
  return 0x1p11 * static_cast<double>(natural | static_cast<std::uint64_t>(cut_off));
}

/// Returns the number as the dtype has it, which is what XLA sees.
Number as_dtype(const Number& n, DType dtype) {
  if (!is_number(dtype)) return n;
  std::complex<double> bytes;
  write_number(n, dtype, &bytes);
  return read_number(dtype, &bytes);
}

/// Returns a real number, or a part of a complex one, as StableHLO writes it: with as many digits
/// as tell floats or doubles apart; what is not finite as the bits of the type, in hexadecimal.
std::string real_text(double x, DType dtype) {
  const DType real = real_dtype(dtype);
  // Now, or the text would be rounded to its digits before it is to the dtype.
  x = as_dtype(of_real(x), real).real;
  if (std::isfinite(x)) {
    const bool is_float = static_cast<double>(static_cast<float>(x)) == x;
    if (is_float && real != DType::f64) return fmt::format("{:.9e}", x);
    return fmt::format("{:.17e}", x);
  }
  std::uint64_t bits = 0;
  write_number(of_real(x), real, &bits);
  return fmt::format("0x{:0{}X}", bits, 2 * byte_width(real));
}

}  // namespace

FieldChain<2> LiteralParams::fields(Fields sink) const {
  return sink.field("value", literal_text(number, type.dtype)).field("type", type);
}

const Primitive literal_p{
    .name = "literal", .hlo = "constant", .type = literal_type, .no_derivative = true};

bool is_number(DType dtype) { return dtype < DType::f8e5m2; }

Number read_number(DType dtype, const void* from) {
  switch (dtype) {
    case DType::pred: return integer_number(load<bool>(from));
    case DType::s2:
    case DType::s4:
    case DType::s8: return integer_number(load<std::int8_t>(from));
    case DType::s16: return integer_number(load<std::int16_t>(from));
    case DType::s32: return integer_number(load<std::int32_t>(from));
    case DType::s64: return integer_number(load<std::int64_t>(from));
    case DType::u2:
    case DType::u4:
    case DType::u8: return natural_number(load<std::uint8_t>(from));
    case DType::u16: return natural_number(load<std::uint16_t>(from));
    case DType::u32: return natural_number(load<std::uint32_t>(from));
    case DType::u64: return natural_number(load<std::uint64_t>(from));
    case DType::f16: return of_real(static_cast<double>(load<Eigen::half>(from)));
    case DType::bf16: return of_real(static_cast<double>(load<Eigen::bfloat16>(from)));
    case DType::f32: return of_real(static_cast<double>(load<float>(from)));
    case DType::f64: return of_real(load<double>(from));
    case DType::c64: return of_complex(std::complex<double>(load<std::complex<float>>(from)));
    case DType::c128: return of_complex(load<std::complex<double>>(from));
    default:
      throw_type_error(
          fmt::format("a number of dtype {} cannot be read on the host", to_string(dtype)));
  }
}

void write_number(const Number& n, DType dtype, void* to) {
  switch (dtype) {
    case DType::pred: return store(to, !is_zero(n));
    case DType::s2:
    case DType::s4:
    case DType::s8:
    case DType::u2:
    case DType::u4:
    case DType::u8: return store(to, static_cast<std::int8_t>(to_integer(n, dtype)));
    case DType::s16:
    case DType::u16: return store(to, static_cast<std::int16_t>(to_integer(n, dtype)));
    case DType::s32:
    case DType::u32: return store(to, static_cast<std::int32_t>(to_integer(n, dtype)));
    case DType::s64:
    case DType::u64: return store(to, to_integer(n, dtype));
    case DType::f16: return store(to, Eigen::half(rounded_to_odd(real_for(dtype, n))));
    case DType::bf16: return store(to, Eigen::bfloat16(rounded_to_odd(real_for(dtype, n))));
    case DType::f32: return store(to, static_cast<float>(real_for(dtype, n)));
    case DType::f64: return store(to, n.real);
    case DType::c64:
      return store(to, std::complex<float>(std::complex(real_for(dtype, n), n.imag)));
    case DType::c128: return store(to, std::complex<double>(n.real, n.imag));
    default:
      throw_type_error(
          fmt::format("a number of dtype {} cannot be written on the host", to_string(dtype)));
  }
}

std::string literal_text(const Number& n, DType dtype) {
  if (dtype == DType::pred) return bool_text(!is_zero(n));
  if (is_unsigned(dtype))
    return fmt::format("{}", static_cast<std::uint64_t>(to_integer(n, dtype)));
  if (is_signed(dtype)) return fmt::format("{}", to_integer(n, dtype));
  if (is_complex(dtype))
    return fmt::format("({}, {})", real_text(real_for(dtype, n), dtype), real_text(n.imag, dtype));
  return real_text(real_for(dtype, n), dtype);
}

bool holds(DType dtype, const Number& n) {
  if (dtype == DType::f8e8m0fnu) return std::isnan(n.real) || n.real > 0;  // powers of two alone
  if (dtype == DType::f4e2m1fn) return std::isfinite(n.real);
  if (!is_integer(dtype)) return true;
  if (n.kind == Number::Kind::real || n.kind == Number::Kind::complex) return true;  // saturate
  if (to_integer(n, dtype) != n.integer) return false;  // it would wrap around
  if (n.integer >= 0) return true;
  // These 64 bits are a negative integer, or a natural number from 2^63 on.
  if (is_signed(dtype)) return n.kind == Number::Kind::integer;
  return n.kind == Number::Kind::natural;
}

Tensor full_of(const Number& number, const Type& type) {
  if (Trace::current() || !is_number(type.dtype))
    return bind1(literal_p, make_params(LiteralParams{as_dtype(number, type.dtype), type}), {});
  const std::size_t width = byte_width(type.dtype), bytes = type.byte_size();
  std::shared_ptr<void> data = detail::aligned_bytes(bytes);
  if (bytes > 0) {
    auto* to = static_cast<unsigned char*>(data.get());
    write_number(number, type.dtype, to);
    for (std::size_t filled = width; filled < bytes; filled *= 2)
      std::memcpy(to + filled, to, std::min(filled, bytes - filled));
  }
  return detail::Access::make(std::make_shared<detail::HostValue>(type, std::move(data)));
}

const detail::HostValue* host_scalar(const Tensor& tensor) {
  const detail::HostValue* host = detail::Access::host(tensor);
  if (!host || !host->type.dims.empty() || !is_number(host->type.dtype)) return nullptr;
  if (std::get_deleter<detail::DropsOwner>(host->data)) return nullptr;  // see there
  return host;
}

}  // namespace postern::internal
