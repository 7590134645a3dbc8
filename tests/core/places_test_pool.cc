// Whose line an error names: of pools of simulators.
#include <postern/pool.h>

#include "core/places_test.h"

namespace postern {
namespace {

using namespace places_test;

struct Still {
  static Type action() { return type<float>(); }
  static Type observation() { return type<float>(); }
  void reset(std::uint64_t, View<float>) {}
  Stepped step(float, View<float>) { return {}; }
};

TEST(Places, OfPools) {
  const Pool<Still> pool(2, {.kept = false});
  const Tensor x = tensor<float>({1, 2}), e = tensor<std::int32_t>({0, 1});
  expect_own_lines({WRONG(Pool<Still>(0)), WRONG(Pool<Still>(2, {.threads = -1})),
                    WRONG(Pool<Still>(0, [](std::int64_t) { return Still(); })),
                    WRONG(pool.step(e)), WRONG(pool.step(none)), WRONG(pool.start_step(e)),
                    WRONG(pool.send(x, x)), WRONG(pool.send(e, e)), WRONG(pool.receive(0))});
}

}  // namespace
}  // namespace postern
