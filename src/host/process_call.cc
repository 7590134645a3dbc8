// From an invocation to a collective: which run and device it is of, and whom it meets.
#include "host/process_call.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "cluster/cluster.h"
#include "core/check.h"
#include "core/lists.h"
#include "core/once.h"
#include "core/text.h"
#include "core/value.h"
#include "host/limit.h"
#include "host/run_state.h"
#include "host/timeline.h"
#include "shard/processes.h"

namespace postern::internal::host {

namespace {

using clusters::Cluster;
using clusters::Collective;

/// What invocations of a site share.
struct Prepared {
  Collective collective;
  Collective::Group group;
  mutable Once once{};
  mutable std::optional<clusters::Subject> subject{};  // made at the first; always the same
};

/// Reads what process_attributes wrote, or a file says: so all of it is checked.
Collective collective_from(const Attributes& a) {
  using List = std::vector<std::int64_t>;
  Collective c;
  c.operation = clusters::operation_named(a.get<std::string>("operation"));
  c.axis = a.get<std::int64_t>("axis");
  c.other = a.get<std::int64_t>("other");
  const auto root = a.get<std::int64_t>("root");
  c.grid = a.get<List>("grid");
  c.along = a.get<List>("along");
  const auto& pairs = a.get<List>("pairs");
  if (a.has("any_number")) c.grid = {Cluster::get().size()};
  std::int64_t processes = 1, met = 1;
  for (const std::int64_t n : c.grid) {
    check(n > 0 && n <= (1 << 20) / processes, "a grid of processes is out of range");
    processes *= n;
  }
  for (const std::int64_t axis : c.along) {
    check(axis >= 0 && axis < std::ssize(c.grid), "a grid of processes has no axis {}", axis);
    check(std::ranges::count(c.along, axis) == 1, "a grid of processes has axis {} once", axis);
    met *= c.grid[size_of(axis)];
  }
  check(root >= 0 && root < met, "the root of a collective over processes is out of range");
  c.root = static_cast<int>(root);
  const bool by_device = c.operation == clusters::Operation::relay;
  check(!by_device || (c.other > 0 && c.other <= (1 << 20) / met), "too many devices meet");
  const std::int64_t places = by_device ? met * c.other : met;
  check(pairs.size() % 2 == 0, "pairs of processes come by twos");
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    const std::int64_t from = pairs[i], to = pairs[i + 1];
    check(std::min(from, to) >= 0 && std::max(from, to) < places,
          "a pair of processes is out of range");
    c.pairs.emplace_back(static_cast<int>(from), static_cast<int>(to));
  }
  if (c.operation == clusters::Operation::pass) return c;  // of any cluster
  const int size = Cluster::get().size();
  check(processes == size, "the program is for {} processes, the cluster has {}", processes, size);
  return c;
}

/// Returns whether the run wants to end. One that is late fails here.
bool wants_to_end(RunState& run) {
  if (run.stop.load(std::memory_order_relaxed)) return true;
  if (!run.is_late()) return false;
  run.fail_late();
  return true;
}

/// By its place in the mesh, from 1 on (0: none): the device there has other numbers elsewhere.
int lane_of(const HostSite& site, int device) {
  return site.positions.size() < 2 ? 0 : 1 + static_cast<int>(site.position_of(device));
}

/// Meets the other processes with operand 0, which has that type, and writes what comes of it.
void run_rendezvous(const Prepared& prepared, const detail::Firing& f, const Type& type) {
  const TapInfo& info = *f.info;
  const Collective& c = prepared.collective;
  void* const y = f.results ? f.data[f.operands] : nullptr;
  if (!clusters::communicates(c.operation)) return run_alone(c, prepared.group, y);
  Cluster& cluster = Cluster::get();
  auto& run = *static_cast<RunState*>(info.run_state);
  const std::uint64_t job_run = run.job_run();
  check(job_run > 0 || cluster.size() < 2, "a run over processes has no number, or is over");
  prepared.once([&] {
    std::string what(info.name);
    if (info.place.known()) what = fmt::format("'{}' at {}", one_line(what), to_string(info.place));
    prepared.subject.emplace(std::move(what), detail_of(c, prepared.group, type),
                             prepared.group.text());
  });
  const HostSite& site = *nesting()->site;  // it is not limited, so this thread is in it
  const std::function<bool()> stopped = [&run] { return wants_to_end(run); };
  const bool timed = timeline::on();
  const auto begin = timed ? timeline::Clock::now() : timeline::Clock::time_point();
  std::int32_t number = 0;  // of the device, which a relay is told
  if (f.operands > 1) std::memcpy(&number, f.data[1], sizeof number);
  const std::uint64_t count =
      cluster.meet({job_run, lane_of(site, info.device), *prepared.subject, stopped, c,
                    prepared.group, type, f.operands ? f.data[0] : nullptr, y, number});
  if (c.operation == clusters::Operation::end && !run.part_of)
    cluster.came_to_end(job_run, std::max<std::size_t>(site.positions.size(), 1));
  if (!timed) return;
  const timeline::RendezvousId which{job_run, count, prepared.subject->group};
  timeline::add(timeline::Kind::meet, info.name, begin, timeline::Clock::now(), info.device,
                info.run, &which);
}

/// Returns whether the run is to stop for another reason than this one, which then does not count.
/// Where it has failed elsewhere, who has read the notice tells the run, in a moment.
bool is_to_stop(const RunState& run, const Error& reason) {
  Mutex guard;
  StopCondition nothing_else;
  std::unique_lock lock(guard);
  if (reason.code() == ErrorCode::aborted)
    wait_at(
        nothing_else, lock, &run, [] { return false; }, after(std::chrono::milliseconds(200)));
  return run.stop.load();
}

/// The host function. Where its run is to stop for another reason, that counts, and what goes wrong
/// here does not: the results are zeros.
void invoke(void* object, const detail::Firing& f) {
  const auto& prepared = *static_cast<const Prepared*>(object);
  const TapInfo& info = *f.info;
  Type type{DType::u8, {0}};
  if (f.operands > 0) {
    const detail::LeafLayout& leaf = f.leaves[0];
    type = {leaf.dtype, {leaf.dims, leaf.dims + leaf.rank}};
  }
  try {
    if (!info.stop.stop_requested()) return run_rendezvous(prepared, f, type);
  } catch (const Error& e) {
    if (!is_to_stop(*static_cast<const RunState*>(info.run_state), e)) throw;
  } catch (...) {
    if (!info.stop.stop_requested()) throw;
  }
  for (std::size_t i = f.operands; i < f.operands + f.results; ++i)
    std::memset(f.data[i], 0, size_of(f.leaves[i].size) * byte_width(f.leaves[i].dtype));
}

}  // namespace

