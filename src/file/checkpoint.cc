// The listener that keeps checkpoints: copies what it is shown, and has it written.
#include <postern/checkpoint.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "cluster/cluster.h"
#include "core/check.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/process_sharding.h"
#include "core/sharding.h"
#include "core/text.h"
#include "file/checkpoint_writer.h"
#include "host/run_end.h"
#include "host/run_state.h"

namespace postern::listen {
using namespace internal;

namespace {

using file::CheckpointPart;
using file::Snapshot;

/// Where what a device shows lies in the whole.
struct Spread {
  std::vector<std::pair<std::string, Type>> wholes;
  std::vector<Dims> begins;
  std::size_t givers = 1;  // devices of this process that give something
  bool gives = true;       // this one does
  bool repeats = false;    // another device before it, perhaps of another process, shows this part
};

Spread whole(std::vector<std::pair<std::string, Type>> leaves) {
  Spread out{std::move(leaves), {}};
  for (const auto& [name, type] : out.wholes) out.begins.emplace_back(type.dims.size(), 0);
  return out;
}

/// The positions in the mesh of this process's devices.
std::vector<std::int64_t> positions_here(const Mesh& mesh) {
  std::vector<std::int64_t> out;
  const std::size_t devices = std::max<std::size_t>(mesh.devices().size(), 1);
  for (std::size_t i = 0; i < devices; ++i)
    out.push_back(position_on(mesh, i, clusters::rank_now()));
  return out;
}

/// The site says how its first leaf is cut, and with TapOptions::partitioned all are cut like it.
Spread spread_of(const SiteSpec* site, int device,
                 std::vector<std::pair<std::string, Type>> leaves) {
  const bool over = site && site->process_sharding;
  if (!over && (!site || !site->mesh || site->mesh->size() == 1)) return whole(std::move(leaves));
  const Mesh& mesh = over ? site->process_sharding->mesh() : *site->mesh;
  if ((!over && !site->shard_spec) || (!site->partitioned && leaves.size() > 1))
    throw Error(ErrorCode::failed_precondition,
                "checkpoint: in shard_map the place of a device's parts in the whole is known of a "
                "tap's first leaf at most; tap outside of it, or each leaf alone into a folder of "
                "its own");
  const auto devices = static_cast<std::int64_t>(std::max<std::size_t>(mesh.devices().size(), 1));
  if (over && mesh.size() != devices * clusters::size_now())
    throw Error(
        ErrorCode::failed_precondition,
        fmt::format("checkpoint: the program lies over {}, and the cluster has {} processes",
                    to_string(mesh), clusters::size_now()));
  const Sharding sharding(mesh, over ? site->process_sharding->spec() : *site->shard_spec);
  const std::vector<std::int64_t> here = positions_here(mesh);
  const auto found = std::ranges::find(mesh.devices(), device);
  const bool is_named = found != mesh.devices().end();  // else each process has one device
  const std::int64_t position =
      is_named ? here.at(static_cast<std::size_t>(found - mesh.devices().begin())) : here[0];
  Spread out;
  for (auto& [name, type] : leaves) {
    Dims dims = type.dims;
    const auto& parts = sharding.spec().parts();
    for (std::size_t axis = 0; axis < std::min(dims.size(), parts.size()); ++axis)
      for (const std::string& by : parts[axis]) dims[axis] *= mesh.size(by);
    Dims& begin = out.begins.emplace_back();
    for (const IndexRange& range : index_ranges(sharding, dims, position))
      begin.push_back(range.begin);
    out.wholes.emplace_back(std::move(name), make_type(type.dtype, std::move(dims)));
  }
  std::vector<std::vector<IndexRange>> seen;
  out.givers = 0;
  for (std::int64_t p = 0; p < mesh.size(); ++p) {
    auto part = index_ranges(sharding, out.wholes[0].second.dims, p);
    const bool again = std::ranges::find(seen, part) != seen.end();
    const bool gives = !again || (p == here[0]);  // a process's states, if nothing else
    out.givers += std::ranges::find(here, p) != here.end() && gives;
    if (p == position) {
      out.repeats = again;
      out.gives = gives;
    }
    if (!again) seen.push_back(std::move(part));
  }
  return out;
}

}  // namespace

struct CheckpointState : std::enable_shared_from_this<CheckpointState> {
  std::shared_ptr<file::CheckpointWriter> writer;
  CheckpointOptions options;
  std::shared_ptr<std::atomic<std::uint64_t>> written =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  Mutex guard;
  /// Firings of one run. Devices come to them one by one, and of a run that fails perhaps not all.
  struct Firings {
    std::uint64_t before;                     // that the listener had seen when the run began
    std::map<int, std::uint64_t> of = {};     // by device
    std::uint64_t most = 0;                   // of any device
    bool is_even(std::size_t givers) const {  // no device is ahead of another
      return of.size() == givers &&
             std::ranges::all_of(of, [&](const auto& each) { return each.second == most; });
    }
  };
  std::map<std::uint64_t, Firings> firings;  // by run
  std::uint64_t seen = 0;                    // firings, of all runs
  std::uint64_t run = 0;                     // over processes, that was seen last
  // Parts of firings that other devices have not come to yet, by run and firing.
  struct Gathered {
    Snapshot snapshot;
    std::size_t given = 0;
  };
  std::map<std::pair<std::uint64_t, std::uint64_t>, Gathered> gathered;
  // Firings that are written if none follows, by run; none: that one is written.
  std::map<std::uint64_t, std::optional<Snapshot>> last;
  static constexpr std::size_t most_gathered = 8, most_uneven = 64;

