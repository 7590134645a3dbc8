// Tensors that lie over processes: of each, this process's part on its devices.
#include <postern/shard.h>

#include <algorithm>

#include "cluster/cluster.h"
#include "core/check.h"
#include "core/process_sharding.h"
#include "run/run_record.h"
#include "run/sharded.h"
#include "shard/expansion.h"
#include "shard/shard_map.h"
#include "trace/trace.h"

namespace postern::internal {

using detail::Access;
using detail::Value;

namespace run {

namespace {

const ShardedValue* global_value(const Tensor& tensor) {
  const Value* const v = Access::value(tensor);
  if (!v || v->kind != Value::Kind::sharded) return nullptr;
  const auto* const value = static_cast<const ShardedValue*>(v);
  if (!spans_processes(value->sharding.mesh())) return nullptr;
  return value;
}

/// The part of one process that takes part with one device, on that one.
std::shared_ptr<DeviceValue> on_its_device(const Tensor& part, const Sharding& over) {
  const std::shared_ptr<const Value>& pointer = Access::pointer(part);
  if (pointer->kind == Value::Kind::device)
    return std::const_pointer_cast<DeviceValue>(
        std::static_pointer_cast<const DeviceValue>(pointer));
  const Mesh& mesh = over.mesh();
  check_devices(mesh);
  const Lane& lane = Runtime::get().lane(mesh.devices().front());
  const std::shared_ptr<const void> bytes = host_bytes(part, "device_put");
  auto out = std::make_shared<DeviceValue>(part.type(), send(part.type(), bytes.get(), bytes, lane),
                                           lane.index, lane.device, nullptr);
  out->placed = true;
  return out;
}

/// Of the same whole on every process, what this one keeps.
Tensor shard_here(const Tensor& global, const Sharding& over) {
  if (!is_sharded_over_processes(over)) return global;
  const auto range = addressable_ranges(over, global.dims(), clusters::rank_now());
  const Type part = addressable_type(over, {global.dtype(), global.dims()});
  std::shared_ptr<const void> keep;
  const auto* const from = static_cast<const std::byte*>(host_view(global, keep));
  const std::shared_ptr<void> to = detail::aligned_bytes(part.byte_size());
  copy_part(global.dims(), range, byte_width(part.dtype), const_cast<std::byte*>(from),
            static_cast<std::byte*>(to.get()), true);
  return Access::make(std::make_shared<detail::HostValue>(part, to));
}

}  // namespace

Tensor part_here(const Tensor& tensor, const Sharding& over) {
  const ShardedValue* value = global_value(tensor);
  Tensor put;
  if (!value || value->sharding != over) {
    put = detail::put_over_processes(tensor, over, Gives::whole);
    value = global_value(put);
  }
  const std::optional<Sharding> here = on_each_process(over);
  if (!here) return Access::make(value->parts.front());
  Type part = addressable_type(over, value->type);
  auto out = std::make_shared<ShardedValue>(std::move(part), *here, value->parts, value->run);
  out->after = value->after;
  return Access::make(std::move(out));
}

Tensor over_processes(const Tensor& part, const Sharding& over) {
  Type global = global_type(over, part.type());
  std::vector<std::shared_ptr<DeviceValue>> parts;
  if (const std::optional<Sharding> here = on_each_process(over))
    parts = spread_here(part, *here)->parts;
  else
    parts = {on_its_device(part, over)};
  const Value::Kind kind = Access::value(part)->kind;
  const ComputedValue* const made =
      kind == Value::Kind::host ? nullptr : static_cast<const ComputedValue*>(Access::value(part));
  auto out = std::make_shared<ShardedValue>(std::move(global), over, std::move(parts),
                                            made ? made->run : nullptr);
  if (made) out->after = made->after;
  return Access::make(std::move(out));
}

}  // namespace run

}  // namespace postern::internal

namespace postern {
using namespace internal;

namespace detail {

Tensor put_over_processes(const Tensor& x, const Sharding& sharding, Gives gives) {
  const Split split(sharding.mesh());  // refuses one of another cluster
  const Type global = gives == Gives::part ? global_type(sharding, x.type()) : x.type();
  sharding.part_type(global);
  if (Trace::current()) {
    check(gives == Gives::whole,
          "device_put: in a program every process has the same types; parts are given outside of "
          "it, or come from shard_map");
    return constrained(x, sharding);
  }
  if (const Sharding* const from = run::sharding_of(x); from && *from == sharding) return x;
  return run::over_processes(gives == Gives::part ? x : run::shard_here(x, sharding), sharding);
}

Tensor collect(const Tensor& x, int rank, const Place& place) {
  PlaceScope at(place);
  check(x.has_value(), "collect: the Tensor is empty, it was never given a value");
  const int size = clusters::Cluster::joined() ? clusters::Cluster::get().size() : 1;
  check(rank < size, "collect: the rank must be one of the {} processes, got {}", size, rank);
  if (Trace::current()) {
    check(rank < 0,
          "collect: in a program every process has the same, so it takes no rank; gather_to in "
          "shard_map gives it to one");
    return collected(x, rank);
  }
  const Sharding* const sharding = run::sharding_of(x);
  const bool cut = sharding && is_sharded_over_processes(*sharding);
  const Tensor global = cut ? collected(x, std::max(rank, -1)) : x;
  return rank < 0 || rank == clusters::rank_now() ? global : Tensor();
}

}  // namespace detail

}  // namespace postern
