// Spreading arrays over devices and gathering them.
#include "run/sharded.h"

#include <algorithm>
#include <cstring>

#include "cluster/cluster.h"
#include "core/check.h"
#include "core/lists.h"
#include "core/process_sharding.h"
#include "host/failure_text.h"
#include "run/run_record.h"
#include "shard/shard_map.h"
#include "trace/trace.h"

namespace postern::internal {

using detail::Access;
using detail::Value;

namespace run {

namespace {

std::atomic<bool> anything_placed{false};  // until then no run looks for it
thread_local int device_of_scope = 0;

Type type_of(const std::vector<IndexRange>& range, DType dtype) {
  Type out{dtype, {}};
  for (const IndexRange& r : range) out.dims.push_back(r.end - r.begin);
  return out;
}

const ShardedValue* sharded(const Tensor& tensor) {
  const Value* v = Access::value(tensor);
  if (v && v->kind == Value::Kind::sharded) return static_cast<const ShardedValue*>(v);
  return nullptr;
}

/// Calls act(offset in the whole, bytes) for each block of a part of an array, both row-major: what
/// lies together in both, of the last axes up to and with the last one that is cut. In the part the
/// blocks follow each other in this order.
template <class Act>
void each_block(const Dims& whole, const std::vector<IndexRange>& range, std::size_t width,
                const Act& act) {
  const auto extent = [&](std::size_t axis) { return range[axis].end - range[axis].begin; };
  std::size_t outer = range.size(), bytes = width;  // axes before the block's, its bytes
  while (outer > 0) {
    --outer;
    bytes *= size_of(extent(outer));
    if (extent(outer) != whole[outer]) break;
  }
  if (bytes == 0) return;
  std::int64_t count = 1;
  for (std::size_t i = 0; i < outer; ++i) count *= extent(i);
  for (std::int64_t block = 0; block < count; ++block) {
    std::int64_t rest = block;
    std::size_t offset = 0, stride = width;
    for (std::size_t i = range.size(); i-- > 0;) {
      std::int64_t index = range[i].begin;
      if (i < outer) {
        index += rest % extent(i);
        rest /= extent(i);
      }
      offset += stride * size_of(index);
      stride *= size_of(whole[i]);
    }
    act(offset, bytes);
  }
}

/// Returns which indices of the whole a part has.
std::vector<IndexRange> range_of(const ShardedValue& value, std::size_t part) {
  const Sharding& s = value.sharding;
  auto position = static_cast<std::int64_t>(part);
  if (spans_processes(s.mesh())) position = position_on(s.mesh(), part, clusters::rank_now());
  return index_ranges(s, value.type.dims, position);
}

}  // namespace

ShardedValue::ShardedValue(Type t, Sharding s, std::vector<std::shared_ptr<DeviceValue>> p,
                           std::shared_ptr<RunRecord> r)
    : ComputedValue(Kind::sharded, std::move(t), std::move(r)),
      sharding(std::move(s)),
      parts(std::move(p)) {}

const Sharding* sharding_of(const Tensor& tensor) {
  const ShardedValue* v = sharded(tensor);
  return v ? &v->sharding : nullptr;
}

/// The parts may be another array's too, or have been taken by themselves.
static void refuse_donated(const ShardedValue& value) {
  detail::refuse_donated(value);
  for (const auto& part : value.parts) detail::refuse_donated(*part);
}

void await(const ShardedValue& value) {
  refuse_donated(value);
  await_by(value, [&] {
    for (const auto& part : value.parts) await_buffer(*part);
  });
}

void gather(const ShardedValue& value, void* to) {
  if (is_sharded_over_processes(value.sharding)) [[unlikely]]
    throw_type_error(
        fmt::format("{} lies over processes, {}, and parts of it are elsewhere: collect(x) gives "
                    "the whole, shards_of(x) what is here",
                    to_string(value.type), to_string(value.sharding)));
  await(value);
  const Dims& whole = value.type.dims;
  std::vector<std::vector<IndexRange>> copied;  // each once, of those that several devices have
  for (std::size_t i = 0; i < value.parts.size(); ++i) {
    const auto range = range_of(value, i);
    if (std::ranges::find(copied, range) != copied.end()) continue;
    copied.push_back(range);
    const std::shared_ptr<void> bytes = detail::aligned_bytes(value.parts[i]->type.byte_size());
    copy_out(*value.parts[i], bytes.get());
    const auto* from = static_cast<const std::byte*>(bytes.get());
    each_block(whole, range, byte_width(value.type.dtype), [&](std::size_t offset, std::size_t n) {
      std::memcpy(static_cast<std::byte*>(to) + offset, from, n);
      from += n;
    });
  }
}

std::shared_ptr<const void> copied_part(const void* whole, const Type& type,
                                        const std::vector<IndexRange>& range) {
  std::shared_ptr<void> part = detail::aligned_bytes(type_of(range, type.dtype).byte_size());
  auto* to = static_cast<std::byte*>(part.get());
  each_block(type.dims, range, byte_width(type.dtype), [&](std::size_t offset, std::size_t n) {
    std::memcpy(to, static_cast<const std::byte*>(whole) + offset, n);
    to += n;
  });
  return part;
}

static std::shared_ptr<DeviceValue> copy_on_device(const std::shared_ptr<const Value>& array) {
  const auto& from = static_cast<const DeviceValue&>(*array);
  const auto bytes = host_bytes(Access::make(array), "a donated argument");
  // The lane may stand for another device by now.
  auto copy = std::make_shared<DeviceValue>(from.type,
                                            send(from.type, bytes, Runtime::get().lane(from.lane)),
                                            from.lane, from.device, nullptr);
  copy->placed = from.placed;
  return copy;
}

/// Returns the same in a value of its own.
static std::shared_ptr<const Value> copy_of(const Tensor& x) {
  if (const detail::HostValue* host = Access::host(x))  // no program writes there
    return std::make_shared<const detail::HostValue>(host->type, host->data);
  const ShardedValue* const from = sharded(x);
  if (!from) return copy_on_device(Access::pointer(x));
  await(*from);
  std::vector<std::shared_ptr<DeviceValue>> parts;
  for (const auto& part : from->parts) parts.push_back(copy_on_device(part));
  return std::make_shared<const ShardedValue>(from->type, from->sharding, std::move(parts),
                                              nullptr);
}

Tensors apart_from(std::span<const Value* const> donated, Tensors results) {
  const auto was_donated = [&](const Tensor& t) {
    return std::ranges::find(donated, memory_of(Access::value(t)), memory_of) != donated.end();
  };
  // Not views of the memory: XLA's plug-ins for GPUs end a process that donates one.
  for (Tensor& t : results)
    if (was_donated(t)) t = Access::make(copy_of(t));
  return results;
}

static bool has_same_parts(const Sharding& one, const Sharding& other) {
  if (one == other) return true;
  return one.is_replicated() && other.is_replicated() &&
         one.mesh().devices() == other.mesh().devices();
}

std::shared_ptr<const ShardedValue> spread(const Tensor& tensor, const Sharding& sharding,
                                           std::span<Lane* const> lanes) {
  const std::shared_ptr<const Value>& pointer = Access::pointer(tensor);
  const Type& type = tensor.type();
  sharding.part_type(type);  // throws where it cannot be cut so
  std::vector<std::shared_ptr<DeviceValue>> parts;
  if (const ShardedValue* from = sharded(tensor);
      from && has_same_parts(from->sharding, sharding)) {
    const auto is_there = [](const auto& part, Lane* lane) { return part->lane == lane->index; };
    if (std::ranges::equal(from->parts, lanes, is_there)) {
      refuse_donated(*from);
      return std::static_pointer_cast<const ShardedValue>(pointer);
    }
    await(*from);
    parts = from->parts;
    for (std::size_t i = 0; i < lanes.size(); ++i)
      if (!is_there(parts[i], lanes[i]))
        parts[i] = placed_on(parts[i]->type, seen_on(parts[i], *lanes[i]), *lanes[i]);
  } else if (pointer->kind == Value::Kind::device && sharding.is_replicated()) {
    for (Lane* lane : lanes) parts.push_back(placed_on(type, seen_on(pointer, *lane), *lane));
  } else {
    const std::shared_ptr<const void> bytes =
        host_bytes(tensor, "a tensor that is spread over devices");
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const auto range = index_ranges(sharding, type.dims, static_cast<std::int64_t>(i));
      const Type part = type_of(range, type.dtype);
      std::shared_ptr<const void> piece = bytes;
      if (part.dims != type.dims) piece = copied_part(bytes.get(), type, range);
      parts.push_back(sent_to(*lanes[i], part, piece));
    }
  }
  return std::make_shared<const ShardedValue>(type, sharding, std::move(parts), nullptr);
}

std::shared_ptr<const ShardedValue> spread_here(const Tensor& tensor, const Sharding& sharding) {
  check_devices(sharding.mesh());
  std::vector<Lane*> lanes;
  for (const int d : sharding.mesh().devices()) lanes.push_back(&Runtime::get().lane(d));
  const auto value = spread(tensor, sharding, lanes);
  if (value->sharding == sharding) return value;
  // Its parts lie so already.
  auto out = std::make_shared<ShardedValue>(value->type, sharding, value->parts, value->run);
  out->after = value->after;
  return out;
}

/// Returns the type of an array whose parts are of this one. Throws where it would be too large.
static Type whole_of(const Type& part, const Sharding& sharding) {
  Type out = part;
  const auto& cuts = sharding.spec().parts();
  bool fits = cuts.size() <= part.dims.size();  // becomes false where an extent overflows
  for (std::size_t i = 0; fits && i < cuts.size(); ++i)
    for (const std::string& name : cuts[i])
      fits = fits && !__builtin_mul_overflow(out.dims[i], sharding.mesh().size(name), &out.dims[i]);
  check(fits, "parts {} are none of an array over {}", to_string(part), to_string(sharding));
  static_cast<void>(out.byte_size());  // throws where no such array can be
  return out;
}

static void require_equal_copies(std::span<const Tensor> parts, const Dims& whole,
                                 const Sharding& sharding) {
  const auto range = [&](std::size_t i) {
    return index_ranges(sharding, whole, static_cast<std::int64_t>(i));
  };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::size_t first = 0;  // of the parts that are the same piece of the whole
    while (range(first) != range(i)) ++first;
    const auto one = host_bytes(parts[first], "a part"), other = host_bytes(parts[i], "a part");
    check(one == other || std::memcmp(one.get(), other.get(), parts[i].type().byte_size()) == 0,
          "devices of {} that hold the same part were given different values for it",
          to_string(sharding));
  }
}

