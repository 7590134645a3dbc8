// Elements of any dtype as numbers.
#pragma once
#include <postern/detail/api.h>
#include <postern/view.h>

namespace postern::internal::host {

/// Reads any element that is real (floats of all widths, integers, pred), exact up to 53 bits.
POSTERN_API double real_at(DType dtype, const std::byte* data, std::int64_t i);
/// Reads real and imaginary part; 0 for what is real.
POSTERN_API std::pair<double, double> complex_at(DType dtype, const std::byte* data,
                                                 std::int64_t i);

}  // namespace postern::internal::host
