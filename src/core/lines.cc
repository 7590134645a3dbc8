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

struct All {
  Mutex guard;
  std::deque<Line> last;
  std::uint64_t count = 0;
};
All& all() { return never_destroyed<All>(); }

}  // namespace

void add_kept(const char* from, std::string_view text) try {
  while (text.ends_with('\n')) text.remove_suffix(1);
  All& a = all();
  std::scoped_lock lock(a.guard);
  a.last.push_back({a.count + 1, from, std::string(text.substr(0, longest))});
  ++a.count;
  if (a.last.size() > most) a.last.pop_front();
} catch (const std::bad_alloc&) {  // the page lacks a line
}

std::vector<Line> after(std::uint64_t number) {
  std::scoped_lock lock(all().guard);
  return {std::ranges::upper_bound(all().last, number, {}, &Line::number), all().last.end()};
}

}  // namespace postern::internal::lines
