// Counts in shared memory where processes have it, in messages elsewhere; both may lag behind.
#include "joined.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <utility>

namespace postern::internal::clusters {

namespace {

struct Said {
  std::uint64_t what;
  std::int64_t done;
};

/// What is on its way to process 0, and what has come there.
struct Counts {
  struct Sent {
    std::unique_ptr<Said> said;
    Transport::Request request;
  };
  static constexpr std::size_t most_sent = 16;
  Mutex guard;
  std::vector<Sent> sent;
  std::map<std::pair<int, std::uint64_t>, std::int64_t> heard;
};

/// Never destroyed: messages may be under way when the process ends.
Counts& counts() {
  static auto* const c = new Counts;
  return *c;
}

/// Behind those of the store, which are the last two.
int count_tag(const Transport& t) { return t.tags - 3; }

void note(Seat& seat, const Said& said) {
  const auto same = std::ranges::find_if(
      seat.counts, [&](const Seat::Count& c) { return c.what.load() == said.what; });
  if (same != seat.counts.end()) return same->done.store(said.done, std::memory_order_relaxed);
  Seat::Count& next = seat.counts[seat.counted++ % seat.counts.size()];
  next.what = 0;
  next.done = said.done;
  next.what = said.what;
}

/// What does not leave in time is not worth waiting for: a later one says more.
void send(const Transport& transport, Counts& c, const Said& said) {
  const auto is_through = [&](Counts::Sent& s) {
    bool through = false;
    return transport.test(&s.request, &through) || through;
  };
  std::erase_if(c.sent, is_through);
  if (c.sent.size() == Counts::most_sent || transport.ended()) return;
  c.sent.reserve(Counts::most_sent);  // what is under way must find its place
  Counts::Sent next{std::make_unique<Said>(said), {}};
  if (!transport.send(0, count_tag(transport), next.said.get(), sizeof said, &next.request) &&
      !is_through(next))
    c.sent.push_back(std::move(next));
}

void receive(const Transport& transport, Counts& c) {
  while (!transport.ended()) {
    bool there = false, through = false;
    int from = 0;
    std::size_t bytes = 0;
    Said said{};
    Transport::Request request;
    if (transport.look(count_tag(transport), &there, &from, &bytes) || !there) return;
    if (transport.receive(from, count_tag(transport), &said, sizeof said, &request)) return;
    while (!through)  // it has come, so this ends
      if (transport.test(&request, &through)) return;
    c.heard[{from, said.what}] = said.done;
  }
}

}  // namespace

void JoinedCluster::say_count(std::uint64_t what, std::int64_t done) noexcept {
  try {
    Counts& c = counts();
    const std::scoped_lock lock(c.guard);
    if (Seat* const seat = machine_->seat(rank())) note(*seat, {what, done});
    if (rank() == 0)
      c.heard[{0, what}] = done;
    else if (!machine_->seat(0))
      send(*transport_, c, {what, done});
  } catch (...) {  // no memory: it is said again
  }
}

std::vector<std::int64_t> JoinedCluster::counts_of(std::uint64_t what) {
  std::vector<std::int64_t> out(size_of(size()), 0);
  Counts& c = counts();
  const std::scoped_lock lock(c.guard);
  receive(*transport_, c);
  for (int of = 0; of < size(); ++of) {
    std::int64_t& done = out[size_of(of)];
    if (const auto found = c.heard.find({of, what}); found != c.heard.end()) done = found->second;
    const Seat* const seat = machine_->seat(of);
    for (std::size_t i = 0; seat && i < seat->counts.size(); ++i)
      if (seat->counts[i].what.load() == what) done = seat->counts[i].done.load();
  }
  return out;
}

}  // namespace postern::internal::clusters