std::shared_ptr<const ShardedValue> of_parts(std::span<const Tensor> parts,
                                             const Sharding& sharding, bool compare) {
  refuse_processes(sharding.mesh(), "an array of given parts");
  const std::vector<int>& devices = sharding.mesh().devices();
  check_devices(sharding.mesh());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check(parts[i].has_value() && !parts[i].is_traced(), "part {} has no values", i);
    check(parts[i].type() == parts[0].type(), "part {} is {}, part 0 {}", i,
          to_string(parts[i].type()), to_string(parts[0].type()));
  }
  Type whole = whole_of(parts[0].type(), sharding);
  if (compare) require_equal_copies(parts, whole.dims, sharding);
  std::vector<std::shared_ptr<DeviceValue>> placed;
  for (std::size_t i = 0; i < parts.size(); ++i)
    placed.push_back(spread_here(parts[i], on_one_device(devices[i]))->parts[0]);
  return std::make_shared<const ShardedValue>(std::move(whole), sharding, std::move(placed),
                                              nullptr);
}

static std::vector<int> sorted_devices(const Mesh& mesh) {
  std::vector<int> out = mesh.devices();
  std::ranges::sort(out);
  return out;
}

void check_devices(const Mesh& mesh) {
  const std::vector<int> devices = sorted_devices(mesh);
  if (devices.empty()) return;
  const int have = Runtime::get().device_count();
  const char* are = "are";
  if (have == 1) are = "is only";
  check(devices.back() < have,
        "{} needs device {}, there {} {} (POSTERN_CPU_DEVICES, Config::cpu_devices)",
        to_string(mesh), devices.back(), are, have);
  const Backend& backend = Runtime::get().backend_of(devices[0]);
  for (const int d : devices)
    check(backend.has(d), "{} has devices of two platforms, {} and {}; a program runs on one",
          to_string(mesh), host::device_name(devices[0]), host::device_name(d));
}

