// Collectives: what the devices of a mesh tell each other inside shard_map. Rules as in JAX: the
// transpose of a sum is the sum, gathering and scattering undo each other, a permutation is undone
// by the inverse one.
#include <postern/arrange.h>
#include <postern/shard.h>

#include <algorithm>
#include <map>

#include "core/lists.h"
#include "ops/elementwise.h"
#include "ops/family.h"
#include "ops/reduce.h"
#include "ops/shape.h"
#include "shard/collective.h"
#include "shard/shard_map.h"
#include "transform/batch.h"
#include "transform/transpose.h"

namespace postern::internal {

// XLA:CPU gathers integers of two bits past the end of its memory, and adds none up.
Tensor bind_over_mesh(const Primitive& primitive, CollectiveParams p, const Tensor& x) {
  if (bit_width(x.dtype()) == 2)
    return convert_to(bind_over_mesh(primitive, std::move(p), unpacked(x)), x.dtype());
  return bind1(primitive, make_params(std::move(p)), {x});
}

std::vector<std::string> named_axes(const Params& params) { return collective_of(&params).axes; }

Batched moved_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                    const Tensor&) {
  CollectiveParams p = op.as<CollectiveParams>();
  ++p.axis;
  ++p.concat_axis;
  return {{bind_over_mesh(op.primitive, std::move(p), batch_front(x[0], axes[0], size))}, {0}};
}

Ssa place_along(Lowering& out, const CollectiveParams& p) {
  const Type scalar{DType::s32, {}};
  Ssa index = out.constant("0", scalar);
  for (const std::string& name : p.axes) {
    const Ssa size = out.constant(std::to_string(p.mesh.size(name)), scalar);
    index = out.op("multiply", {index, size}, {&scalar, &scalar}, scalar);
    if (out.partitioned())
      index = out.op("add", {index, out.axis_index(name)}, {&scalar, &scalar}, scalar);
  }
  return index;
}

Ssa zero_constant(Lowering& out, const Type& type) {
  return out.constant(literal_text(zero_of(type.dtype), type.dtype), type);
}

bool defined_without_meeting(Lowering& out, const Equation& e) {
  Ssa result = out.operand(e, 0);
  const Type& type = out.result_type(e);
  if (out.partitioned() && type.size() > 0) return false;
  if (type.size() == 0) result = zero_constant(out, type);  // XLA refuses collectives of nothing
  out.define(e, 0, result);
  return true;
}

Ssa gathered_along(Lowering& out, const Equation& e, Ssa x, const Type& part, const Type& all,
                   std::int64_t axis) {
  const auto& p = collective_of(e.params.get());
  return out.op("all_gather", {x}, {&part}, all,
                fmt::format("all_gather_dim = {} : i64, {}, use_global_device_ids", axis,
                            rendezvous_attributes(out, p.mesh, p.axes)));
}

Ssa all_to_all_along(Lowering& out, const Equation& e, std::int64_t concat_axis,
                     const Type& result) {
  const auto& p = collective_of(e.params.get());
  const Type& type = out.operand_type(e, 0);
  // XLA makes slices of it, and of slices of a concatenation the operands, whose layouts may
  // differ.
  const Ssa whole = out.op("optimization_barrier", {out.operand(e, 0)}, {&type}, type);
  return out.op(
      "all_to_all", {whole}, {&type}, result,
      fmt::format("split_dimension = {} : i64, concat_dimension = {} : i64, split_count "
                  "= {} : i64, {}",
                  p.axis, concat_axis, p.count(), rendezvous_attributes(out, p.mesh, p.axes)));
}

Type cut_type(const char* op, Type whole, std::int64_t axis, std::int64_t devices) {
  check(extent(whole, axis) % devices == 0, "{}: axis {} of {} must be divisible by the {} devices",
        op, axis, to_string(whole), devices);
  extent(whole, axis) /= devices;
  return whole;
}

Types gathered_along_type(const Params* params, TypeSpan x) {
  const auto& p = collective_of(params);
  Type whole = x[0];
  extent(whole, p.axis) *= p.count();
  return {whole};
}

void require_row_each(const char* op, const Type& type, std::int64_t axis, bool tiled,
                      std::int64_t devices) {
  check(tiled || extent(type, axis) == devices,
        "{}: axis {} of {} must have one element for each of the {} devices, or say tiled", op,
        axis, to_string(type), devices);
}

