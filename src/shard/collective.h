// The collectives' primitives and what they are given, for who rewrites them.
#pragma once
#include "core/primitive.h"
#include "ops/family.h"
#include "shard/named_axes.h"
#include "transform/batch.h"

namespace postern::internal {

extern const Primitive psum_p, pmax_p, pmin_p, all_gather_p, reduce_scatter_p, all_to_all_p,
    ppermute_p, pbroadcast_p, scatter_from_p, gather_to_p, axis_count_p;

// What the rules share.
inline const CollectiveParams& collective_of(const Params* params) {
  return as<CollectiveParams>(*params);
}
template <class T>
auto& extent(T& type, std::int64_t axis) {
  return type.dims[static_cast<std::size_t>(axis)];
}
/// Batches with the batch axis in front, so that the array's axes in the parameters count one more.
Batched moved_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                    const Tensor& mask);
/// Returns the axes of which all devices meet in it: those that it names.
std::vector<std::string> named_axes(const Params& params);
constexpr Primitive collective(Primitive p) {
  p.rendezvous_axes = named_axes;
  return p;
}
constexpr Primitive same_for_all(Primitive p) {
  p.gives_same = true;
  return collective(p);
}

/// Returns the type of a part, an axis of it being cut for so many devices. Throws TypeError in the
/// name of `op` where that leaves a rest.
Type cut_type(const char* op, Type whole, std::int64_t axis, std::int64_t devices);
/// The type of all parts, put together along an axis.
Types gathered_along_type(const Params* params, TypeSpan x);

/// Binds a collective, of bytes in the place of integers of two bits.
Tensor bind_over_mesh(const Primitive& primitive, CollectiveParams p, const Tensor& x);
/// Refuses an axis that has not one element for each device, unless it is `tiled`.
void require_row_each(const char* op, const Type& type, std::int64_t axis, bool tiled,
                      std::int64_t devices);
/// Takes an axis apart into n rows in front: with `axis` 1 [a, n*k, b] gives [n, a, k, b]. And
/// back.
Tensor rows_in_front(const char* op, const Tensor& x, std::int64_t axis, std::int64_t n);
Tensor front_into(const Tensor& x, std::int64_t axis);
Tensor row_of(const Tensor& all, std::int64_t i);  // of the first axis, which disappears
/// Computes where the device is along the axes, row-major, from the indices that the region was
/// given. The only device of a program that is not partitioned is at 0.
Ssa place_along(Lowering& out, const CollectiveParams& p);
Ssa zero_constant(Lowering& out, const Type& type);
/// Defines the result of an equation in which no devices have to meet, and returns whether it did:
/// as its operand where the program is not partitioned, and as nothing where it has no elements.
bool defined_without_meeting(Lowering& out, const Equation& e);
/// Writes an all_gather of `part` along `axis`, over the equation's mesh axes.
Ssa gathered_along(Lowering& out, const Equation& e, Ssa x, const Type& part, const Type& all,
                   std::int64_t axis);
/// Writes an all_to_all of the equation's operand, which is split along `axis` of the parameters;
/// what comes is joined along `concat_axis`.
Ssa all_to_all_along(Lowering& out, const Equation& e, std::int64_t concat_axis,
                     const Type& result);

}  // namespace postern::internal
