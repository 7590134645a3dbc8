// Collectives in which one device has a place of its own, and the barrier.
#include <postern/arrange.h>
#include <postern/indexing.h>
#include <postern/shard.h>

#include "core/lists.h"
#include "ops/family.h"
#include "ops/reduce.h"
#include "shard/collective.h"
#include "shard/processes.h"
#include "shard/shard_map.h"

namespace postern::internal {

namespace {

Type with_extent(Type type, std::int64_t axis, std::int64_t count) {
  extent(type, axis) = count;
  return type;
}

Types scatter_from_type(const Params* params, TypeSpan x) {
  const auto& p = collective_of(params);
  return {cut_type("scatter_from", x[0], p.axis, p.count())};
}

/// Whether this device is the root, pred[].
Tensor is_root(const CollectiveParams& p) {
  return equal(bind1(axis_index_p, make_params(CollectiveParams{p.mesh, p.axes}), {}), p.root);
}

/// The root, whose value all got, takes the sum of their cotangents; the others take zeros.
Tensors pbroadcast_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan) {
  const auto& p = op.as<CollectiveParams>();
  return {where(is_root(p), sum_over(p.mesh, p.axes, ct[0]), zeros_of(ct[0].type()))};
}
Tensors scatter_from_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan) {
  return bind_n(gather_to_p, op.params, ct);
}
Tensors gather_to_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan) {
  return bind_n(scatter_from_p, op.params, ct);
}

/// Slices `count` elements of an axis from `start` on.
Ssa slice(Lowering& out, Ssa x, const Type& type, std::int64_t axis, std::int64_t start,
          std::int64_t count) {
  Dims starts(type.dims.size(), 0), limits = type.dims;
  const Dims strides(type.dims.size(), 1);
  starts[size_of(axis)] = start;
  limits[size_of(axis)] = start + count;
  return out.op("slice", {x}, {&type}, with_extent(type, axis, count),
                fmt::format("start_indices = {}, limit_indices = {}, strides = {}",
                            array_text(starts), array_text(limits), array_text(strides)));
}

/// Gathers all devices' values as rows, and takes the root's.
void pbroadcast_lower(Lowering& out, const Equation& e) {
  if (defined_without_meeting(out, e)) return;
  const auto& p = collective_of(e.params.get());
  const Type& type = out.operand_type(e, 0);
  Type part = type;
  part.dims.insert(part.dims.begin(), 1);
  const Type all = with_extent(part, 0, p.count());
  const Ssa row = out.op("reshape", {out.operand(e, 0)}, {&type}, part);
  const Ssa root = slice(out, gathered_along(out, e, row, part, all, 0), all, 0, p.root, 1);
  out.define(e, 0, out.op("reshape", {root}, {&part}, type));
}
/// Is an all_to_all, which every device takes part in: of the pieces that come it keeps the root's.
void scatter_from_lower(Lowering& out, const Equation& e) {
  if (defined_without_meeting(out, e)) return;
  const auto& p = collective_of(e.params.get());
  const Type& type = out.operand_type(e, 0);
  const Ssa pieces = all_to_all_along(out, e, p.axis, type);
  const std::int64_t piece = extent(type, p.axis) / p.count();
  out.define(e, 0, slice(out, pieces, type, p.axis, p.root * piece, piece));
}
void gather_to_lower(Lowering& out, const Equation& e) {
  if (defined_without_meeting(out, e)) return;
  const auto& p = collective_of(e.params.get());
  const Type scalar{DType::s32, {}}, truth{DType::pred, {}};
  const Type &part = out.operand_type(e, 0), &all = out.result_type(e);
  const Ssa whole = gathered_along(out, e, out.operand(e, 0), part, all, p.axis);
  const Ssa index = place_along(out, p);
  const Ssa root = out.constant(std::to_string(p.root), scalar);
  const Ssa here = out.op("compare", {index, root}, {&scalar, &scalar}, truth,
                          comparison_text("EQ", DType::s32));
  out.define(e, 0,
             out.op("select", {here, whole, zero_constant(out, all)}, {&truth, &all, &all}, all));
}

}  // namespace