Tensor rows_in_front(const char* op, const Tensor& x, std::int64_t axis, std::int64_t n) {
  Dims dims = x.dims();
  const auto split = dims.begin() + axis;
  check(n > 0 && *split % n == 0, "{}: axis {} of {} must be divisible by the {} elements", op,
        axis, to_string(x.type()), n);
  *split /= n;
  dims.insert(split, n);
  return move_batch(reshape(x, dims), static_cast<int>(axis), 0, n);
}
Tensor row_of(const Tensor& all, std::int64_t i) {
  return squeeze(slice_axis(all, 0, i, i + 1), {0});
}
Tensor front_into(const Tensor& x, std::int64_t axis) {
  const Tensor moved = move_batch(x, 0, static_cast<int>(axis), x.dims()[0]);
  Dims dims = moved.dims();
  const auto rows = dims.begin() + axis;
  *(rows + 1) *= *rows;
  dims.erase(rows);
  return reshape(moved, dims);
}

namespace {

bool summable(DType d) { return numeric(d); }
bool comparable(DType d) { return real_number(d); }

Types reduce_scatter_type(const Params* params, TypeSpan x) {
  const auto& p = collective_of(params);
  require_dtype(summable(x[0].dtype), x[0].dtype);
  return {cut_type("reduce_scatter", x[0], p.axis, p.count())};
}
Types all_to_all_type(const Params* params, TypeSpan x) {
  const auto& p = collective_of(params);
  Type out = cut_type("all_to_all", x[0], p.axis, p.count());
  extent(out, p.concat_axis) *= p.count();
  return {out};
}
Types index_type(const Params*, TypeSpan) { return {Type{DType::s32, {}}}; }

Tensors all_gather_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan) {
  return bind_n(reduce_scatter_p, op.params, ct);
}
Tensors reduce_scatter_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan) {
  return bind_n(all_gather_p, op.params, ct);
}
Tensors all_to_all_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan) {
  CollectiveParams p = op.as<CollectiveParams>();
  std::swap(p.axis, p.concat_axis);
  return {bind_over_mesh(op.primitive, std::move(p), ct[0])};
}
Tensors permute_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan) {
  CollectiveParams p = op.as<CollectiveParams>();
  for (auto& [from, to] : p.pairs) std::swap(from, to);
  return {bind_over_mesh(op.primitive, std::move(p), ct[0])};
}

/// The derivative of a maximum or minimum: the mean of the tangents of the devices that hold it.
/// None holds nan: then it is nan, of 0 / 0.
Jvp extreme_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<CollectiveParams>();
  const Tensor y = bind1(op.primitive, op.params, x);
  if (!dx[0].has_value()) return {{y}, {Tensor()}};
  const DType work = sum_dtype(y.dtype());
  const Tensor holds = convert(equal(x[0], y), work);
  const Tensor shares = holds / sum_over(p.mesh, p.axes, holds);
  const Tensor tangent = sum_over(p.mesh, p.axes, convert_to(dx[0], work) * shares);
  return {{y}, {convert_to(tangent, y.dtype(), y.type().weak)}};
}

Batched no_batch(const Op& op, TensorSpan, std::span<const int>, std::int64_t, const Tensor&) {
  return {{bind1(op.primitive, op.params, {})}, {-1}};
}

/// Writes a reduction of `x`, which is the operand or stands for it in another dtype.
Ssa reduced_over_devices(Lowering& out, const Equation& e, Ssa x, DType dtype, const char* hlo,
                         const char* reducer, const std::string& attributes = "") {
  const auto& p = collective_of(e.params.get());
  const Ssa y = out.fresh();
  out.write("    %{} = \"stablehlo.{}\"(%{}) (", y.id, hlo, x.id);
  reducing_region(out, reducer, Lowering::type({dtype, {}}));
  out.write(") {{{}{}, use_global_device_ids}} : ({}) -> {}\n", attributes,
            rendezvous_attributes(out, p.mesh, p.axes),
            Lowering::type({dtype, out.operand_type(e, 0).dims}),
            Lowering::type({dtype, out.result_type(e).dims}));
  return y;
}

