// The type of a tensor: element type and extents.
#pragma once
#include <postern/detail/api.h>
#include <postern/dtype.h>
#include <postern/place.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace postern {

using Dims = std::vector<std::int64_t>;

/// How many axes a tensor may have: as many as NumPy's arrays. XLA's time to compile grows with
/// their square.
inline constexpr std::int64_t max_rank = 64;

/// Element type and extents; `dims` empty is a scalar (rank 0). Prints as "f32[2,3]". May be read
/// by several threads at once.
/// A weak type comes from a C++ number in an expression: it gives way to the other operand's dtype,
/// as in JAX.
struct Type {
  DType dtype = DType::f32;
  Dims dims;
  bool weak = false;

  /// Returns how many axes, elements, and bytes. Only `size` and `byte_size` throw: TypeError when
  /// they exceed 63 bits.
  std::int64_t rank() const { return static_cast<std::int64_t>(dims.size()); }
  POSTERN_API std::int64_t size(Place place = Place::current()) const;
  POSTERN_API std::size_t byte_size(Place place = Place::current()) const;  // on the host
  bool operator==(const Type&) const = default;
};

/// Returns `type<float>({2, 3})` is f32[2,3]. Throws TypeError for a negative extent, but for those
/// of `any`, for more axes
/// than max_rank, for more bytes than 63 bits count (extents of 0 left out), and for DType::token.
POSTERN_API Type make_type(DType dtype, Dims dims, Place place = Place::current());
template <Element T>
Type type(Dims dims = {}, Place place = Place::current()) {
  return make_type(dtype_v<T>, std::move(dims), place);
}

/// Returns an extent that is left open, by name, for `save` alone: any other use of a type that has
/// one is a TypeError. Equal names are one size. Throws TypeError for a name that is no identifier.
///
///   auto f = pn::jit([](pn::Tensor x) { return pn::mean(x, 0); });
///   const auto rows = pn::type<float>({pn::any("n"), 3});
///   const pn::Loaded g = pn::load_text(pn::saved_text(f.lower(pn::abstract(rows))));
///   const pn::Tensor y = g(pn::ones(pn::type<float>({5, 3}))).at(0);  // [1 1 1]
[[nodiscard]] POSTERN_API std::int64_t any(const char* name, Place place = Place::current());
[[nodiscard]] inline std::int64_t any(const std::string& name, Place place = Place::current()) {
  return any(name.c_str(), place);
}

/// Writes them as types, lists of them and extents are written in errors and prints. They throw
/// nothing.
POSTERN_API std::string to_string(const Type& type);                         // "f32[2,3]"
POSTERN_API std::string to_string(std::span<const Type> types);              // "(f32[2], s32[])"
POSTERN_API std::string dims_to_string(std::span<const std::int64_t> dims);  // "[2,3]"

}  // namespace postern
