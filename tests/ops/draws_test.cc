// Random numbers stay within what their functions promise.
#include <postern/random.h>

#include <cmath>

#include "support.h"

namespace postern {
namespace {

TEST(Draws, TailsOfTheNormalAreFinite) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64})
    for (const float low : {2.0f, 4.0f, 7.0f})
      for (const bool above : {true, false}) {
        const Type type{dtype, {100000}};
        const float from = above ? low : -INFINITY, to = above ? INFINITY : -low;
        const Tensor x = random::truncated_normal(random::key(3), type, from, to);
        EXPECT_TRUE(all(is_finite(x)).item<bool>()) << to_string(type) << " from " << from;
        EXPECT_TRUE(all((x >= from) & (x <= to)).item<bool>()) << to_string(type) << from;
      }
}

}  // namespace
}  // namespace postern