void sum_lower(Lowering& out, const Equation& e) {
  if (defined_without_meeting(out, e)) return;
  const DType dtype = out.result_type(e).dtype;
  out.define(e, 0, reduced_over_devices(out, e, out.operand(e, 0), dtype, "all_reduce", "add"));
}
template <bool largest>
void extreme_lower(Lowering& out, const Equation& e) {
  if (defined_without_meeting(out, e)) return;
  constexpr const char* reducer = largest ? "maximum" : "minimum";
  const Type& type = out.result_type(e);
  const Ssa x = out.operand(e, 0);
  if (!is_float(type.dtype) || !out.compiler().max_loses_nan)
    return out.define(e, 0, reduced_over_devices(out, e, x, type.dtype, "all_reduce", reducer));
  // The extreme of keys, integers that are in order as the floats are and keep NaN.
  const Ssa key = reduced_over_devices(out, e, keys_of(out, x, type, largest), key_type(type).dtype,
                                       "all_reduce", reducer);
  out.define(e, 0, floats_of(out, key, type));
}
void reduce_scatter_lower(Lowering& out, const Equation& e) {
  if (defined_without_meeting(out, e)) return;
  const auto along =
      fmt::format("scatter_dimension = {} : i64, ", collective_of(e.params.get()).axis);
  out.define(e, 0,
             reduced_over_devices(out, e, out.operand(e, 0), out.result_type(e).dtype,
                                  "reduce_scatter", "add", along));
}
void all_gather_lower(Lowering& out, const Equation& e) {
  if (defined_without_meeting(out, e)) return;
  out.define(e, 0,
             gathered_along(out, e, out.operand(e, 0), out.operand_type(e, 0), out.result_type(e),
                            collective_of(e.params.get()).axis));
}
void all_to_all_lower(Lowering& out, const Equation& e) {
  if (defined_without_meeting(out, e)) return;
  const std::int64_t concat_axis = collective_of(e.params.get()).concat_axis;
  out.define(e, 0, all_to_all_along(out, e, concat_axis, out.result_type(e)));
}
void permute_lower(Lowering& out, const Equation& e) {
  const auto& p = collective_of(e.params.get());
  std::vector<std::string> pairs;  // of partitions: of all groups of devices that meet
  for (const std::vector<std::int64_t>& group : device_groups(p.mesh, p.axes)) {
    const auto partition = [&](int place) {
      return partition_of(p.mesh, group[size_of(place)], out.devices());
    };
    for (const auto& [from, to] : p.pairs)
      pairs.push_back(fmt::format("[{}, {}]", partition(from), partition(to)));
  }
  if (pairs.empty()) {  // nobody is sent anything, so all have zeros, a single device too
    static_cast<void>(out.operand(e, 0));  // is read, as by all collectives
    return out.define(e, 0, zero_constant(out, out.result_type(e)));
  }
  if (defined_without_meeting(out, e)) return;
  out.simple(e, "collective_permute",
             fmt::format("source_target_pairs = dense<[{}]> : tensor<{}x2xi64>, {}",
                         fmt::join(pairs, ", "), pairs.size(), out.channel()));
}

void index_lower(Lowering& out, const Equation& e) {
  out.define(e, 0, place_along(out, collective_of(e.params.get())));
}
void count_lower(Lowering& out, const Equation& e) {
  const std::int64_t n = out.partitioned() ? collective_of(e.params.get()).count() : 1;
  out.define(e, 0, out.constant(std::to_string(n), out.result_type(e)));
}
/// A number that the user's function was told may be anywhere in the program, which is then for
/// this number alone: the equation stays to say so.
Effect count_effect(const Params* params) {
  return collective_of(params).user_knows ? Effect::unordered : Effect::pure;
}

/// XLA has all devices meet in a ppermute.
std::vector<std::string> every_axis(const Params& params) {
  return all_axes(collective_of(&params).mesh);
}

constexpr Primitive collective_permute(Primitive p) {
  p.rendezvous_axes = every_axis;
  return p;
}

}  // namespace

constexpr Primitive psum_p = same_for_all(
    linear("psum", nullptr, same_type_if<summable>, self_transpose, elementwise_batch, sum_lower));
constexpr Primitive pmax_p = same_for_all({.name = "pmax",
                                           .type = same_type_if<comparable>,
                                           .jvp = extreme_jvp,
                                           .batch = elementwise_batch,
                                           .lower = extreme_lower<true>});
constexpr Primitive pmin_p = same_for_all({.name = "pmin",
                                           .type = same_type_if<comparable>,
                                           .jvp = extreme_jvp,
                                           .batch = elementwise_batch,
                                           .lower = extreme_lower<false>});
constexpr Primitive all_gather_p =
    same_for_all(linear("all_gather", nullptr, gathered_along_type, all_gather_transpose,
                        moved_batch, all_gather_lower));
constexpr Primitive reduce_scatter_p =
    collective(linear("reduce_scatter", nullptr, reduce_scatter_type, reduce_scatter_transpose,
                      moved_batch, reduce_scatter_lower));
