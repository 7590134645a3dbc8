// Dealing: numbers that several threads take until none is left. Each has a share for itself, which
// no other writes to unless it has done its own; so what is slow holds back nothing but itself.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "spi.h"

namespace postern::internal::pools {

class Deal {
 public:
  explicit Deal(std::int64_t threads) : shares_(size_of(threads)) {}
  std::int64_t threads() const { return static_cast<std::int64_t>(shares_.size()); }

  /// Deals 0 ... n-1, of which none is in anybody's hand. n < 2^31.
  void begin(std::int64_t n) {
    const std::int64_t all = threads();
    for (std::int64_t t = 0; t < all; ++t)
      shares_[size_of(t)].left.store(packed(n * t / all, n * (t + 1) / all));
  }
  /// Calls act(number) for those of this thread's share, then for what it takes of others'.
  template <class Act>
  void work(std::int64_t thread, const Act& act) {
    Share& mine = shares_[size_of(thread)];
    do {
      for (std::int64_t i; (i = mine.take()) >= 0;) act(i);
    } while (take_half(mine));
  }

 private:
  static std::uint64_t packed(std::int64_t begin, std::int64_t end) {
    return static_cast<std::uint64_t>(end) << 32 | static_cast<std::uint64_t>(begin);
  }
  static std::int64_t begin_of(std::uint64_t left) { return left & 0xffffffff; }
  static std::int64_t end_of(std::uint64_t left) { return static_cast<std::int64_t>(left >> 32); }

  struct alignas(64) Share {
    std::atomic<std::uint64_t> left{0};  // from, to

    std::int64_t take() {
      std::uint64_t now = left.load(std::memory_order_relaxed);
      while (begin_of(now) < end_of(now))
        if (left.compare_exchange_weak(now, now + 1)) return begin_of(now);
      return -1;
    }
  };
  /// Moves the latter half of what another has left to `mine`, which is empty. A range that is
  /// replaced never comes again, for each number is taken once.
  bool take_half(Share& mine) {
    for (Share& other : shares_) {
      std::uint64_t now = other.left.load(std::memory_order_relaxed);
      while (begin_of(now) < end_of(now)) {
        const std::int64_t from = (begin_of(now) + end_of(now)) / 2;
        if (!other.left.compare_exchange_weak(now, packed(begin_of(now), from))) continue;
        mine.left.store(packed(from, end_of(now)));
        return true;
      }
    }
    return false;
  }

  std::vector<Share> shares_;
};

}  // namespace postern::internal::pools
