// What the tests of blocks share: one that multiplies, and a kernel for it.
#pragma once
#include "support.h"

namespace postern::test {

/// A block that every test of them uses.
struct Scale {
  static constexpr std::string_view name = "scale";
  double factor = 1;
};
inline Tensor scale(const Tensor& x, double factor) {
  return block(
      Scale{factor}, [](const Scale& s, Tensor v) { return v * s.factor; }, x);
}

/// A kernel that counts its firings.
inline OverrideHandle native_scale(int& fired, std::optional<VmapMethod> batch = {}) {
  return override_block<Scale>(
      {.platform = "cpu",
       .kernel =
           [&fired](const Scale& s, View<const float> in, View<float> out) {
             ++fired;
             for (std::int64_t i = 0; i < in.size(); ++i)
               out[i] = in[i] * static_cast<float>(s.factor);
           },
       .batch = batch});
}

/// Removes its override at the end of a test.
struct Removed {
  OverrideHandle handle;
  ~Removed() { handle.remove(); }
};

}  // namespace postern::test
