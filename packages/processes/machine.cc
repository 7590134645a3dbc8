// Where things lie in the memory that processes of one machine share. Pages that nobody has touched
// cost nothing, so there may be a channel for everyone.
#include "machine.h"

#include <algorithm>

namespace postern::internal::clusters {

namespace {

static_assert(sizeof(Channel::Slot) == 32);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

constexpr std::size_t page = 4096;
std::size_t to_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

/// The pieces under way between two processes stay in a core's own cache, and all channels of a
/// lane together below 64 MiB. Of 64 KiB a sum of 1 MiB takes three times as long as of 16.
std::size_t piece_for(std::size_t processes) {
  constexpr std::size_t all = std::size_t{64} << 20, least = page, most = std::size_t{1} << 14;
  const std::size_t pairs = std::max<std::size_t>(processes * (processes - 1), 1);
  return std::clamp(all / (pairs * Channel::slots) / page * page, least, most);
}

}  // namespace

Machine::Machine(const Transport& transport, bool wanted)
    : ranks_(transport.machine, transport.machine + transport.machine_size),
      piece_(piece_for(ranks_.size())) {
  const std::size_t n = ranks_.size();
  const std::size_t bytes = seats_bytes() + n * n * lanes * channel_bytes();
  memory_ = static_cast<std::byte*>(transport.share(wanted && n > 1 ? bytes : 0));
  if (!memory_) ranks_ = {transport.rank};
}

int Machine::place_of(int rank) const {
  const auto found = std::ranges::lower_bound(ranks_, rank);
  if (!memory_ || found == ranks_.end() || *found != rank) return -1;
  return static_cast<int>(found - ranks_.begin());
}

// The first page is the offer's, which says that the memory is the right one.
std::size_t Machine::seats_bytes() const { return page + ranks_.size() * to_pages(sizeof(Seat)); }

/// A line more than a piece takes, so that slots do not all fall on the same lines of a cache.
std::size_t Machine::stride() const {
  const std::size_t whole = sizeof(Channel::Slot) + piece_;
  return (whole + Channel::line - 1) / Channel::line * Channel::line + Channel::line;
}
std::size_t Machine::channel_bytes() const {
  return to_pages(Channel::line + Channel::slots * stride());
}

Seat* Machine::seat(int rank) const {
  const int place = place_of(rank);
  if (place < 0) return nullptr;
  return reinterpret_cast<Seat*>(memory_ + page +
                                 static_cast<std::size_t>(place) * to_pages(sizeof(Seat)));
}

Channel* Machine::channel(int from, int to, int lane) const {
  const int a = place_of(from), b = place_of(to);
  if (a < 0 || b < 0 || lane >= lanes) return nullptr;
  const std::size_t pair =
      static_cast<std::size_t>(a) * ranks_.size() + static_cast<std::size_t>(b);
  const std::size_t number = pair * lanes + static_cast<std::size_t>(lane);
  return reinterpret_cast<Channel*>(memory_ + seats_bytes() + number * channel_bytes());
}

}  // namespace postern::internal::clusters
