// Compiling and running on several devices at once.
//
// XLA cuts such a program by the shardings in its text and runs a part of it on each device. Two
// orders of the devices meet here: a mesh has its own, by which an array's parts are kept, and the
// program has another, `module.devices`, by which XLA takes and gives buffers. partition_of goes
// from the former to the latter. A result whose sharding XLA chooses is given one that we can name;
// where there is none, the program is compiled again with that result on every device.
#include "run/partitioned.h"

#include <algorithm>

#include "core/cache.h"
#include "core/check.h"
#include "core/lists.h"
#include "host/timeline.h"
#include "run/compiled.h"
#include "run/disk_cache.h"
#include "run/failures.h"
#include "run/sharded.h"

namespace postern::internal::run {

using detail::Access;

namespace {

/// Finds a spec that lays an array out on the mesh as XLA did. Tries all: each mesh axis in turn
/// cuts none of the array's axes, or one, behind or before the mesh axes that do so already. Those
/// of extent 1 cut nothing, and none cuts further than XLA did.
std::optional<P> spec_like(const pjrt::OutputSharding& wanted, const Mesh& mesh, const Type& type,
                           const std::vector<int>& devices) {
  if (wanted.kind == pjrt::OutputSharding::Kind::replicated) return P();
  if (wanted.kind != pjrt::OutputSharding::Kind::tiled) return {};
  const std::string text = tiling_text(wanted.tiles, wanted.devices, wanted.copies);
  const auto rank = size_of(type.rank());
  std::vector<std::vector<std::string>> parts(rank);
  std::vector<std::int64_t> left = wanted.tiles;  // into so many pieces each is still to be cut
  left.resize(rank, 1);
  const std::vector<std::int64_t> done(rank, 1);
  std::optional<P> found;
  std::function<void(std::size_t)> place = [&](std::size_t mesh_axis) {
    if (found) return;
    if (mesh_axis == mesh.axes().size()) {
      const P spec(parts);
      if (left == done && hlo_text({mesh, spec}, type.rank(), devices) == text) found = spec;
      return;
    }
    place(mesh_axis + 1);
    const MeshAxis& axis = mesh.axes()[mesh_axis];
    for (std::size_t i = 0; i < rank; ++i) {
      if (axis.size == 1 || left[i] % axis.size != 0) continue;
      left[i] /= axis.size;
      for (const bool before : {false, true}) {
        if (before && parts[i].empty()) continue;
        parts[i].insert(before ? parts[i].begin() : parts[i].end(), axis.name);
        place(mesh_axis + 1);
        parts[i].erase(before ? parts[i].begin() : parts[i].end() - 1);
      }
      left[i] *= axis.size;
    }
  };
  place(0);
  return found;
}

/// Returns the same on a mesh of its own, for what no spec on the program's says: an axis of the
/// mesh for each of the array, and one more for copies.
Sharding sharding_like(const pjrt::OutputSharding& wanted, const Module& module) {
  std::vector<int> devices;
  for (const std::int64_t d : wanted.devices) devices.push_back(module.devices[size_of(d)]);
  if (wanted.kind != pjrt::OutputSharding::Kind::tiled) {
    check(devices.size() == 1, "XLA spread a value in a way that no Sharding says");
    return on_one_device(devices[0]);
  }
  std::vector<MeshAxis> axes;
  std::vector<std::vector<std::string>> parts;
  for (std::size_t i = 0; i < wanted.tiles.size(); ++i) {
    const bool copies = wanted.copies && i + 1 == wanted.tiles.size();
    axes.push_back({copies ? "copies" : fmt::format("axis{}", i), wanted.tiles[i]});
    if (!copies) parts.push_back({axes.back().name});
  }
  return {Mesh(std::move(axes), std::move(devices)), P(std::move(parts))};
}

Lanes lanes_of(const Module& module) {
  Lanes lanes;
  for (const int d : module.devices) lanes.push_back(&Runtime::get().lane(d));
  return lanes;
}

/// Returns of which results XLA chooses the sharding.
std::vector<bool> left_to_xla(const Module& module) {
  std::vector<bool> out;
  for (const auto& sharding : module.result_shardings) out.push_back(!sharding);
  return out;
}

pjrt::Executable compiled(const std::string& text, const Lanes& lanes,
                          const std::vector<bool>& free_results) {
  const host::timeline::Compiling compiling(host::timeline::module_name(text));
  const Compilation here;
  pjrt::CompileOptions options{.num_partitions = static_cast<int>(lanes.size()),
                               .use_spmd = true,
                               .free_results = free_results};
  for (const Lane* lane : lanes) options.device_ids.push_back(lane->handle.id());
  return compile_or_load(*lanes[0]->backend, size_of(lanes[0]->client), text, options);
}

}  // namespace

std::vector<Sharding> chosen_shardings(const Module& module) {
  const auto chosen =
      compiled(module.text, lanes_of(module), left_to_xla(module)).output_shardings();
  std::vector<Sharding> out;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::optional<P> spec =
        spec_like(chosen[i], module.mesh, module.results[i], module.devices);
    if (spec)
      out.emplace_back(module.mesh, *spec);
    else
      out.push_back(sharding_like(chosen[i], module));
  }
  return out;
}

