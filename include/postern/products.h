// Products beyond matmul and dot_general of ops.h. Of numbers or pred, of the promoted dtype. Every
// function throws TypeError for axes, extents and dtypes that do not fit.
#pragma once
#include <postern/detail/api.h>
#include <postern/ops.h>

#include <initializer_list>
#include <span>
#include <string_view>

namespace postern {

/// Returns Einstein's sums: "ij,jk->ik". Letters name axes, one that the result lacks is summed
/// over, one that an operand has twice is a diagonal, "..." stands for axes that broadcast; without
/// "->" the result has the letters that come once, in alphabetical order. Axes of one letter have
/// one extent, or 1.
///
///   const pn::Tensor a = pn::tensor<float>({{1, 2}, {3, 4}}), b = pn::tensor<float>({5, 6});
///   const pn::Tensor y = pn::einsum("ij,j->i", {a, b});   // [17 39]
///   const pn::Tensor trace = pn::einsum("ii->", {a});     // 5
[[nodiscard]] POSTERN_API Tensor einsum(std::string_view spec, std::span<const Tensor> operands,
                                        Place place = Place::current());
[[nodiscard]] inline Tensor einsum(std::string_view spec, std::initializer_list<Tensor> operands,
                                   Place place = Place::current()) {
  return einsum(spec, std::span(operands.begin(), operands.size()), place);
}
/// Multiplies as numpy's: the last axis of x with the next to last (or only) one of y; scalars
/// multiply. `outer`: the products of all elements of x with all of y, as rows and columns.
[[nodiscard]] POSTERN_API Tensor dot(const Operand& x, const Operand& y);
[[nodiscard]] POSTERN_API Tensor outer(const Operand& x, const Operand& y);
/// Returns the last `axes` axes of x with the first ones of y, or the axes named, in pairs. The
/// result has the other axes of x, then those of y.
///
///   const pn::Tensor x = pn::ones(pn::type<float>({2, 3, 4}));
///   const pn::Tensor y = pn::ones(pn::type<float>({4, 5}));
///   const pn::Tensor z = pn::tensordot(x, y, 1);         // f32[2,3,5]
///   const pn::Tensor same = pn::tensordot(x, y, {2}, {0});
[[nodiscard]] POSTERN_API Tensor tensordot(const Operand& x, const Operand& y,
                                           std::int64_t axes = 2);
[[nodiscard]] POSTERN_API Tensor tensordot(const Operand& x, const Operand& y, const Dims& axes_x,
                                           const Dims& axes_y);

}  // namespace postern
