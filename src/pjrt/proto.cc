// CompileOptionsProto, written by hand: the field numbers of xla/pjrt/proto/compile_options.proto
// that Postern uses.
#include "pjrt/client.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <variant>

#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "core/lists.h"

namespace postern::internal::pjrt {
namespace {

/// One of XLA's DebugOptions, by name, for every program that is compiled. XLA refuses names and
/// types that it does not know.
struct DebugOption {
  std::string_view name;
  std::variant<bool, std::int64_t> value;
};
constexpr DebugOption debug_options[] = {
    // Arithmetic as IEEE 754 has it. The first is on by default, and maximum(1, nan) is then 1; the
    // others are off, but XLA_FLAGS could turn them on.
    {"xla_cpu_enable_fast_min_max", false},
    {"xla_cpu_enable_fast_math", false},
    {"xla_gpu_enable_fast_min_max", false},
    {"xla_gpu_ftz", false},
};

constexpr DebugOption untuned = {"xla_gpu_autotune_level", std::int64_t{0}};

// An entry of a map of OptionOverrideProto by name.
void write(protozero::pbf_writer& out, const DebugOption& option) {
  constexpr protozero::pbf_tag_type env_option_overrides = 7, key = 1, value = 2, bool_field = 2,
                                    int_field = 3;
  protozero::pbf_writer entry(out, env_option_overrides);
  entry.add_string(key, option.name.data(), option.name.size());
  protozero::pbf_writer override(entry, value);
  if (const bool* const flag = std::get_if<bool>(&option.value))
    override.add_bool(bool_field, *flag);
  else
    override.add_int64(int_field, std::get<std::int64_t>(option.value));
}

// DeviceAssignmentProto: one list of replicas for each partition.
void write_devices(protozero::pbf_writer out, const CompileOptions& options) {
  constexpr protozero::pbf_tag_type replica_count = 1, computation_count = 2,
                                    computation_devices = 3, replica_device_ids = 1;
  out.add_int32(replica_count, options.num_replicas);
  out.add_int32(computation_count, options.num_partitions);
  const auto partitions = size_of(options.num_partitions);
  for (std::size_t partition = 0; partition < partitions; ++partition) {
    std::vector<std::int64_t> ids;
    for (std::size_t i = partition; i < options.device_ids.size(); i += partitions)
      ids.push_back(options.device_ids[i]);
    protozero::pbf_writer computation(out, computation_devices);
    computation.add_packed_int64(replica_device_ids, ids.begin(), ids.end());
  }
}

}  // namespace

std::string to_proto(const CompileOptions& options) {
  constexpr protozero::pbf_tag_type executable_build_options = 3, compile_portable_executable = 4;
  constexpr protozero::pbf_tag_type device_ordinal = 1, num_replicas = 4, num_partitions = 5,
                                    use_spmd = 6, device_assignment = 9, propagate_to_output = 12;
  if (!options.device_ids.empty() &&
      options.device_ids.size() != size_of(options.num_replicas) * size_of(options.num_partitions))
    throw Error(ErrorCode::invalid_argument,
                "a program for " + std::to_string(options.num_replicas) + " replicas of " +
                    std::to_string(options.num_partitions) +
                    " partitions needs as many device ids, or none for the default; came " +
                    std::to_string(options.device_ids.size()));
  std::string data;
  protozero::pbf_writer out(data);
  {
    protozero::pbf_writer build(out, executable_build_options);
    build.add_int64(device_ordinal, -1);  // not set
    build.add_int64(num_replicas, options.num_replicas);
    build.add_int64(num_partitions, options.num_partitions);
    build.add_bool(use_spmd, options.use_spmd);
    for (const bool is_free : options.free_results) build.add_bool(propagate_to_output, is_free);
    if (!options.device_ids.empty())
      write_devices(protozero::pbf_writer(build, device_assignment), options);
  }
  out.add_bool(compile_portable_executable, options.portable);
  for (const DebugOption& option : debug_options) write(out, option);
  if (!options.tune) write(out, untuned);
  return data;
}

// --- what a compiled program says ---
// HloModuleProto of xla/service/hlo.proto, OpSharding of xla/xla_data.proto.

namespace {

std::vector<std::int64_t> numbers(protozero::pbf_reader& field) {
  if (field.wire_type() == protozero::pbf_wire_type::varint) return {field.get_int64()};
  const auto packed = field.get_packed_int64();
  return {packed.begin(), packed.end()};
}
void append(std::vector<std::int64_t>& to, const std::vector<std::int64_t>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// Lists the devices of a tile assignment that is written as the numbers 0, 1, 2, ... in an array
/// of `dims`, whose axes then go in this order (empty: as they are). Dims 2, 3 in the order 1, 0
/// list 0, 3, 1, 4, 2, 5.
std::vector<std::int64_t> transposed(const std::vector<std::int64_t>& dims,
                                     std::vector<std::int64_t> order) {
  if (order.empty()) {
    order.resize(dims.size());
    std::iota(order.begin(), order.end(), 0);
  }
  std::vector<std::int64_t> strides(dims.size(), 1), out{0};
  for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  for (const std::int64_t number : order) {
    const auto axis = size_of(number);
    std::vector<std::int64_t> next;
    for (const std::int64_t base : out)
      for (std::int64_t i = 0; i < dims[axis]; ++i) next.push_back(base + i * strides[axis]);
    out = std::move(next);
  }
  return out;
}

/// Reads an OpSharding: of a tuple its elements' shardings, else one.
std::vector<OutputSharding> shardings_in(protozero::pbf_reader message) {
  constexpr protozero::pbf_tag_type type = 1, tile_dims = 3, tile_devices = 4, tuple = 5,
                                    copies = 6, last_dims = 8, iota_dims = 9, iota_order = 10;
  constexpr int replicated = 0, tuple_type = 2, tiled = 3;  // its name there: OTHER
  std::int64_t kind = replicated;
  OutputSharding one;
  std::vector<OutputSharding> parts;
  std::vector<std::int64_t> dims, order;
  while (message.next()) switch (message.tag()) {
      case type: kind = message.get_int64(); break;
      case tile_dims: append(one.tiles, numbers(message)); break;
      case tile_devices: append(one.devices, numbers(message)); break;
      case tuple: parts.push_back(shardings_in(message.get_message())[0]); break;
      case copies: one.copies = one.copies || message.get_bool(); break;
      case last_dims:
        one.copies = one.copies || std::ranges::count(numbers(message), replicated) > 0;
        break;
      case iota_dims: append(dims, numbers(message)); break;
      case iota_order: append(order, numbers(message)); break;
      default: message.skip();
    }
  if (kind == tuple_type) return parts;
  if (!dims.empty()) one.devices = transposed(dims, order);
  switch (kind) {
    case replicated: one.kind = OutputSharding::Kind::replicated; break;
    case tiled: one.kind = OutputSharding::Kind::tiled; break;
    default: one.kind = OutputSharding::Kind::other;
  }
  return {one};
}

}  // namespace

std::vector<OutputSharding> Executable::output_shardings() const {
  constexpr protozero::pbf_tag_type hlo_module = 1, output_sharding = 12;
  const OptimizedProgram program = optimized_program();
  try {
    protozero::pbf_reader module(program.code);
    if (program.format == "hlo_with_config") {
      protozero::pbf_reader outer(program.code);
      if (outer.next(hlo_module)) module = outer.get_message();
    }
    if (module.next(output_sharding)) {
      auto all = shardings_in(module.get_message());
      all.resize(num_outputs_);
      return all;
    }
  } catch (const protozero::exception& e) {
    throw Error(ErrorCode::internal,
                std::string("a compiled program's description cannot be read: ") + e.what());
  }
  throw Error(ErrorCode::unimplemented,
              "the plug-in does not tell how it spread the results of a program");
}

}  // namespace postern::internal::pjrt
