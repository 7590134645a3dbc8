// Memory that the processes of one machine have in common: channels between each two of them, and a
// seat for each, where it says where it is and which runs have failed there.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "spi.h"

namespace postern::internal::clusters {

/// Why a run has failed, for the other processes.
struct Notice {
  std::uint64_t run = 0;  // by its number among those over processes; 0: who tells it leaves
  std::array<char, 2040> text = {};
};

/// What a process leaves for the others to read, also when it has died.
struct Seat {
  static constexpr std::size_t kept = 64;
  std::atomic<int> process{0};            // its id; 0: it has left
  std::atomic<std::uint64_t> notices{0};  // so many so far; the last ones are kept
  std::atomic<std::uint64_t> first{0};    // of its runs that is not over; 0: none has been yet
  std::array<Notice, kept> notice;
  std::array<char, 256> site = {};  // where it was last; may be half written
  struct Count {
    std::atomic<std::uint64_t> what{0};  // see first.h
    std::atomic<std::int64_t> done{0};
  };
  std::array<Count, 16> counts;
  std::uint64_t counted = 0;  // what it has counted so far; the last ones are kept
};

/// What goes before a piece of data.
struct Head {
  std::uint64_t run = 0, fingerprint = 0;
  std::uint32_t number = 0;  // of the collective in its run and group
  std::uint32_t bytes : 28 = 0;
  /// What is sent, what came of a reduction, or what its sender is about, for who is about
  /// something else.
  enum class Kind : std::uint32_t { data, result, text } kind : 4 = Kind::data;
};

/// Pieces on their way from a lane of one process to that of another, in a ring of slots. One
/// thread writes and one reads.
struct Channel {
  struct Slot {
    std::atomic<std::uint64_t> count;  // of the pieces up to this one, once it is there
    Head head;
    std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
  };
  static constexpr std::size_t slots = 8, line = 64;

  std::atomic<std::uint64_t> taken;
  Slot& slot(std::uint64_t number, std::size_t stride) {
    std::byte* const first = reinterpret_cast<std::byte*>(this) + line;
    return *reinterpret_cast<Slot*>(first + number % slots * stride);
  }
};

class Machine {
 public:
  /// Joins the machine's memory, as all its processes do, one after another's `share`.
  explicit Machine(const Transport& transport, bool wanted);

  bool shares() const { return memory_ != nullptr; }
  /// Returns the seat by rank; null: elsewhere.
  Seat* seat(int rank) const;
  const std::vector<int>& ranks() const { return ranks_; }
  Channel* channel(int from, int to, int lane) const;
  std::size_t piece_bytes() const { return piece_; }
  std::size_t stride() const;

 private:
  static constexpr int lanes = 9;  // that have channels; the others send messages
  std::size_t channel_bytes() const;
  std::size_t seats_bytes() const;
  int place_of(int rank) const;

  std::vector<int> ranks_;
  std::size_t piece_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace postern::internal::clusters
