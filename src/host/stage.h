// Stages: what is special about a site is a chain of wrappers around its function, made once.
//
// A stage is entered with an invocation and enters what is behind it: once, often, later or not at
// all. Each is a file of stages/ and knows nothing of the others; their order is the table below.
// A new option is a file there and a row here. A site that asks for none of them is `direct`: then
// the handler enters its function, and nothing can be forgotten on that way.
#pragma once
#include <functional>
#include <memory>
#include <span>

#include "host/run_state.h"

namespace postern::internal::host {

struct ListenerSite;
class Transfer;
/// Begins a transfer of an invocation's leaves to host memory. Throws Error.
using Fetch = std::function<std::unique_ptr<Transfer>()>;

/// An invocation on its way to the function.
struct Invocation {
  RunState& run;
  const HostSite& site;
  void* const* data;  // the equation's operands, mask and results; behind batch and mask: leaves
  int device;
  std::int64_t element = -1;        // of a batch
  std::span<const bool> mask = {};  // of a whole batch
  const Fetch* fetch = nullptr;     // brings the leaves when a queue has room: there is no data
  bool on_device = false;           // the data is a GPU's, and of this stream
  void* stream = nullptr;
  bool unpacked = false;  // elements of less than a byte have one each in the data too
  bool counted = false;   // see count()
  const std::shared_ptr<const ListenerSite>* listener = nullptr;  // whose site this is

  /// Counts it, once, among those that will be seen to their end: see RunState::passes.
  void count() {
    if (run.leaves_zeros && !counted) run.passes(site, device);
    counted = true;
  }
  /// Returns what the function is told. `stop` is the run's state, or the job's that outlives it.
  TapInfo info(detail::StopState* stop) const;
};

struct Stage;
struct StageRow {
  // Whether the site asks for it. Null: if it has the option of that name, a positive number.
  bool (*applies)(const HostSite& site) = nullptr;
  const char* option = nullptr;
  /// Returns whether the run goes on. What fails is kept in the run.
  bool (*enter)(const Stage& stage, Invocation& i) noexcept;
  /// Makes what it knows of the site beforehand.
  std::shared_ptr<const void> (*prepare)(const HostSite& site) = nullptr;
  bool of_runs = false;      // a run may ask for it: it is in every chain, and looks at the run
  bool sees_leaves = false;  // they must be in host memory when it is entered
};

struct Stage {
  const StageRow& row;
  std::int64_t number;  // of its option
  std::shared_ptr<const void> prepared;
  std::shared_ptr<const Stage> next;

  bool enter(Invocation& i) const noexcept { return row.enter(*this, i); }
};

extern const StageRow packed_stage, turn_stage, begin_stage, batch_stage, mask_stage, pass_stage,
    repeat_stage, live_stage, observed_stage, every_stage, interval_stage, until_stage, queue_stage,
    deadline_stage, overlap_stage, warn_after_stage, limit_stage;
/// The order of the stages, from XLA to the function.
inline constexpr const StageRow* all_stages[] = {
    &packed_stage, &turn_stage, &begin_stage, &batch_stage, &mask_stage, &pass_stage, &repeat_stage,
    &live_stage, &observed_stage,
    // Each listener of a live hook has its own of these.
    &every_stage, &interval_stage, &until_stage, &queue_stage, &deadline_stage, &overlap_stage,
    &warn_after_stage, &limit_stage};
inline constexpr auto listener_stages = std::span(all_stages).subspan<9>();
static_assert(listener_stages.front() == &every_stage);

/// Throws TypeError when a site from a file has an option that no stage knows, or not as a positive
/// number.
void check_stage_options(const Attributes& options);
/// Gives the site a chain of those that it or a run may ask for.
void make_stages(HostSite& site, std::span<const StageRow* const> rows = all_stages);

}  // namespace postern::internal::host