constexpr Primitive all_to_all_p = collective(linear(
    "all_to_all", nullptr, all_to_all_type, all_to_all_transpose, moved_batch, all_to_all_lower));
constexpr Primitive ppermute_p = collective_permute(
    linear("ppermute", nullptr, same_type, permute_transpose, elementwise_batch, permute_lower));
constexpr Primitive axis_index_p{.name = "axis_index",
                                 .type = index_type,
                                 .no_derivative = true,
                                 .batch = no_batch,
                                 .lower = index_lower};
constexpr Primitive axis_count_p{.name = "axis_size",
                                 .type = index_type,
                                 .no_derivative = true,
                                 .batch = no_batch,
                                 .lower = count_lower,
                                 .effect = count_effect};

namespace {

constexpr const Primitive* collective_family[] = {
    &psum_p, &pmax_p, &pmin_p, &all_gather_p, &reduce_scatter_p, &all_to_all_p, &ppermute_p};
static_assert(complete(collective_family));

using Reduction = Tensor (*)(const Tensor& all);
/// Reduces along axes of vmaps, for which all elements are gathered on a first axis, and then along
/// those of the mesh.
Tensor reduced(const NamedAxes& axes, Tensor x, Reduction over_first, const Primitive& primitive,
               DTypeTest test) {
  require_dtype(test(x.dtype()), x.dtype());
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes.batch(i)) x = over_first(gathered(axes.batch(i), x));
  if (axes.of_batches()) return x;
  return bind_over_mesh(primitive, axes.all_of_mesh(), x);
}
Tensor sum_first(const Tensor& all) { return sum(all, {.axes = Dims{0}}); }
Tensor max_first(const Tensor& all) { return max(all, {.axes = Dims{0}}); }
Tensor min_first(const Tensor& all) { return min(all, {.axes = Dims{0}}); }

Tensor position_of(const NamedAxes& axes, std::size_t i) {
  if (axes.batch(i)) return position_along(axes.batch(i));
  return bind1(axis_index_p, make_params(axes.of_mesh(i)), {});
}

/// Throws TypeError unless each pair names two of the devices, and none sends, or gets, twice.
void check_pairs(const std::vector<std::pair<int, int>>& pairs, int devices) {
  std::map<int, int> sends, gets;  // how often, by device
  for (const auto& [from, to] : pairs) {
    check(from >= 0 && from < devices && to >= 0 && to < devices,
          "ppermute: the pair ({}, {}) must name two of the {} devices along the axis", from, to,
          devices);
    check(++sends[from] == 1 && ++gets[to] == 1,
          "ppermute: the pair ({}, {}) makes a device send, or be sent to, twice", from, to);
  }
}

/// A ppermute along the axis of a vmap. All elements make the same rows, the i-th of which is what
/// element i gets; exchanged, the first row of each is its own.
Tensor permuted(const BatchAxisPtr& batch, const Tensor& x,
                const std::vector<std::pair<int, int>>& pairs) {
  const Tensor all = gathered(batch, x), nothing = zeros_of({x.dtype(), x.dims()});
  Tensors rows(size_of(batch->size), nothing);
  for (const auto& [from, to] : pairs) rows[size_of(to)] = row_of(all, from);
  if (rows.empty()) return nothing;
  return row_of(exchanged(batch, stack(rows)), 0);
}

/// The number of devices, told to the user's function: over processes an equation notes that.
std::int64_t count_for_user(const NamedAxes& named) {
  if (current_mesh() && spans_processes(*current_mesh()) && Trace::current()) {
    CollectiveParams p = named.all_of_mesh();
    p.user_knows = true;
    bind1(axis_count_p, make_params(std::move(p)), {});
  }
  return named.count();
}

}  // namespace

const std::vector<std::string>& collective_axes(const Equation& e) {
  return collective_of(e.params.get()).axes;
}

