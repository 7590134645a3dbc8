// The CPU, and another plug-in under the name "newer": a copy of the same build, a newer build, or
// one without host functions; the entries of ctest choose.
#pragma once
#include <postern/shard.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <vector>

#include "support.h"

namespace postern::test {

class Platforms : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<DeviceInfo> all = devices();
    if (all.back().kind != "newer") GTEST_SKIP() << "needs POSTERN_PLATFORM=cpu,newer=file";
    there = devices("newer").at(0).ordinal;
  }

  /// By name, with the number of their first device.
  struct Side {
    const char* name;
    int device;
  };
  std::vector<Side> sides() const { return {{"cpu", 0}, {"newer", there}}; }
  int other(const Side& s) const { return s.device == 0 ? there : 0; }
  static bool calls_back(const Side& s) { return plugin_info(s.name).calls_back; }

  static Tensor counting(std::int64_t n) {
    std::vector<float> values(static_cast<std::size_t>(n));
    std::iota(values.begin(), values.end(), 1.0f);
    return Tensor(type<float>({n}), values.data());
  }

  /// x, with the number of the device on which a host function of the program saw it.
  static auto seen_at(std::atomic<int>& where) {
    return [&where](Tensor x) {
      return call(
          {.name = "seen"}, x.type(),
          [&where](const CallInfo& info, View<const float> in, View<float> out) {
            where = info.device;
            std::copy(in.begin(), in.end(), out.begin());
          },
          x);
    };
  }

  int there = 0;
};

}  // namespace postern::test