void check_process_site(const SiteSpec& s) {
  using enum clusters::Operation;
  const Collective c = collective_from(s.named.attributes);
  const Type number{DType::s32, {}};
  const auto types_are = [](const std::vector<Type>& types, std::initializer_list<Type> wanted) {
    return std::ranges::equal(types, wanted, alike);
  };
  bool fits = !s.is_tap() && s.call.role == SiteCall::Role::whole && s.batch.levels.empty() &&
              !s.batch.masked;
  if (c.operation == end) {
    fits = fits && s.operands.empty() && s.results.empty();
  } else if (c.operation == index || c.operation == count) {
    fits = fits && s.operands.empty() && types_are(s.results, {number});
  } else if (c.operation == pass) {
    fits = fits && (s.results.empty() || types_are(s.results, {number}));
  } else if (c.operation == relay) {
    fits = fits && s.operands.size() == 2 && alike(s.operands[1], number) &&
           s.operands[0].rank() > 0 && s.operands[0].dims[0] == c.other &&
           bit_width(s.operands[0].dtype) >= 8;
    const Dims row = fits ? tail(s.operands[0].dims, 1) : Dims();
    fits = fits && types_are(s.results, {{s.operands[0].dtype, row}});
  } else {
    const auto n = static_cast<std::int64_t>(c.group(clusters::rank_now()).ranks.size());
    fits = fits && s.operands.size() == 1 &&
           types_are(s.results, {clusters::result_type(c, s.operands[0], n)});
  }
  check(fits, "a site of a collective over processes does not fit {}", to_string(c.operation));
}

void meet_at_end(RunState& run) {
  const std::uint64_t job_run = run.job_run();
  if (job_run == 0) return;
  run.finish_calls();  // which may fail it
  Cluster& cluster = Cluster::get();
  const Collective end{.grid = {cluster.size()}, .along = {0}};
  const Collective::Group group = end.group(cluster.rank());
  const Type none{DType::u8, {0}};
  const clusters::Subject subject("the end of the run", detail_of(end, group, none), group.text());
  const std::function<bool()> stopped = [&run] { return wants_to_end(run); };
  try {
    cluster.meet({job_run, 0, subject, stopped, end, group, none, nullptr, nullptr, 0});  // no lane
    cluster.came_to_end(job_run, 1);
  } catch (const Error& e) {
    if (is_to_stop(run, e)) run.rethrow();
    throw;
  }
}

bool is_of_processes(const detail::HostFunction& function) {
  return function.invoke == invoke &&
         clusters::communicates(
             static_cast<const Prepared*>(function.object.get())->collective.operation);
}

std::shared_ptr<const detail::HostFunction> process_function(const Attributes& attributes) {
  using Kind = detail::Parameter::Kind;
  auto prepared = std::make_shared<Prepared>();
  prepared->collective = collective_from(attributes);
  const bool alone = prepared->collective.operation == clusters::Operation::pass;
  prepared->group = prepared->collective.group(alone ? 0 : clusters::Cluster::get().rank());
  auto out = std::make_shared<detail::HostFunction>();
  out->parameters = {{Kind::all_operands, DType::token}, {Kind::all_results, DType::token}};
  out->wants_call_info = true;
  out->invoke = invoke;
  out->object = std::move(prepared);
  return out;
}

}  // namespace postern::internal::host
