// A histogram of times, for loops in which no step may take long.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>

/// How often something took so long, to 3 percent: 32 bins for each power of two.
struct Histogram {
  void add(std::int64_t ns) {
    const auto n = static_cast<std::uint64_t>(ns);
    const int shift = std::max(0, static_cast<int>(std::bit_width(n)) - 6);
    ++bins[static_cast<std::size_t>(shift) * 32 + (n >> shift)];
    ++count;
    longest = std::max(longest, ns);
  }
  static std::int64_t end_of(std::size_t bin) {
    const std::size_t shift = bin < 64 ? 0 : bin / 32 - 1;
    return static_cast<std::int64_t>((bin - 32 * shift + 1) << shift);
  }
  /// What so many of all did not exceed, in us.
  double quantile(double part) const {
    auto left = static_cast<std::int64_t>(part * static_cast<double>(count));
    std::size_t bin = 0;
    while (bin + 1 < bins.size() && (left -= bins[bin]) >= 0) ++bin;
    return static_cast<double>(std::min(end_of(bin), longest)) / 1e3;
  }
  /// How many took less than each power of two and not less than the one before.
  void print() const {
    for (std::size_t to = 64; to <= bins.size(); to += 32) {
      std::int64_t sum = 0;
      for (std::size_t bin = to == 64 ? 0 : to - 32; bin < to; ++bin) sum += bins[bin];
      if (sum > 0)
        std::printf("%12.3f us: %lld\n", static_cast<double>(end_of(to - 1)) / 1e3,
                    static_cast<long long>(sum));
    }
  }
  std::array<std::int64_t, 32 * 60> bins{};
  std::int64_t count = 0, longest = 0;
};
