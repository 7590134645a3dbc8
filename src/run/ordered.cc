// Order between the programs of a thread.
#include "run/ordered.h"

#include <algorithm>
#include <vector>

#include "core/primitive.h"
#include "host/run_state.h"

namespace postern::internal::run {

namespace {

struct Earlier {
  Reach reach;
  std::vector<int> devices;
  const Lane* lane;
  std::uint64_t run;
};
thread_local std::vector<Earlier> under_way;  // as far as this thread knows

bool comes_first(const Earlier& earlier, Reach reach, std::span<const int> devices) {
  if (devices.empty() || (reach == Reach::all && earlier.reach == Reach::all)) return true;
  return std::ranges::find_first_of(earlier.devices, devices) != earlier.devices.end();
}

}  // namespace

Reach reach_of(const SiteSpec& site) {
  if (site.effect != Effect::ordered) return Reach::none;
  if (!site.is_tap()) return Reach::all;
  return Reach::device;
}

Reach reach_of(const Program& program) {
  Reach out = Reach::none;
  any_equation(program, [&](const Equation& e) {
    if (e.primitive->site) out = std::max(out, reach_of(*e.primitive->site(e.params.get())));
    return out == Reach::all;
  });
  return out;
}

void wait_for_earlier(Reach reach, std::span<const int> devices) {
  if (reach == Reach::none || under_way.empty() || host::nesting()) return;
  for (const Earlier& e : under_way)
    if (comes_first(e, reach, devices)) Runtime::get().wait_for(*e.lane, e.run);
  std::erase_if(under_way, [](const Earlier& e) { return Runtime::has_left(*e.lane, e.run); });
}

void note_under_way(Reach reach, std::span<const int> devices, const Lane& lane,
                    std::uint64_t run) {
  if (reach != Reach::none && !host::nesting())
    under_way.push_back({reach, {devices.begin(), devices.end()}, &lane, run});
}

}  // namespace postern::internal::run
