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

/// Returns this process's part as an array on the one device with which it takes part.
std::shared_ptr<DeviceValue> on_its_device(const Tensor& part, const Sharding& over) {
  const std::shared_ptr<const Value>& pointer = Access::pointer(part);
  if (pointer->kind == Value::Kind::device)
    return std::const_pointer_cast<DeviceValue>(
        std::static_pointer_cast<const DeviceValue>(pointer));
  const Mesh& mesh = over.mesh();
  check_devices(mesh);
  const Lane& lane = Runtime::get().lane(mesh.devices().front());
  auto out = sent_to(lane, part.type(), host_bytes(part, "device_put"));
  out->placed = true;
  return out;
}

/// Returns what this process keeps of a whole that every process has.
Tensor shard_here(const Tensor& global, const Sharding& over) {
  if (!is_sharded_over_processes(over)) return global;
  const auto range = addressable_ranges(over, global.dims(), clusters::rank_now());
  const Type part = addressable_type(over, {global.dtype(), global.dims()});
  std::shared_ptr<const void> keep;
  const void* const whole = host_view(global, keep);
  return Access::make(
      std::make_shared<detail::HostValue>(part, copied_part(whole, global.type(), range)));
}

}  // namespace

Tensor part_here(const Tensor& tensor, const Sharding& over) {
  const ShardedValue* value = global_value(tensor);
  Tensor put;  // keeps `value`
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
  auto out = std::make_shared<ShardedValue>(std::move(global), over, std::move(parts), nullptr);
  if (Access::value(part)->kind != Value::Kind::host) {
    const auto& made = static_cast<const ComputedValue&>(*Access::value(part));
    out->run = made.run;
    out->after = made.after;
  }
  return Access::make(std::move(out));
}

}  // namespace run

}  // namespace postern::internal

namespace postern {
using namespace internal;

Tensor detail::put_over_processes(const Tensor& x, const Sharding& sharding, Gives gives) {
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
  const Tensor part = gives == Gives::part ? x : run::shard_here(x, sharding);
  return run::over_processes(part, sharding);
}

Tensor detail::collect(const Tensor& x, int rank, const Place& place) {
  PlaceScope at(place);
  check(x.has_value(), "collect: the Tensor is empty, it was never given a value");
  const int size = clusters::size_now();
  check(rank < size, "collect: the rank must be one of the {} processes, got {}", size, rank);
  if (Trace::current()) {
    check(rank < 0,
          "collect: in a program every process has the same, so it takes no rank; gather_to in "
          "shard_map gives it to one");
    return collected(x, rank);
  }
  const Sharding* const sharding = run::sharding_of(x);
  if (!sharding || !is_sharded_over_processes(*sharding)) return x;
  const Tensor whole = collected(x, std::max(rank, -1));  // any negative rank: to all
  if (rank >= 0 && rank != clusters::rank_now()) return {};
  return whole;
}

}  // namespace postern
