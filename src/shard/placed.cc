// Splitting meshes at their processes; taking parts, and putting them together again.
#include "shard/placed.h"

#include <postern/indexing.h>
#include <postern/ops.h>
#include <postern/shard.h>

#include <algorithm>

#include "cluster/cluster.h"
#include "core/check.h"
#include "core/lists.h"
#include "trace/trace.h"

namespace postern::internal {

using clusters::Collective;
using clusters::Operation;

static thread_local ProcessCountScope* process_count_scope = nullptr;

ProcessCountScope::ProcessCountScope() : Scoped(process_count_scope, this) {}
void ProcessCountScope::note_dependence() {
  if (process_count_scope) process_count_scope->depends_ = true;
}

Split::Split(const Mesh& global) : mesh(global), here(mesh_on_each_process(global)) {
  std::int64_t count = 1;
  for (const MeshAxis& a : mesh.axes()) {
    if (!a.of_processes) continue;
    across.push_back(a);
    count *= a.size;
  }
  const int size = clusters::Cluster::get().size();
  check(count == size, "{}: its axes make a grid of {} processes, the cluster has {}",
        to_string(mesh), count, size);
  // Along which of several axes another number of processes would go, no text says.
  if (across.size() > 1) ProcessCountScope::note_dependence();
}

bool Split::is_across(const std::string& name) const {
  return std::ranges::find(across, name, &MeshAxis::name) != across.end();
}

Collective across(const Split& split, Operation operation, const Names& names) {
  Collective collective;
  collective.operation = operation;
  for (const MeshAxis& axis : split.across) collective.grid.push_back(axis.size);
  for (const std::string& name : names) {
    const auto axis = std::ranges::find(split.across, name, &MeshAxis::name);
    collective.along.push_back(axis - split.across.begin());
  }
  return collective;
}

std::int64_t count_of(const Collective& collective) {
  std::int64_t count = 1;
  for (const std::int64_t axis : collective.along) count *= collective.grid[size_of(axis)];
  return count;
}

/// Whether shapes and partners are the same however many meet.
static bool is_for_any_number(Operation op) {
  return op == Operation::sum || op == Operation::max || op == Operation::min ||
         op == Operation::broadcast;
}

Tensor bind_collective(Collective c, const char* name, const Tensor& x, CollectiveAt at) {
  const DType dtype = x.dtype();
  check(bit_width(dtype) >= 8, "{} over processes: {} has elements of less than a byte", name,
        to_string(x.type()));
  const bool reduces = c.operation == Operation::sum || c.operation == Operation::max ||
                       c.operation == Operation::min || c.operation == Operation::scatter;
  if (reduces && !clusters::reduces(dtype, c.operation)) {  // floats of 8 bits go as f32
    check(byte_width(dtype) == 1, "{} over processes: {} is no number that it knows", name,
          to_string(x.type()));
    return convert(bind_collective(std::move(c), name, convert(x, DType::f32), at), dtype);
  }
  c.axis = at.axis;
  c.other = at.concat_axis;
  c.root = at.root;
  if (!is_for_any_number(c.operation)) ProcessCountScope::note_dependence();
  const Type y = clusters::result_type(c, {dtype, x.dims()}, count_of(c));
  return process_access.call(c, name, std::span(&x, 1), {y}).front();
}

Tensor index_along(const Split& split, const Names& names) {
  return process_access
      .call(across(split, Operation::index, names), "axis_index", {}, {Type{DType::s32, {}}})
      .front();
}

Tensor count_along(const Split& split, const Names& names) {
  return process_access
      .call(across(split, Operation::count, names), "axis_size", {}, {Type{DType::s32, {}}})
      .front();
}

Placement::Placement(SplitPtr over, const P& by) {
  const Sharding sharding(over->mesh, by);
  static_cast<void>(on_each_process(sharding));  // refuses an order of axes that cannot be
  if (!is_sharded_over_processes(sharding)) return;
  spec = sharding.spec();  // `by` without whole axes at its end, so that == compares the rest
  split = std::move(over);
}

bool Placement::operator==(const Placement& other) const {
  if (!split || !other.split) return split == other.split;
  return split->mesh == other.split->mesh && spec == other.spec && offloaded == other.offloaded;
}

Type Placement::shard_type(const Type& global) const {
  if (!split || offloaded) return global;
  return addressable_type(sharding(), global);
}

namespace {

/// The mesh axes that cut an array's axes, those of processes told from those of devices.
struct ShardedAxes {
  ShardedAxes(const Split& split, const P& spec, std::int64_t rank) {
    std::vector<Names> parts = spec.parts();
    parts.resize(size_of(rank));
    for (const Names& names : parts) {
      Names of_processes, of_devices;
      for (const std::string& name : names)
        (split.is_across(name) ? of_processes : of_devices).push_back(name);
      if (!of_processes.empty()) devices_apart.push_back({});
      devices.push_back(of_devices);
      devices_apart.push_back(std::move(of_devices));
      processes.push_back(std::move(of_processes));
    }
  }
  std::vector<Names> processes, devices;  // by axis of the array, as f32[a, b]
  // By axis of the array with an axis of n processes before each that they cut: f32[a, n, b].
  std::vector<Names> devices_apart;
};

/// Runs f on each device of this process; `in` and `out`: the mesh axes that cut what it is given
/// and what it returns.
Tensor on_each(const Split& split, const std::function<Tensor(Tensor)>& f,
               const std::vector<Names>& in, const std::vector<Names>& out, const Tensor& x) {
  if (!split.here) return f(x);
  return detail::shard_map([&](TensorSpan parts) { return Tensors{f(parts[0])}; },
                           {*split.here, {P(in)}, [&] { return std::vector<P>{P(out)}; }}, {x},
                           PlaceScope::current())
      .front();
}

}  // namespace

// Along each axis that processes cut, the parts are gathered on an axis of their own before it, and
// the two become one: f32[a, b] becomes f32[a, n, b] and f32[a, n*b].
Tensor global_of(const Placed& value, int rank) {
  if (!value.placement.is_sharded()) return value.tensor;
  ProcessCountScope::note_dependence();
  const Split& split = *value.placement.split;
  const ShardedAxes axes(split, value.placement.spec, value.tensor.rank());
  const bool to_all = rank < 0;
  const Operation operation = to_all ? Operation::gather : Operation::gather_to;
  const auto gathered = [&](Tensor x) {
    std::int64_t axis = 0;  // of x, which gets new ones
    for (const Names& names : axes.processes) {
      if (!names.empty()) {
        const Collective c = across(split, operation, names);
        const int root = to_all ? 0 : c.group(rank).place;
        x = bind_collective(c, "collect", expand_dims(x, axis), {.axis = axis, .root = root});
        ++axis;  // the new one
      }
      ++axis;
    }
    return x;
  };
  const Tensor apart = on_each(split, gathered, axes.devices, axes.devices_apart, value.tensor);
  Dims dims = value.tensor.dims();
  for (std::size_t a = 0; a < dims.size(); ++a)
    dims[a] *= count_of(across(split, operation, axes.processes[a]));
  return reshape(apart, dims);
}

// Of a whole f32[a, n*b], seen as f32[a, n, b], this process takes its own place along n, which
// goes.
Tensor shard_of(const Placed& value, const Placement& placement) {
  if (value.placement == placement) return value.tensor;
  const Tensor& global = value.tensor;
  if (value.placement.is_sharded())
    throw_type_error(fmt::format(
        "{}, where {} is wanted: collect(x) sends everybody the whole",
        placement_text(global_type(value.placement.sharding(), global.type()), value.placement),
        placement.is_sharded() ? to_string(placement.spec) : "the whole"));
  if (!placement.is_sharded()) return global;
  ProcessCountScope::note_dependence();
  const Split& split = *placement.split;
  const ShardedAxes axes(split, placement.spec, global.rank());
  Dims apart;
  for (std::size_t a = 0; a < axes.processes.size(); ++a) {
    const std::int64_t parts = count_of(across(split, Operation::index, axes.processes[a]));
    if (!axes.processes[a].empty()) apart.push_back(parts);
    apart.push_back(global.dims()[a] / parts);
  }
  const auto taken = [&](Tensor x) {
    for (std::size_t a = 0; a < axes.processes.size(); ++a) {
      if (axes.processes[a].empty()) continue;
      std::vector<Operand> starts(x.dims().size(), Operand(std::int32_t{0}));
      starts[a] = Operand(index_along(split, axes.processes[a]));
      Dims sizes = x.dims();
      sizes[a] = 1;
      x = squeeze(dynamic_slice(x, starts, sizes), {static_cast<std::int64_t>(a)});
    }
    return x;
  };
  return on_each(split, taken, axes.devices_apart, axes.devices, reshape(global, apart));
}

std::string placement_text(const Type& global, const Placement& placement) {
  return fmt::format("{} lies over processes, {}", to_string(global),
                     to_string(placement.sharding()));
}

}  // namespace postern::internal
