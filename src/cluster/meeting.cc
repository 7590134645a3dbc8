// Messages of one collective. Every wait looks at three things in turn: the messages, whether the
// run wants to end here, and whether another process has ended it.
#include "cluster/meeting.h"

#include <fmt/format.h>
#include <postern/error.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <thread>

#include "core/log.h"

namespace postern::clusters {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int greeting_kind = 1, data_kind = 2;
constexpr std::size_t longest_inside = 2048;  // data that comes with the greeting

void copy_text(std::span<char> to, const std::string& text) {
  const std::size_t n = std::min(text.size(), to.size() - 1);
  std::memcpy(to.data(), text.data(), n);
  to[n] = '\0';
}

[[noreturn]] void throw_transport(const char* what, const char* error) {
  throw Error(ErrorCode::unavailable, fmt::format("{}: {}", what, error));
}

}  // namespace

/// Memory of pieces, kept by the thread for the next ones: fresh memory costs more than the copy.
class Pieces {
 public:
  using Memory = std::unique_ptr<std::byte[]>;
  static constexpr std::size_t size = std::size_t{1} << 17;

  static Memory take() {
    std::vector<Memory>& free = kept();
    if (free.empty()) return std::make_unique_for_overwrite<std::byte[]>(size);
    Memory out = std::move(free.back());
    free.pop_back();
    return out;
  }
  static void give_back(Memory memory) {
    constexpr std::size_t most = 32;
    if (kept().size() < most) kept().push_back(std::move(memory));
  }

 private:
  static std::vector<Memory>& kept() {
    thread_local std::vector<Memory> list;
    return list;
  }
};

/// What goes before data: whose it is, and what it is about.
struct Meeting::Greeting {
  std::uint64_t epoch = 0, sequence = 0, bytes = 0;
  std::array<char, 160> place = {};
  std::array<char, 120> detail = {};
  std::array<std::byte, longest_inside> data;

  static constexpr std::size_t head = 3 * sizeof(std::uint64_t) + 160 + 120;
  std::size_t size() const { return head + (bytes <= longest_inside ? bytes : 0); }
};

/// Messages under way. Both ends use memory of their own, in pieces: a message that is given up may
/// still be read or written by the network, and what a program works on goes with its run.
class Meeting::Requests {
 public:
  Requests(const Meeting& meeting, int kind)
      : meeting_(meeting), tag_(meeting.cluster_.tag(kind, meeting.device_, meeting.turn_.epoch)) {}
  ~Requests() {
    for (Message& m : under_way_) {
      transport().abandon(&m.request);
      static_cast<void>(m.memory.release());  // nobody knows how long the network has it
    }
  }
  Requests(const Requests&) = delete;

  void send(const Out& o) {
    streams_.push_back({o.to, static_cast<const std::byte*>(o.data), nullptr, o.bytes});
  }
  void receive(const In& i) {
    streams_.push_back({i.from, nullptr, static_cast<std::byte*>(i.data), i.bytes});
  }

