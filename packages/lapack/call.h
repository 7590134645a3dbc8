// Reading the call frame of one of jaxlib's LAPACK targets.
#pragma once
#include <fmt/format.h>
#include <postern/error.h>
#include <postern/type.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "frame.h"
#include "lapack.h"

namespace postern_lapack::lapack {

using namespace postern;

using Extents = std::initializer_list<Int>;

/// What a target was called with. It comes from a file, so whatever is asked for is checked first,
/// and what does not fit throws an Error that says what was needed. The first operand says what the
/// leading axes are: all but its last `inner`.
class Call {
 public:
  Call(const XLA_FFI_CallFrame* frame, std::size_t operands, std::size_t results, std::size_t inner)
      : frame_(frame) {
    require(ffi::operands(frame).size() == operands && ffi::results(frame).size() == results, [&] {
      return fmt::format("it has {} operands and {} results, LAPACK's target takes {} and gives {}",
                         ffi::operands(frame).size(), ffi::results(frame).size(), operands,
                         results);
    });
    const auto dims = ffi::dims_of(ffi::operands(frame)[0]);
    require(dims.size() >= inner, [&] {
      return fmt::format("operand 0 has {} axes, {} are needed", dims.size(), inner);
    });
    leading_ = dims.first(dims.size() - inner);
    count = std::accumulate(leading_.begin(), leading_.end(), std::int64_t{1}, std::multiplies<>());
  }

  std::int64_t count = 0;  // how many problems

  /// An extent of operand i, counted from its end.
  Int extent(std::size_t i, std::size_t from_end) const {
    const auto dims = ffi::dims_of(ffi::operands(frame_)[i]);
    require(dims.size() >= from_end, [&] {
      return fmt::format("operand {} has {} axes, {} are needed", i, dims.size(), from_end);
    });
    const std::int64_t n = dims[dims.size() - from_end];
    require(n <= std::numeric_limits<Int>::max(), [&] {
      return fmt::format("operand {} has an extent of {}, too large for LAPACK", i, n);
    });
    return static_cast<Int>(n);
  }
  /// Rows, and columns, of operand 0, which must be a square.
  Int square() const {
    const Int n = extent(0, 1);
    require(extent(0, 2) == n,
            [&] { return fmt::format("its matrices are {} by {}, not square", extent(0, 2), n); });
    return n;
  }

  template <class T>
  const T* operand(std::size_t i, Extents extents) const {
    return buffer<T>("operand", i, ffi::operands(frame_)[i], extents);
  }
  template <class T>
  T* result(std::size_t i, Extents extents) const {
    return buffer<T>("result", i, ffi::results(frame_)[i], extents);
  }
  /// Result i begins as operand j, in whose memory it may lie.
  template <class T>
  T* updated(std::size_t i, std::size_t j, Extents extents) const {
    const T* from = operand<T>(j, extents);
    T* to = result<T>(i, extents);
    std::size_t n = size_of(count);
    for (const Int e : extents) n *= size_of(e);
    if (from != to) std::copy_n(from, n, to);
    return to;
  }

  /// An attribute that is one of these letters.
  char letter(std::string_view name, std::string_view letters) const {
    const std::int64_t value = number(name);
    require(value > 0 && value < 128 &&
                letters.find(static_cast<char>(value)) != std::string_view::npos,
            [&] {
              return fmt::format("attribute '{}' is {}, one of the letters {} is needed", name,
                                 value, letters);
            });
    return static_cast<char>(value);
  }
  std::int64_t number(std::string_view name) const {
    const auto value = ffi::small_attribute(frame_, name);
    require(value.has_value(),
            [&] { return fmt::format("integer attribute '{}' is missing", name); });
    return *value;
  }

  template <class Why>
  static void require(bool ok, Why why) {
    if (!ok) throw Error(ErrorCode::invalid_argument, why());
  }

 private:
  template <class T>
  T* buffer(const char* what, std::size_t i, const XLA_FFI_Buffer* b, Extents extents) const {
    Dims wanted(leading_.begin(), leading_.end());
    wanted.insert(wanted.end(), extents.begin(), extents.end());
    const std::optional<DType> dtype = ffi::dtype_of(b);
    const auto dims = ffi::dims_of(b);
    require(dtype == dtype_v<T> && std::ranges::equal(dims, wanted), [&] {
      return fmt::format("{} {} must be {}, got {}[{}]", what, i,
                         to_string(Type{dtype_v<T>, wanted}),
                         dtype ? to_string(*dtype) : "another element type", fmt::join(dims, ","));
    });
    return static_cast<T*>(b->data);
  }

  const XLA_FFI_CallFrame* const frame_;
  std::span<const std::int64_t> leading_;
};

/// Calls run(i) for each problem of the batch.
template <class Run>
void each(const Call& call, Run run) {
  for (std::int64_t i = 0; i < call.count; ++i) run(size_of(i));
}

}  // namespace postern_lapack::lapack
