// CompileOptionsProto, written by hand: the field numbers of xla/pjrt/proto/compile_options.proto that Postern uses.
#include "pjrt/client.h"

#include <protozero/pbf_writer.hpp>

namespace postern::pjrt {
namespace {

// DeviceAssignmentProto: one list of replicas for each partition.
void write_devices(protozero::pbf_writer out, const CompileOptions& options) {
  constexpr protozero::pbf_tag_type replica_count = 1, computation_count = 2, computation_devices = 3, replica_device_ids = 1;
  out.add_int32(replica_count, options.num_replicas);
  out.add_int32(computation_count, options.num_partitions);
  const auto partitions = static_cast<std::size_t>(options.num_partitions);
  for (std::size_t partition = 0; partition < partitions; ++partition) {
    std::vector<std::int64_t> ids;
    for (std::size_t i = partition; i < options.device_ids.size(); i += partitions) ids.push_back(options.device_ids[i]);
    protozero::pbf_writer computation(out, computation_devices);
    computation.add_packed_int64(replica_device_ids, ids.begin(), ids.end());
  }
}

}  // namespace

std::string to_proto(const CompileOptions& options) {
  constexpr protozero::pbf_tag_type executable_build_options = 3, compile_portable_executable = 4;
  constexpr protozero::pbf_tag_type device_ordinal = 1, num_replicas = 4, num_partitions = 5, use_spmd = 6, device_assignment = 9;
  if (!options.device_ids.empty() &&
      options.device_ids.size() != static_cast<std::size_t>(options.num_replicas) * static_cast<std::size_t>(options.num_partitions))
    throw Error(ErrorCode::invalid_argument,
                "a program for " + std::to_string(options.num_replicas) + " replicas of " + std::to_string(options.num_partitions) +
                    " partitions needs as many device ids, or none for the default; came " + std::to_string(options.device_ids.size()));
  std::string data;
  protozero::pbf_writer out(data);
  {
    protozero::pbf_writer build(out, executable_build_options);
    build.add_int64(device_ordinal, -1);  // not set
    build.add_int64(num_replicas, options.num_replicas);
    build.add_int64(num_partitions, options.num_partitions);
    build.add_bool(use_spmd, options.use_spmd);
    if (!options.device_ids.empty()) write_devices(protozero::pbf_writer(build, device_assignment), options);
  }
  out.add_bool(compile_portable_executable, options.portable);
  return data;
}

}  // namespace postern::pjrt