// Compiles `module` and settles how its results lie. Asks XLA for those that the module leaves
// open: each that some spec on the program's mesh says is taken over; any other is written into the
// text as replicated, and the text compiled once more. Afterwards every result has a sharding,
// checked against the parts that the code makes. Throws CompileError, or an Error where XLA and the
// module contradict each other.
PartitionedCode::PartitionedCode(const Module& module)
    : text_(module.text), free_(left_to_xla(module)) {
  const Lanes lanes = lanes_of(module);
  std::vector<std::optional<Sharding>> wanted = module.result_shardings;
  main_ = compiled(text_, lanes, free_);
  if (const auto made = main_.output_dims().size(); made != wanted.size())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the program says that it has {} results, its text makes {}",
                            wanted.size(), made));
  if (std::ranges::any_of(wanted, [](const auto& s) { return !s; })) {
    // Such as the result of a call, which is on one device alone, and what no spec says: better on
    // every device.
    bool again = false;
    const auto chosen = main_.output_shardings();
    for (std::size_t i = wanted.size(); i-- > 0;) {
      if (wanted[i]) continue;
      const std::optional<P> spec =
          spec_like(chosen[i], module.mesh, module.results[i], module.devices);
      wanted[i].emplace(module.mesh, spec.value_or(P()));
      if (spec) continue;
      again = true;
      free_[i] = false;
      text_.insert(module.result_ends[i], " {mhlo.sharding = \"{replicated}\"}");
    }
    if (again) main_ = compiled(text_, lanes, free_);
  }
  const auto dims = main_.output_dims();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    results_.push_back(std::move(*wanted[i]));
    if (const Type part = results_[i].part_type(module.results[i]); part.dims != dims[i])
      throw Error(ErrorCode::internal,
                  fmt::format("a part of result {} is {} by its sharding {}, XLA made {}", i,
                              to_string(part), to_string(results_[i]), dims_to_string(dims[i])));
  }
}

std::shared_ptr<PartitionedCode> load_partitioned(const Module& module) {
  static auto* const cache = new Cache<PartitionedCode>(texts_kept);
  std::string key = fmt::format("{}\n{} {} ", module.text, fmt::join(module.devices, ","),
                                to_string(module.mesh));
  for (const auto& s : module.result_shardings) key += s ? to_string(*s) : "-";
  return cache->find(key, [&] { return std::make_shared<PartitionedCode>(module); });
}

const pjrt::Executable& PartitionedCode::on(const Lanes& lanes) {
  if (lanes.front()->client == 0) return main_;
  std::scoped_lock lock(guard_);
  auto& code = spare_[lanes.front()->index];
  if (!code) code = compiled(text_, lanes, free_);
  return code;
}

/// Puts a run's results together of the buffers that it made, which are by device of the program,
/// then by result. `record`: null if it has ended.
static void wrap_parts(const Module& module, const std::vector<Sharding>& shardings,
                       const Lanes& lanes, ResultBuffers& buffers,
                       const std::shared_ptr<RunRecord>& record, const Runs& pending,
                       std::span<Tensor> results) {
  for (std::size_t r = 0; r < results.size(); ++r) {
    const Sharding& sharding = shardings[r];
    const Type part = sharding.part_type(module.results[r]);
    std::vector<std::shared_ptr<DeviceValue>> parts;
    for (std::int64_t position = 0; position < sharding.mesh().size(); ++position) {
      const auto partition = size_of(partition_of(sharding.mesh(), position, module.devices));
      parts.push_back(std::make_shared<DeviceValue>(
          part, buffers.take(partition * results.size() + r), lanes[partition]->index,
          module.devices[partition], record));
      parts.back()->after = pending;
    }
    auto value =
        std::make_shared<ShardedValue>(module.results[r], sharding, std::move(parts), record);
    value->after = pending;
    results[r] = Access::make(std::move(value));
  }
}

