// Arrays spread over several devices: putting them there, reading them, and handing them to
// programs that XLA cut for those devices.
#pragma once
#include <postern/shard.h>

#include "core/sharding.h"
#include "run/array.h"

namespace postern::internal::run {

/// Parts by position in the sharding's mesh; of one that spans processes those on this one's
/// devices, in the mesh's order.
struct ShardedValue final : ComputedValue {
  ShardedValue(Type t, Sharding s, std::vector<std::shared_ptr<DeviceValue>> p,
               std::shared_ptr<RunRecord> r);
  Sharding sharding;
  std::vector<std::shared_ptr<DeviceValue>> parts;
};

/// Returns the sharding of a tensor on several devices, else null.
const Sharding* sharding_of(const Tensor& tensor);

void await(const ShardedValue& value);
/// Copies the whole array, row-major, to `to`. Throws TypeError when parts are on other processes.
void gather(const ShardedValue& value, void* to);

/// Returns the tensor's array on these lanes, one for each device of the sharding's mesh. Takes
/// over parts that are there already: of the array itself where it has the same by another name.
std::shared_ptr<const ShardedValue> spread(const Tensor& tensor, const Sharding& sharding,
                                           std::span<Lane* const> lanes);
/// Returns the results of a run, copies of those that lie in arrays which were donated to it.
Tensors apart_from(std::span<const detail::Value* const> donated, Tensors results);
/// Spreads it on those devices themselves.
std::shared_ptr<const ShardedValue> spread_here(const Tensor& tensor, const Sharding& sharding);

/// Returns the array whose parts these are, by position in the mesh; each goes to its device.
/// Throws TypeError for meshes of processes and devices that there are not, for parts that are
/// empty, of different types or not one for each device, and with `compare` for copies that differ.
std::shared_ptr<const ShardedValue> of_parts(std::span<const Tensor> parts,
                                             const Sharding& sharding, bool compare);

/// Returns the part here of a tensor that lies over processes as this sharding says, or is a whole
/// that can be cut so: this process's part, on its devices.
Tensor part_here(const Tensor& tensor, const Sharding& over);
/// Returns the tensor that lies so and of which this process has that part.
Tensor over_processes(const Tensor& part, const Sharding& over);

/// Throws TypeError when a mesh names devices that there are not, or of two platforms.
void check_devices(const Mesh& mesh);
/// Returns the devices that meshes name, ascending; throws TypeError when they are not the same for
/// all, and what check_devices throws.
std::vector<int> common_devices(std::span<const Mesh> meshes);

/// Returns memory of its own with what such a range of a whole array has.
std::shared_ptr<const void> copied_part(const void* whole, const Type& type,
                                        const std::vector<IndexRange>& range);

}  // namespace postern::internal::run

namespace postern::detail {

/// Does device_put over processes.
Tensor put_over_processes(const Tensor& x, const Sharding& sharding, Gives gives);

}  // namespace postern::detail
