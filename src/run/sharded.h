// Arrays spread over several devices: putting them there, reading them, and handing them to
// programs that XLA cut for those devices.
#pragma once
#include "core/sharding.h"
#include "run/array.h"

namespace postern::run {

/// Parts by position in the sharding's mesh.
struct ShardedValue final : ComputedValue {
  ShardedValue(Type t, Sharding s, std::vector<std::shared_ptr<DeviceValue>> p,
               std::shared_ptr<RunRecord> r);
  Sharding sharding;
  std::vector<std::shared_ptr<DeviceValue>> parts;
};

/// The sharding of a tensor on several devices, else null.
const Sharding* sharding_of(const Tensor& tensor);

void await(const ShardedValue& value);
/// Copies the whole array, row-major, to `to`.
void gather(const ShardedValue& value, void* to);

/// The tensor's array on these lanes, one for each device of the sharding's mesh. Takes over parts
/// that are there already.
std::shared_ptr<const ShardedValue> spread(const Tensor& tensor, const Sharding& sharding,
                                           std::span<Lane* const> lanes);

/// The devices that meshes name, in order; throws TypeError when they are not the same ones for
/// all, or there are no such devices.
std::vector<int> devices_of(std::span<const Mesh> meshes);

}  // namespace postern::run