Tensor sum_over(const Mesh& mesh, const std::vector<std::string>& axes, const Tensor& x) {
  if (axes.empty()) return x;
  return bind_over_mesh(psum_p, {mesh, axes}, x);
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

Tensor psum(const Operand& x, const AxisNames& axes) {
  PlaceScope at(x.place());
  return reduced({"psum", axes}, x.tensor(), sum_first, psum_p, summable);
}
Tensor pmean(const Operand& x, const AxisNames& axes) {
  PlaceScope at(x.place());
  const NamedAxes named("pmean", axes);
  require_dtype(summable(x.tensor().dtype()), x.tensor().dtype());
  const Tensor sum = reduced(named, as_float(x.tensor()), sum_first, psum_p, summable);
  const bool over_processes = current_mesh() && spans_processes(*current_mesh());
  if (!over_processes || !named.of_mesh()) return sum / static_cast<double>(count_for_user(named));
  // A number that no text has: a saved program may run on more processes, or fewer.
  const Tensor count = bind1(axis_count_p, make_params(named.all_of_mesh()), {});
  return sum / convert_to(count, DType::f32, true);
}
Tensor pmax(const Operand& x, const AxisNames& axes) {
  PlaceScope at(x.place());
  return reduced({"pmax", axes}, x.tensor(), max_first, pmax_p, comparable);
}
Tensor pmin(const Operand& x, const AxisNames& axes) {
  PlaceScope at(x.place());
  return reduced({"pmin", axes}, x.tensor(), min_first, pmin_p, comparable);
}

Tensor all_gather(const Operand& x, const AxisNames& axes, std::int64_t axis, bool tiled,
                  Place place) {
  PlaceScope at(place);
  const NamedAxes named("all_gather", axes);
  axis = normal_axis("all_gather", axis, x.tensor().rank() + !tiled);
  Tensor y = tiled ? x.tensor() : expand_dims(x, axis);
  if (named.of_mesh()) return bind_over_mesh(all_gather_p, named.all_of_mesh(axis), y);
  for (std::size_t i = named.size(); i-- > 0;)  // the last changes fastest
    if (named.batch(i))
      y = front_into(gathered(named.batch(i), y), axis);
    else
      y = bind_over_mesh(all_gather_p, named.of_mesh(i, axis), y);
  return y;
}

Tensor reduce_scatter(const Operand& x, const AxisNames& axes, std::int64_t axis, bool tiled,
                      Place place) {
  PlaceScope at(place);
  const NamedAxes named("reduce_scatter", axes);
  axis = normal_axis("reduce_scatter", axis, x.tensor().rank());
  require_row_each("reduce_scatter", x.tensor().type(), axis, tiled, named.count());
  Tensor y = x.tensor();
  if (named.of_mesh()) {
    y = bind_over_mesh(reduce_scatter_p, named.all_of_mesh(axis), y);
  } else {
    require_dtype(summable(y.dtype()), y.dtype());
    for (std::size_t i = 0; i < named.size(); ++i) {
      if (!named.batch(i)) {
        y = bind_over_mesh(reduce_scatter_p, named.of_mesh(i, axis), y);
        continue;
      }
      const Tensor rows = rows_in_front("reduce_scatter", y, axis, named.count(i));
      y = sum_first(exchanged(named.batch(i), rows));
    }
  }
  if (tiled) return y;
  return squeeze(y, {axis});
}

Tensor all_to_all(const Operand& x, const AxisNames& axes, std::int64_t split_axis,
                  std::int64_t concat_axis, Place place) {
  PlaceScope at(place);
  const NamedAxes named("all_to_all", axes);
  const std::int64_t from = normal_axis("all_to_all", split_axis, x.tensor().rank()),
                     to = normal_axis("all_to_all", concat_axis, x.tensor().rank());
  if (!named.of_mesh()) {
    const BatchAxisPtr& batch = named.only();
    const Tensor rows = rows_in_front("all_to_all", x.tensor(), from, batch->size);
    return front_into(exchanged(batch, rows), to);
  }
  CollectiveParams p = named.all_of_mesh(from);
  p.concat_axis = to;
  return bind_over_mesh(all_to_all_p, std::move(p), x.tensor());
}

Tensor ppermute(const Operand& x, const AxisNames& axes,
                const std::vector<std::pair<int, int>>& pairs, Place place) {
  PlaceScope at(place);
  const NamedAxes named("ppermute", axes);
  check_pairs(pairs, static_cast<int>(named.count()));
  if (!named.of_mesh()) return permuted(named.only(), x.tensor(), pairs);
  CollectiveParams p = named.all_of_mesh();
  p.pairs = pairs;
  return bind_over_mesh(ppermute_p, std::move(p), x.tensor());
}

Tensor axis_index(const AxisNames& axes, Place place) {
  PlaceScope at(place);
  const NamedAxes named("axis_index", axes);
  if (named.of_mesh()) return bind1(axis_index_p, make_params(named.all_of_mesh()), {});
  Tensor index = position_of(named, 0);
  for (std::size_t i = 1; i < named.size(); ++i)
    index = index * named.count(i) + position_of(named, i);
  return index;
}

std::int64_t axis_size(const AxisNames& axes, Place place) {
  PlaceScope at(place);
  return count_for_user(NamedAxes("axis_size", axes));
}

}  // namespace postern
