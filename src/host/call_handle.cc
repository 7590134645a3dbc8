// Numbers that stand for started calls, and the places where those were started.
#include "host/call_handle.h"

#include <atomic>
#include <map>
#include <vector>

#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "host/run_state.h"

namespace postern::internal::host {

namespace {

// A handle tells where its call was started, also when that run is over: a number of the place in
// its high bits, and one that no other handle of the process has.
constexpr int place_bits = 20;
constexpr std::uint64_t most_places = 1 << place_bits;

struct Places {
  Mutex guard;
  std::map<std::string, std::uint64_t> numbers;
  std::vector<std::string> texts;
};
Places& places() { return never_destroyed<Places>(); }

}  // namespace

std::uint64_t new_handle(const HostSite& site) {
  static std::atomic<std::uint64_t> handles{0};
  return site.place_number << (64 - place_bits) | (handles.fetch_add(1) + 1);
}

std::string started_at(std::uint64_t handle) {
  Places& all = places();
  std::scoped_lock lock(all.guard);
  const std::uint64_t number = handle >> (64 - place_bits);
  if (number > 0 && number <= all.texts.size()) return all.texts[number - 1];
  return "a call";
}

std::uint64_t place_number(const SiteSpec& spec) {
  Places& all = places();
  const std::string text = describe(spec);
  std::scoped_lock lock(all.guard);
  const auto found = all.numbers.find(text);
  if (found != all.numbers.end()) return found->second;
  if (all.texts.size() + 1 >= most_places) return 0;
  all.texts.push_back(text);
  return all.numbers[text] = all.texts.size();
}

}  // namespace postern::internal::host
