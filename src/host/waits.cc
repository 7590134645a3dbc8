// All waits that go on, and whether a new one would close a circle with them.
#include "host/waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "host/gate.h"
#include "host/run_state.h"

namespace postern::internal::host {

namespace {

struct Edge {
  std::vector<RunName> from, to;
};

struct Waits {
  Mutex guard;
  std::uint64_t count = 0;
  std::map<std::uint64_t, Edge> edges;
};
Waits& waits() { return never_destroyed<Waits>(); }

bool any_of(std::span<const RunName> runs, std::span<const RunName> others) {
  return std::ranges::find_first_of(runs, others) != runs.end();
}

[[noreturn]] void refuse(const char* why) {
  const Nesting* n = nesting();
  while (n && !n->site) n = n->outer;
  const Site site = n ? Site{n->site->spec->name, n->site->spec->place} : Site{};
  throw CallbackError(ErrorCode::reentry,
                      fmt::format("{} {}", n ? describe(*n->site->spec) : "a host function", why),
                      site, n ? n->device : 0, nullptr);
}

}  // namespace

std::vector<RunName> surrounding_runs() {
  std::vector<RunName> out;
  for (const Nesting* n = nesting(); n; n = n->outer) {
    if (n->run)
      out.push_back({n->run->name().started, n->run->lane_run});
    else
      std::ranges::copy(static_cast<const Beginning*>(n)->inside, std::back_inserter(out));
  }
  return out;
}

// Follows who waits for whom from `runs` on, over all edges; the new wait must not lead back here.
Wait::Wait(std::span<const RunName> runs) {
  if (!nesting()) return;
  std::vector<RunName> own = surrounding_runs();
  Gate::add_surrounding(own);
  if (own.empty() || runs.empty()) return;
  if (any_of(runs, own))
    refuse(runs[0].job ? "waits for a started call that is to enter after it"
                       : "waits for a result of the run that is calling it");
  Waits& all = waits();
  std::scoped_lock lock(all.guard);
  std::vector<RunName> reached(runs.begin(), runs.end());
  for (std::size_t i = 0; i < reached.size(); ++i)
    for (const auto& [number, edge] : all.edges) {
      if (std::ranges::find(edge.from, reached[i]) == edge.from.end()) continue;
      if (any_of(edge.to, own))
        refuse(runs[0].job ? "waits for a started call that waits for it"
                           : "waits for a run that waits for the one that is calling it");
      for (const RunName& next : edge.to)
        if (std::ranges::find(reached, next) == reached.end()) reached.push_back(next);
    }
  all.edges[++all.count] = {std::move(own), {runs.begin(), runs.end()}};
  number_ = all.count;
}

Wait::~Wait() {
  if (!number_) return;
  std::scoped_lock lock(waits().guard);
  waits().edges.erase(*number_);
}

}  // namespace postern::internal::host
