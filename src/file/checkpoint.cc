// The listener that keeps checkpoints: copies what it is shown, and has it written.
#include <postern/checkpoint.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "core/check.h"
#include "core/log.h"
#include "core/text.h"
#include "file/checkpoint_writer.h"
#include "host/run_state.h"

namespace postern::listen {

namespace {

using file::CheckpointPart;
using file::Snapshot;

/// Where what a device shows lies in the whole.
struct Spread {
  std::vector<std::pair<std::string, Type>> wholes;
  std::vector<Dims> begins;
  std::size_t parts = 1;  // that make the whole
  bool repeats = false;   // another device shows the same part
};

Spread whole(std::vector<std::pair<std::string, Type>> leaves) {
  Spread out{std::move(leaves), {}};
  for (const auto& [name, type] : out.wholes) out.begins.emplace_back(type.dims.size(), 0);
  return out;
}

/// The site says how its first leaf is cut, and with TapOptions::partitioned all are cut like it.
Spread spread_of(const SiteSpec* site, int device,
                 std::vector<std::pair<std::string, Type>> leaves) {
  if (!site || !site->mesh || site->mesh->size() == 1) return whole(std::move(leaves));
  const Mesh& mesh = *site->mesh;
  if (!site->cut || (!site->partitioned && leaves.size() > 1))
    throw Error(ErrorCode::failed_precondition,
                "checkpoint: in shard_map the place of a device's parts in the whole is known of a "
                "tap's first leaf at most; tap outside of it, or each leaf alone into a folder of "
                "its own");
  const Sharding sharding(mesh, *site->cut);
  const auto position = std::ranges::find(mesh.devices(), device) - mesh.devices().begin();
  Spread out;
  for (auto& [name, type] : leaves) {
    Dims dims = type.dims;
    for (std::size_t axis = 0; axis < std::min(dims.size(), site->cut->parts().size()); ++axis)
      for (const std::string& by : site->cut->parts()[axis]) dims[axis] *= mesh.size(by);
    Dims& begin = out.begins.emplace_back();
    for (const IndexRange& range : sharding.part(dims, position)) begin.push_back(range.begin);
    out.wholes.emplace_back(std::move(name), make_type(type.dtype, std::move(dims)));
  }
  std::vector<std::vector<IndexRange>> seen;
  for (std::int64_t p = 0; p < mesh.size(); ++p) {
    auto part = sharding.part(out.wholes[0].second.dims, p);
    const bool again = std::ranges::find(seen, part) != seen.end();
    if (p == position) out.repeats = again;
    if (!again) seen.push_back(std::move(part));
  }
  out.parts = seen.size();
  return out;
}

}  // namespace

struct CheckpointState {
  std::shared_ptr<file::CheckpointWriter> writer;
  CheckpointOptions options;
  std::shared_ptr<std::atomic<std::uint64_t>> written =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  std::mutex guard;
  std::map<int, std::uint64_t> firings;  // by device
  // Parts of firings that other devices have not come to yet, by run and firing.
  std::map<std::pair<std::uint64_t, std::uint64_t>, Snapshot> gathered;
  static constexpr std::size_t most_gathered = 8;

  void see(const TapInfo& info, std::span<const AnyView> leaves);

 private:
  bool is_wanted(int device, std::uint64_t& firing);
  CheckpointPart copy(std::span<const AnyView> leaves, const Spread& spread) const;
  std::optional<Snapshot> gather(const TapInfo& info, std::uint64_t firing, CheckpointPart part,
                                 const Spread& spread);
};

bool CheckpointState::is_wanted(int device, std::uint64_t& firing) {
  std::scoped_lock lock(guard);
  firing = firings[device]++;
  return firing % static_cast<std::uint64_t>(options.every) == 0;
}

CheckpointPart CheckpointState::copy(std::span<const AnyView> leaves, const Spread& spread) const {
  CheckpointPart part;
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
  Snapshot& snapshot = gathered[key];
  snapshot.parts.push_back(std::move(part));
  if (snapshot.parts.size() < spread.parts) {
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
  std::uint64_t firing = 0;
  if (spread.repeats || !is_wanted(info.device, firing)) return;
  auto snapshot = gather(info, firing, copy(leaves, spread), spread);
  if (!snapshot) return;
  snapshot->states = host::save_states();
  if (here && here->run && here->run->tape) snapshot->tape = here->run->tape->mark(*here->run);
  if (!snapshot->states.empty() && host::in_delivery())
    throw Error(ErrorCode::failed_precondition,
                "checkpoint: states are registered, and an asynchronous tap comes too late to see "
                "them as they were; make the tap synchronous, the file is written beside the "
                "program all the same (CheckpointOptions::async)");
  writer->submit({std::move(*snapshot), options.keep, options.on_error, written}, options.async,
                 info.stop);
}

Checkpoint::Checkpoint(const std::filesystem::path& folder, const CheckpointOptions& options)
    : state_(std::make_shared<CheckpointState>()) {
  check(!folder.empty(), "checkpoint: a folder is needed, got none");
  check(options.every > 0, "checkpoint: every must be positive, got {}", options.every);
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
