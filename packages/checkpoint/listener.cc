// The listener that keeps checkpoints: copies what it is shown, and has it written.
#include <postern/checkpoint.h>
#include <postern/live.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "spi.h"
#include "writer.h"

namespace postern::listen {
using namespace internal;

namespace {

using checkpoints::CheckpointPart, checkpoints::CheckpointWriter, checkpoints::Snapshot;
using Mark = recordings::RecordingMark;

}  // namespace

struct CheckpointState : std::enable_shared_from_this<CheckpointState> {
  std::shared_ptr<CheckpointWriter> writer;
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
    std::map<int, std::vector<Mark::Site>> sites = {};  // by device, as they were when it came
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
  std::optional<std::uint64_t> wanted(const TapInfo& info, const host::PartShown& shown);
  CheckpointPart copy(std::span<const AnyView> leaves, const host::PartShown& shown) const;
  std::optional<Snapshot> gather(const TapInfo& info, std::uint64_t firing, CheckpointPart part,
                                 const host::PartShown& shown, std::optional<Mark> mark);
  void hold(std::uint64_t of, Snapshot snapshot);
  void write(Snapshot snapshot, const detail::StopState* stop);
};

/// The number of a device's firing, if one of that number is to be kept. Runs count each for
/// itself, from what was seen before them on, so that one that failed while its devices were not
/// equally far shifts none of the next. Processes count alike: a run that fails does so on all of
/// them, but where is another matter, so with the next one they begin anew.
std::optional<std::uint64_t> CheckpointState::wanted(const TapInfo& info,
                                                     const host::PartShown& shown) {
  std::scoped_lock lock(guard);
  if (shown.job_run != 0 && shown.job_run != run) {
    bool failed = false;  // also one in which this process did not come here
    constexpr std::uint64_t most = 64;
    for (auto r = std::max(run, shown.job_run - std::min(shown.job_run, most));
         run != 0 && r < shown.job_run; ++r)
      failed = failed || clusters::has_failed(r);
    if (failed) {
      firings.clear();
      gathered.clear();
      seen = 0;
    }
    run = shown.job_run;
  }
  auto found = firings.find(info.run);
  if (found == firings.end()) {
    // Should one of these go on, all its devices begin at the same number again.
    std::erase_if(firings, [&](const auto& each) { return each.second.is_even(shown.givers); });
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

CheckpointPart CheckpointState::copy(std::span<const AnyView> leaves,
                                     const host::PartShown& shown) const {
  CheckpointPart part;
  if (shown.repeats) return part;
  part.begins = shown.begins;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    part.tensors.push_back({shown.wholes[i].first, leaves[i].type()});
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

/// The firing with this part, when that was the last one that it lacked. Devices that came before
/// have gone on since: of what each has called `mark` tells, of others that of the last one.
std::optional<Snapshot> CheckpointState::gather(const TapInfo& info, std::uint64_t firing,
                                                CheckpointPart part, const host::PartShown& shown,
                                                std::optional<Mark> mark) {
  std::scoped_lock lock(guard);
  const std::pair key(info.run, firing);
  Gathered& so_far = gathered[key];
  Snapshot& snapshot = so_far.snapshot;
  if (!part.tensors.empty()) snapshot.parts.push_back(std::move(part));
  auto& called = so_far.sites[info.device];
  if (mark)
    for (const Mark::Site& site : mark->sites)
      if (site.device == info.device) called.push_back(site);
  if (++so_far.given < shown.givers) {
    if (gathered.size() <= most_gathered) return {};
    log(LogLevel::warning, "checkpoint of tap '{}': not all devices showed their parts of one",
        one_line(info.name));
    gathered.erase(gathered.begin());
    return {};
  }
  if (mark) {
    std::erase_if(mark->sites,
                  [&](const auto& site) { return so_far.sites.contains(site.device); });
    for (const auto& [device, sites] : so_far.sites)
      mark->sites.insert(mark->sites.end(), sites.begin(), sites.end());
  }
  snapshot.recording = std::move(mark);
  std::optional<Snapshot> out = std::move(snapshot);
  gathered.erase(key);
  out->tap = info.name;
  out->place = to_string(info.place);
  out->wholes = shown.wholes;
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
  const host::PartShown shown = host::part_shown("checkpoint", info.device, std::move(types));
  if (shown.on_several && shown.job_run == 0)
    throw Error(ErrorCode::failed_precondition,
                "checkpoint: the tap lies over processes, and its run is not one of all of them");
  if (shown.on_several && options.last)
    throw Error(ErrorCode::failed_precondition,
                "checkpoint: CheckpointOptions::last is not for taps over processes");
  if (options.last && host::in_delivery())
    throw Error(ErrorCode::failed_precondition,
                "checkpoint: CheckpointOptions::last is for synchronous taps: an asynchronous one "
                "may be delivered after its run; the file is written beside the program all the "
                "same (CheckpointOptions::async)");
  if (!shown.gives) return;
  const auto firing = wanted(info, shown);
  if (!firing) return;
  auto snapshot = gather(info, *firing, copy(leaves, shown), shown, recordings::recording_mark());
  if (!snapshot) return;
  if (shown.on_several)
    snapshot->together = {clusters::rank_now(), clusters::size_now(), shown.job_run,
                          fmt::format("run {}, firing {} of tap '{}' at line {}", shown.job_run,
                                      *firing, info.name, info.place.line),
                          options.patience};
  snapshot->states = host::save_states();
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
  state_->writer = CheckpointWriter::of(folder);
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

namespace postern {

void LiveHook::checkpoint(const std::filesystem::path& folder) const {
  turn_on(listen::checkpoint(folder), {.until = 1}).keep();
}

}  // namespace postern
