// The last lines.
#include "core/lines.h"

#include <algorithm>
#include <deque>
#include <new>

#include "core/mutex.h"
#include "core/never_destroyed.h"

namespace postern::internal::lines {

std::atomic<int> watched{0};

void watch(bool on) {
  if (on)
    ++watched;
  else
    --watched;
}

namespace {

struct Kept {
  Mutex guard;
  std::deque<Line> last;    // by number
  std::uint64_t count = 0;  // those that were dropped included
};
Kept& kept() { return never_destroyed<Kept>(); }

}  // namespace

void add_kept(const char* from, std::string_view text) try {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::scoped_lock lock(kept().guard);
  auto& last = kept().last;
  last.push_back({kept().count + 1, from, std::string(text.substr(0, longest))});
  ++kept().count;  // not before there is the line
  if (last.size() > most) last.pop_front();
} catch (const std::bad_alloc&) {  // the page lacks a line
}

std::vector<Line> after(std::uint64_t number) {
  std::scoped_lock lock(kept().guard);
  return {std::ranges::upper_bound(kept().last, number, {}, &Line::number), kept().last.end()};
}

}  // namespace postern::internal::lines