std::vector<int> common_devices(std::span<const Mesh> meshes) {
  if (meshes.empty()) return {};
  const std::vector<int> devices = sorted_devices(meshes[0]);
  for (const Mesh& mesh : meshes)
    check(sorted_devices(mesh) == devices,
          "a program runs on one set of devices: {} has others than {}", to_string(mesh),
          to_string(meshes[0]));
  check_devices(meshes[0]);
  return devices;
}

Home home_of(std::span<const Tensor* const> tensors) {
  if (!anything_placed.load(std::memory_order_relaxed)) [[likely]]
    return {0, false};
  int device = -1;
  for (const Tensor* t : tensors) {
    const Value* v = Access::value(*t);
    if (!v || v->kind != Value::Kind::device) continue;
    const auto& array = static_cast<const DeviceValue&>(*v);
    if (!array.placed || array.device == device) continue;
    check(device < 0,
          "arguments were put on devices {} and {}; a program runs on one, see device_put",
          host::device_name(device), host::device_name(array.device));
    device = array.device;
  }
  if (device < 0) return {device_of_scope, false};
  return {device, true};
}

int device_for(std::span<const Tensor* const> tensors) {
  for (const Tensor* t : tensors)
    if (const ShardedValue* v = sharded(*t)) return v->sharding.mesh().devices().front();
  return home_of(tensors).device;
}

