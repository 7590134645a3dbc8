// The collectives' primitives and what they are given, for who rewrites them.
#pragma once
#include "core/primitive.h"
#include "ops/family.h"
#include "shard/named_axes.h"
#include "transform/batch.h"

namespace postern::internal {

extern const Primitive psum_p, pmax_p, pmin_p, all_gather_p, reduce_scatter_p, all_to_all_p,
    ppermute_p, pbroadcast_p, scatter_from_p, gather_to_p, axis_count_p;

// Returns what the rules share.
inline const CollectiveParams& collective_of(const Params* params) {
  return as<CollectiveParams>(*params);
}
inline std::int64_t& extent(Type& type, std::int64_t axis) {
  return type.dims[static_cast<std::size_t>(axis)];
}
inline std::int64_t extent(const Type& type, std::int64_t axis) {
  return type.dims[static_cast<std::size_t>(axis)];
}
/// Batches with the batch in front: the axes that the collective has count one more.
Batched moved_batch(const Op& op, std::span<const Tensor> x, std::span<const int> axes,
                    std::int64_t size, const Tensor& mask);
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

// Binds what the public functions share.
Tensor bind_like(const Primitive& primitive, CollectiveParams p, const Tensor& x);
/// Axis `axis` in n rows, which are moved to the front; and the first axis back, into `axis`.
Tensor rows_in_front(const char* op, const Tensor& x, std::int64_t axis, std::int64_t n);
Tensor front_into(const Tensor& x, std::int64_t axis);
Tensor row_of(const Tensor& all, std::int64_t i);  // of the first axis, which disappears
/// Computes where the device is along the axes, from the indices that the region was given.
Ssa place_along(Lowering& out, const CollectiveParams& p);
/// Returns whether one device is all: it meets nobody, so its result becomes its operand.
bool alone(Lowering& out, const Equation& e);

}  // namespace postern::internal