constexpr Primitive pbroadcast_p = same_for_all(linear(
    "pbroadcast", nullptr, same_type, pbroadcast_transpose, elementwise_batch, pbroadcast_lower));
constexpr Primitive scatter_from_p =
    collective(linear("scatter_from", nullptr, scatter_from_type, scatter_from_transpose,
                      moved_batch, scatter_from_lower));
constexpr Primitive gather_to_p = collective(linear(
    "gather_to", nullptr, gathered_along_type, gather_to_transpose, moved_batch, gather_to_lower));

}  // namespace postern::internal

namespace postern {
using namespace internal;

namespace {

constexpr const Primitive* rooted_family[] = {&pbroadcast_p, &scatter_from_p, &gather_to_p};
static_assert(complete(rooted_family));

void check_place(const char* op, const char* what, int place, std::int64_t count) {
  check(place >= 0 && place < count, "{}: {} must be one of the {} devices along the axes, got {}",
        op, what, count, place);
}

CollectiveParams params_of(const NamedAxes& named, int root, std::int64_t axis = 0) {
  CollectiveParams p = named.all_of_mesh(axis);
  p.root = root;
  return p;
}

}  // namespace

Tensor broadcast(const Operand& x, const AxisNames& axes, int root, Place place) {
  PlaceScope at(place);
  const NamedAxes named("broadcast", axes);
  check_place("broadcast", "the root", root, named.count());
  if (named.of_mesh()) return bind_over_mesh(pbroadcast_p, params_of(named, root), x.tensor());
  return row_of(gathered(named.only(), x.tensor()), root);
}

Tensor scatter_from(const Operand& x, const AxisNames& axes, int root, std::int64_t axis,
                    bool tiled, Place place) {
  PlaceScope at(place);
  const NamedAxes named("scatter_from", axes);
  check_place("scatter_from", "the root", root, named.count());
  axis = normal_axis("scatter_from", axis, x.tensor().rank());
  require_row_each("scatter_from", x.tensor().type(), axis, tiled, named.count());
  Tensor y;
  if (named.of_mesh()) {
    y = bind_over_mesh(scatter_from_p, params_of(named, root, axis), x.tensor());
  } else {
    const BatchAxisPtr& batch = named.only();
    const Tensor rows = rows_in_front("scatter_from", x.tensor(), axis, batch->size);
    y = row_of(exchanged(batch, rows), root);
  }
  if (tiled) return y;
  return squeeze(y, {axis});
}

Tensor gather_to(const Operand& x, const AxisNames& axes, int root, std::int64_t axis, bool tiled,
                 Place place) {
  PlaceScope at(place);
  const NamedAxes named("gather_to", axes);
  check_place("gather_to", "the root", root, named.count());
  axis = normal_axis("gather_to", axis, x.tensor().rank() + !tiled);
  const Tensor y = tiled ? x.tensor() : expand_dims(x, axis);
  if (named.of_mesh()) return bind_over_mesh(gather_to_p, params_of(named, root, axis), y);
  const BatchAxisPtr& batch = named.only();
  const Tensor all = front_into(gathered(batch, y), axis);
  return where(equal(position_along(batch), root), all, zeros_of(all.type()));
}

Tensor send_recv(const Operand& x, const AxisNames& axes, int from, int to, Place place) {
  PlaceScope at(place);
  const std::int64_t count = NamedAxes("send_recv", axes).count();
  check_place("send_recv", "who sends", from, count);
  check_place("send_recv", "who receives", to, count);
  return where(equal(axis_index(axes), to), ppermute(x, axes, {{from, to}}), x);
}

// Between two ordered calls of the host the devices add up what the first one gives, and the second
// takes the sum. So effects before the barrier come before all meet, and those behind it after
// that.
void pbarrier(const AxisNames& axes, Place place) {
  PlaceScope at(place);
  static_cast<void>(NamedAxes("pbarrier", axes));  // refuses names that there are none of
  const Type one{DType::s32, {}};
  clusters::Collective pass;
  pass.operation = clusters::Operation::pass;
  const Tensor here = process_access.call(pass, "pbarrier", {}, {one}).front();
  const Tensor all = psum(here, axes);
  process_access.call(pass, "pbarrier", std::span(&all, 1), {});
}

}  // namespace postern