// Runs the program on a lane of each of its devices; `record` is the run's if `start` began it,
// else null.
//
// 1. Waits for earlier runs that must come first, and takes all lanes for itself: parts of two runs
//    that queued in different orders on their devices would wait for each other.
// 2. Spreads every argument as its parameter lies, and sorts the parts' buffers by device.
// 3. Executes on all devices at once; host functions may run on this thread meanwhile.
// 4. Ends the record when every device says that it is complete: now, or from XLA's thread later.
// 5. Puts each result together of its parts.
//
// Afterwards `results` hold the outputs; those of a run that goes on know its record, and waiting
// for them throws its failure. A run that has ended badly throws here. Whatever is thrown, the
// lanes have been left, and arguments that were donated are gone only if XLA took them.
void CompiledProgram::run_partitioned(std::span<const Tensor* const> arguments,
                                      std::span<Tensor> results, std::shared_ptr<RunRecord> record,
                                      RunRequest* request) const {
  Runtime& runtime = Runtime::get();
  const Module& module = *module_;
  if (!module.donated.empty()) refuse_donated_twice(arguments);
  const bool waits = !record;
  if (waits) wait_for_earlier(reach_, module.devices);
  const std::size_t devices = module.devices.size(), parameters = module.parameters.size();
  // Before there are lanes to give back.
  std::vector<PJRT_Buffer*> in(devices * parameters);
  ResultBuffers out(backend_->plugin->api(), devices * results.size());
  std::vector<pjrt::Event> complete(devices);
  const Lanes lanes = runtime.take(module.devices, !sites_.empty());
  for (Lane* lane : lanes) lane->started.store(record != nullptr);
  // Parts are kept by position in a mesh, lanes and buffers by the program's devices.
  const auto device_at = [&](const Mesh& mesh, std::size_t position) {
    return size_of(partition_of(mesh, static_cast<std::int64_t>(position), module.devices));
  };
  const pjrt::Executable* executable = nullptr;
  std::optional<host::Deadline> deadline;
  Runs pending;
  Donation donation;
  std::vector<std::shared_ptr<const ShardedValue>> keep;
  try {
    executable = &partitioned_->on(lanes);
    for (std::size_t i = 0; i < parameters; ++i) {
      const Tensor& t = parameter(i, arguments);
      check(t.has_value() && !t.is_traced(),
            "an argument is empty, traced or abstract: a program needs values");
      const Sharding sharding = module.parameter_shardings[i].value_or(Sharding(module.mesh, P()));
      const Mesh& mesh = sharding.mesh();
      std::vector<Lane*> mesh_lanes;
      for (std::size_t position = 0; position < size_of(mesh.size()); ++position)
        mesh_lanes.push_back(lanes[device_at(mesh, position)]);
      keep.push_back(spread(t, sharding, mesh_lanes));
      const auto& parts = keep.back()->parts;
      add_pending(*Access::value(t), pending);
      if (takes(i)) {
        donation.take(Access::pointer(t), i);
        for (const auto& part : parts) donation.take(part, i);
      }
      for (std::size_t position = 0; position < parts.size(); ++position)
        in[device_at(mesh, position) * parameters + i] = parts[position]->buffer.handle();
    }
    for (std::size_t i = 0; i < parameters && !module.donated.empty(); ++i)
      if (!takes(i))  // those of another array may be the same
        for (const auto& part : keep[i]->parts) detail::refuse_donated(*part);
    if (!record) record = std::make_shared<RunRecord>(*backend_);
    if (request) request->give(*record, deadline);
    record->begin(shared_from_this(), lanes);
  } catch (...) {
    for (Lane* lane : lanes) runtime.leave(*lane);
    throw;
  }
  try {
    if (!backend_->platform().on_host)  // see Arguments::views
      record->views = std::make_shared<const decltype(keep)>(std::move(keep));
    const host::Wait blocked(record->name());  // as long as XLA runs it on this thread
    executable->execute_multi(
        devices, in, out.span(), complete,
        {.context = &record->execute_context(), .number = record->mark, .keep = donation.kept()});
    donation.stands();
    record->await_functions(complete);
  } catch (...) {
    const RunRecord::Owner owner = record->release();
    rethrow_failure(pending);
    const host::Outcome how = record->outcome();
    if (how == host::Outcome::running || how == host::Outcome::done) rethrow_naming(targets_);
    donation.stands();
    record->rethrow();
  }
  // Who started a run without results has nothing else to wait for.
  const auto [ended, owner] =
      RunRecord::finish(record, complete, request || (!waits && results.empty()));
  if (ended && record && record->outcome() != host::Outcome::done) record->rethrow();
  if (!ended && waits) note_under_way(reach_, module.devices, *lanes.front(), record->number);
  wrap_parts(module, partitioned_->result_shardings(), lanes, out, ended ? nullptr : record,
             pending, results);
}

}  // namespace postern::internal::run