int default_device() { return device_of_scope; }

Backend& Runtime::here() { return backend_of(device_of_scope); }

AtDevice::AtDevice(int device) {
  if (!several_platforms.load(std::memory_order_relaxed)) return;
  if (!Runtime::get().backend_of(device).has(device_of_scope)) scope_.emplace(device, Place{});
}

AtDevice::AtDevice(std::span<const Tensor* const> tensors)
    : AtDevice(several_platforms.load(std::memory_order_relaxed) ? device_for(tensors) : 0) {}

static void use(int device) {
  device_of_scope = device;
  if (several_platforms) platforms::use_here(&Runtime::existing().backend_of(device).used);
}

void check_device(int device) {
  const int have = Runtime::get().device_count();
  check(device >= 0 && device < have, "device {} is not one of the {} of devices()", device, have);
}

}  // namespace run

}  // namespace postern::internal

namespace postern {
using namespace internal;

Tensor detail::put(const Tensor& x, int device, const Place& place) {
  PlaceScope at(place);
  check(x.has_value(), "device_put: the Tensor is empty, it was never given a value");
  check(!x.is_traced() && !Trace::current(),
        "device_put: a program is being traced, which runs on one set of devices; put its "
        "arguments there");
  run::check_device(device);
  run::anything_placed = true;
  const run::Lane& lane = run::Runtime::get().lane(device);
  const std::shared_ptr<const Value>& pointer = Access::pointer(x);
  std::shared_ptr<run::DeviceValue> value;
  if (pointer->kind == Value::Kind::device) {
    const auto& from = static_cast<const run::DeviceValue&>(*pointer);
    if (from.placed && from.lane == lane.index) return x;
    value = run::placed_on(x.type(), run::seen_on(pointer, lane), lane);
  } else {
    value = run::sent_to(lane, x.type(), run::host_bytes(x, "device_put"));
  }
  value->placed = true;
  return Access::make(std::move(value));
}

Tensor detail::put(const Tensor& x, const Sharding& sharding, Gives gives, const Place& place) {
  PlaceScope at(place);
  check(x.has_value(), "device_put: the Tensor is empty, it was never given a value");
  if (spans_processes(sharding.mesh())) return put_over_processes(x, sharding, gives);
  check(gives == Gives::whole, "device_put: {} has no axes of processes that could give parts",
        to_string(sharding.mesh()));
  sharding.part_type(x.type());
  if (Trace::current()) return constrained(x, sharding);
  return Access::make(run::spread_here(x, sharding));
}

std::optional<Sharding> sharding_of(const Tensor& x) {
  const Sharding* s = run::sharding_of(x);
  return s ? std::optional<Sharding>(*s) : std::nullopt;
}

std::vector<Shard> shards_of(const Tensor& x, Place place) {
  PlaceScope at(place);
  check(x.has_value() && !x.is_traced(), "shards_of: the tensor has no data");
  const run::ShardedValue* v = run::sharded(x);
  if (!v) return {{x.device(), index_ranges(on_one_device(x.device()), x.dims(), 0), x}};
  std::vector<Shard> out;
  for (std::size_t i = 0; i < v->parts.size(); ++i)
    out.push_back(
        {v->sharding.mesh().devices()[i], run::range_of(*v, i), Access::make(v->parts[i])});
  return out;
}

DeviceScope::DeviceScope(int device, Place place) : outer_(run::device_of_scope) {
  PlaceScope at(place);
  run::check_device(device);
  run::anything_placed = true;
  run::use(device);
}
DeviceScope::~DeviceScope() { run::use(outer_); }

}  // namespace postern
