// The C interface: arrays over several devices.
#include <postern/shard.h>

#include "c/c_api.h"
#include "core/check.h"
#include "file/site_json.h"
#include "run/sharded.h"

using namespace postern;
using namespace postern::internal;
using c::guarded;

int pn_tensor_of_shards(const char* sharding, const pn_tensor* const* shards, size_t count,
                        int compare, pn_tensor** out) {
  return guarded(sharding && out, "pn_tensor_of_shards: sharding or out", [&] {
    std::optional<Sharding> how;
    try {
      how = file::sharding_from(file::Json::parse(sharding));
    } catch (const nlohmann::json::exception& e) {
      throw_type_error(
          fmt::format("pn_tensor_of_shards: the sharding cannot be read: {}", e.what()));
    }
    // First: a list that is meant for another mesh is not read.
    check(how->mesh().size() == static_cast<std::int64_t>(count),
          "{} has {} devices, {} parts came", to_string(how->mesh()), how->mesh().size(), count);
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < count; ++i) {
      check(shards && shards[i], "pn_tensor_of_shards: shard {} is NULL", i);
      parts.push_back(shards[i]->tensor);
    }
    *out = new pn_tensor{detail::Access::make(run::of_parts(parts, *how, compare != 0))};
  });
}

int pn_tensor_shard(const pn_tensor* tensor, size_t index, int32_t* device, pn_tensor** out) {
  return guarded(tensor && out, "pn_tensor_shard: tensor or out", [&] {
    std::vector<Shard> all = shards_of(tensor->tensor, Place{});
    if (index >= all.size())
      throw Error(ErrorCode::not_found,
                  fmt::format("pn_tensor_shard: there is no shard {}, the tensor has {}", index,
                              all.size()));
    *out = new pn_tensor{std::move(all[index].data)};
    if (device) *device = all[index].device;
  });
}
