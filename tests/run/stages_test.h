// What the tests of runs that the host drives share.
#pragma once
#include "support.h"

namespace postern::test {

/// Both modes that the host drives, and the one that they are to equal.
class StagesRuns : public testing::TestWithParam<Mode> {
 protected:
  JitOptions options() const { return {.mode = GetParam()}; }
};

/// Ten steps of a loop that XLA cannot run by itself.
template <class F>
Tensor ten_steps(Tensor x, F step) {
  return fori_loop(
      0, 10,
      [&](Tensor, Tensor v) {
        return call({.name = "step", .effect = Effect::ordered}, v.type(), step, v) + 1.0f;
      },
      x);
}

}  // namespace postern::test