  void see(const TapInfo& info, std::span<const AnyView> leaves);

 private:
  bool is_kept(std::uint64_t firing) const {
    return firing % static_cast<std::uint64_t>(options.every) == 0;
  }
  std::optional<std::uint64_t> wanted(const TapInfo& info, std::size_t givers,
                                      std::uint64_t job_run);
  CheckpointPart copy(std::span<const AnyView> leaves, const Spread& spread) const;
  std::optional<Snapshot> gather(const TapInfo& info, std::uint64_t firing, CheckpointPart part,
                                 const Spread& spread);
  void hold(std::uint64_t of, Snapshot snapshot);
  void write(Snapshot snapshot, const detail::StopState* stop);
};

/// The number of a device's firing, if one of that number is to be kept. Runs count each for
/// itself, from what was seen before them on, so that one that failed while its devices were not
/// equally far shifts none of the next. Processes count alike: a run that fails does so on all of
/// them, but where is another matter, so with the next one they begin anew.
std::optional<std::uint64_t> CheckpointState::wanted(const TapInfo& info, std::size_t givers,
                                                     std::uint64_t job_run) {
  std::scoped_lock lock(guard);
  if (job_run != 0 && job_run != run) {
    if (run != 0 && clusters::Cluster::get().has_failed(run)) {
      firings.clear();
      gathered.clear();
      seen = 0;
    }
    run = job_run;
  }
  auto found = firings.find(info.run);
  if (found == firings.end()) {
    // Should one of these go on, all its devices begin at the same number again.
    std::erase_if(firings, [&](const auto& each) { return each.second.is_even(givers); });
    if (firings.size() >= most_uneven) firings.erase(firings.begin());  // it has failed
    found = firings.emplace(info.run, Firings{seen}).first;
  }
  Firings& here = found->second;
  const std::uint64_t count = here.of[info.device]++;
  if (count == here.most) {
    ++here.most;
    ++seen;
  }
  const std::uint64_t firing = here.before + count;
  if (!options.last && !is_kept(firing)) return {};
  return firing;
}

CheckpointPart CheckpointState::copy(std::span<const AnyView> leaves, const Spread& spread) const {
  CheckpointPart part;
  if (spread.repeats) return part;
  part.begins = spread.begins;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    part.tensors.push_back({spread.wholes[i].first, leaves[i].type()});
    part.size += leaves[i].byte_size();
  }
  part.bytes = writer->room(part.size);
  std::byte* to = part.bytes.get();
  for (const AnyView& leaf : leaves) {
    if (leaf.byte_size() > 0) std::memcpy(to, leaf.data(), leaf.byte_size());
    to += leaf.byte_size();
  }
  return part;
}

/// The firing with this part, when that was the last one that it lacked.
std::optional<Snapshot> CheckpointState::gather(const TapInfo& info, std::uint64_t firing,
                                                CheckpointPart part, const Spread& spread) {
  std::scoped_lock lock(guard);
  const std::pair key(info.run, firing);
  Gathered& so_far = gathered[key];
  Snapshot& snapshot = so_far.snapshot;
  if (!part.tensors.empty()) snapshot.parts.push_back(std::move(part));
  if (++so_far.given < spread.givers) {
    if (gathered.size() <= most_gathered) return {};
    log(LogLevel::warning, "checkpoint of tap '{}': not all devices showed their parts of one",
        one_line(info.name));
    gathered.erase(gathered.begin());
    return {};
  }
  std::optional<Snapshot> out = std::move(snapshot);
  gathered.erase(key);
  out->tap = info.name;
  out->place = to_string(info.place);
  out->wholes = spread.wholes;
  return out;
}