  void wait() {
    const auto begin = Clock::now();
    bool told = false;
    for (std::uint64_t round = 0; !through(); ++round) {
      if (meeting_.stopped_()) throw Error(ErrorCode::cancelled, "the run ends");
      if (round % 16 == 15) meeting_.cluster_.check(meeting_.turn_.epoch);
      if (round < 200) continue;
      std::this_thread::yield();
      if (round % 64 != 0) continue;
      const auto waited = Clock::now() - begin;
      if (!told && waited > patience()) told = tell_of(waited);
      if (waited > std::chrono::milliseconds(20))
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

 private:
  static constexpr int at_a_time = 4;  // pieces of a stream
  struct Stream {
    int peer;
    const std::byte* from;
    std::byte* to;
    std::size_t bytes, begun = 0;
    int under_way = 0;
  };
  struct Message {
    Transport::Request request;
    std::size_t stream, at, bytes;
    std::unique_ptr<std::byte[]> memory;
  };

  const Transport& transport() const { return *meeting_.cluster_.transport(); }

  void begin_pieces(std::size_t number) {
    Stream& s = streams_[number];
    for (; s.begun < s.bytes && s.under_way < at_a_time; ++s.under_way) {
      Message m{{}, number, s.begun, std::min(Pieces::size, s.bytes - s.begun), {}};
      m.memory = Pieces::take();
      std::byte* const memory = m.memory.get();
      if (s.from) std::memcpy(memory, s.from + m.at, m.bytes);
      const char* const error =
          s.from ? transport().send(s.peer, tag_, memory, m.bytes, &m.request)
                 : transport().receive(s.peer, tag_, memory, m.bytes, &m.request);
      if (error) throw_transport("a message cannot begin", error);
      s.begun += m.bytes;
      under_way_.push_back(std::move(m));
    }
  }

  bool through() {
    for (std::size_t i = 0; i < streams_.size(); ++i) begin_pieces(i);
    std::erase_if(under_way_, [&](Message& m) {
      bool done = false;
      if (const char* error = transport().test(&m.request, &done))
        throw_transport("a message got lost", error);
      if (!done) return false;
      Stream& s = streams_[m.stream];
      --s.under_way;
      if (s.to) std::memcpy(s.to + m.at, m.memory.get(), m.bytes);
      Pieces::give_back(std::move(m.memory));
      return true;
    });
    return under_way_.empty() &&
           std::ranges::all_of(streams_, [](const Stream& s) { return s.begun == s.bytes; });
  }

  bool tell_of(Clock::duration waited) const {
    log(LogLevel::warning, "{}: process {} has waited for process {} for {:.0f} s",
        meeting_.subject_.place, meeting_.cluster_.rank(), streams_[under_way_.back().stream].peer,
        std::chrono::duration<double>(waited).count());
    return true;
  }

  const Meeting& meeting_;
  const int tag_;
  std::vector<Stream> streams_;
  std::vector<Message> under_way_;
};

Meeting::Meeting(Cluster& cluster, Turn turn, int device, const Subject& subject,
                 std::function<bool()> stopped)
    : cluster_(cluster),
      turn_(turn),
      device_(device),
      subject_(subject),
      stopped_(std::move(stopped)) {}

/// The same text on both sides: the lower rank comes first.
void Meeting::compare(const Greeting& mine, const Greeting& theirs, int peer) const {
  if (mine.sequence == theirs.sequence && mine.place == theirs.place &&
      mine.detail == theirs.detail)
    return;
  const int rank = cluster_.rank();
  const Greeting &first = rank < peer ? mine : theirs, &second = rank < peer ? theirs : mine;
  throw Error(ErrorCode::failed_precondition,
              fmt::format("processes must come to the same collectives in the same order: process "
                          "{} is at {} ({}, number {}), process {} at {} ({}, number {})",
                          std::min(rank, peer), first.place.data(), first.detail.data(),
                          first.sequence, std::max(rank, peer), second.place.data(),
                          second.detail.data(), second.sequence));
}

void Meeting::exchange(std::span<const Out> out, std::span<const In> in) {
  std::vector<int> peers;
  for (const Out& o : out) peers.push_back(o.to);
  for (const In& i : in) peers.push_back(i.from);
  std::ranges::sort(peers);
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  if (peers.empty()) return;
  const auto mine = std::make_unique_for_overwrite<Greeting[]>(peers.size()),
             theirs = std::make_unique_for_overwrite<Greeting[]>(peers.size());
  Requests requests(*this, greeting_kind);
  for (std::size_t k = 0; k < peers.size(); ++k) {
    requests.receive({peers[k], &theirs[k], sizeof theirs[k]});
    Greeting& g = mine[k];
    g.epoch = turn_.epoch;
    g.sequence = turn_.sequence;
    copy_text(g.place, subject_.place);
    copy_text(g.detail, subject_.detail);
    const auto mail = std::ranges::find(out, peers[k], &Out::to);
    if (mail != out.end()) g.bytes = mail->bytes;
    if (g.bytes <= longest_inside && g.bytes > 0)
      std::memcpy(g.data.data(), mail->data, mail->bytes);
    requests.send({peers[k], &g, g.size()});
  }
  requests.wait();
  std::vector<Out> long_out;
  std::vector<In> long_in;
  for (std::size_t k = 0; k < peers.size(); ++k) compare(mine[k], theirs[k], peers[k]);
  for (const Out& o : out)
    if (o.bytes > longest_inside) long_out.push_back(o);
  for (const In& i : in) {
    const Greeting& g = theirs[std::ranges::lower_bound(peers, i.from) - peers.begin()];
    if (g.bytes != i.bytes)
      throw Error(ErrorCode::internal, fmt::format("process {} sends {} bytes where {} are awaited",
                                                   i.from, g.bytes, i.bytes));
    if (i.bytes > longest_inside)
      long_in.push_back(i);
    else if (i.bytes > 0)
      std::memcpy(i.data, g.data.data(), i.bytes);
  }
  if (!long_out.empty() || !long_in.empty()) transfer(long_out, long_in);
}

void Meeting::transfer(std::span<const Out> out, std::span<const In> in) {
  if (out.empty() && in.empty()) return;
  Requests requests(*this, data_kind);
  for (const In& i : in) requests.receive(i);
  for (const Out& o : out) requests.send(o);
  requests.wait();
}

}  // namespace postern::clusters