/// Keeps what is written when the run ends, unless a later firing takes its place.
void CheckpointState::hold(std::uint64_t of, Snapshot snapshot) {
  std::scoped_lock lock(guard);
  if (!last.insert_or_assign(of, std::move(snapshot)).second) return;
  host::when_run_ends(of, [state = shared_from_this(), of](bool) {
    std::unique_lock held(state->guard);
    std::optional<Snapshot> end = std::move(state->last.extract(of).mapped());
    held.unlock();
    if (end) state->write(std::move(*end), nullptr);
  });
}

void CheckpointState::write(Snapshot snapshot, const detail::StopState* stop) {
  writer->submit({std::move(snapshot), options.keep, options.on_error, written}, options.async,
                 stop);
}

void CheckpointState::see(const TapInfo& info, std::span<const AnyView> leaves) {
  if (info.recomputed) return;
  if (leaves.size() != info.paths.size())
    throw Error(ErrorCode::failed_precondition,
                "checkpoint: the tap shows derivatives too (TapOptions::derivatives)");
  std::vector<std::pair<std::string, Type>> types;
  for (std::size_t i = 0; i < leaves.size(); ++i)
    types.emplace_back(detail::tensor_name(info.paths[i]), leaves[i].type());
  const host::Nesting* const here = host::nesting();
  const SiteSpec* const site = here && here->site ? here->site->spec.get() : nullptr;
  const Spread spread = spread_of(site, info.device, std::move(types));
  const bool over = site && site->process_sharding && clusters::size_now() > 1;
  const std::uint64_t job_run = over && here->run ? here->run->job_run() : 0;
  if (over && job_run == 0)
    throw Error(ErrorCode::failed_precondition,
                "checkpoint: the tap lies over processes, and its run is not one of all of them");
  if (over && options.last)
    throw Error(ErrorCode::failed_precondition,
                "checkpoint: CheckpointOptions::last is not for taps over processes");
  if (!spread.gives) return;
  const auto firing = wanted(info, spread.givers, job_run);
  if (!firing) return;
  auto snapshot = gather(info, *firing, copy(leaves, spread), spread);
  if (!snapshot) return;
  if (over)
    snapshot->together = {clusters::rank_now(), clusters::size_now(), job_run,
                          fmt::format("run {}, firing {} of tap '{}' at line {}", job_run, *firing,
                                      info.name, info.place.line),
                          options.patience};
  snapshot->states = host::save_states();
  if (here && here->run && here->run->recording)
    snapshot->recording = here->run->recording->mark(*here->run);
  if (!snapshot->states.empty() && host::in_delivery())
    throw Error(ErrorCode::failed_precondition,
                "checkpoint: states are registered, and an asynchronous tap comes too late to see "
                "them as they were; make the tap synchronous, the file is written beside the "
                "program all the same (CheckpointOptions::async)");
  if (!is_kept(*firing)) return hold(info.run, std::move(*snapshot));
  if (options.last) {
    std::scoped_lock lock(guard);
    if (const auto earlier = last.find(info.run); earlier != last.end()) earlier->second.reset();
  }
  write(std::move(*snapshot), info.run_state);
}

Checkpoint::Checkpoint(const std::filesystem::path& folder, const CheckpointOptions& options,
                       Place place)
    : state_(std::make_shared<CheckpointState>()) {
  PlaceScope at(place);
  check(!folder.empty(), "checkpoint: a folder is needed, got none");
  check(options.every > 0, "checkpoint: every must be positive, got {}", options.every);
  check(options.patience.count() > 0, "checkpoint: patience must be positive, got {} ms",
        options.patience.count());
  check(options.keep >= 0, "checkpoint: keep must not be negative, got {}", options.keep);
  state_->options = options;
  state_->writer = file::CheckpointWriter::of(folder);
  if (options.on_error == OnError::stop) state_->writer->open();
}

void Checkpoint::operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
  if (state_->options.on_error == OnError::stop) return state_->see(info, leaves);
  try {
    state_->see(info, leaves);
  } catch (const std::exception& e) {
    log(LogLevel::warning, "{}; the program goes on", e.what());
  }
}

void Checkpoint::wait() const { state_->writer->wait(); }
std::uint64_t Checkpoint::written() const { return state_->written->load(); }

}  // namespace postern::listen
