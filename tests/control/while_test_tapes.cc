// Tapes of while loops: their limits, how they end, and what else happens while they are read.
#include "support.h"

namespace postern {
namespace {

using test::expect_error;
using Floats = std::vector<float>;

TEST(WhileTapes, ALimitIsThatOfKeptCarriesAndASegmentTogether) {
  RecordProperty("covers", "CTRL-15");
  // 100 steps of 256 bytes each: with every tenth carry kept 2.5 KiB for these, as much for the ten
  // steps of a segment, and little for its number and whether to go on.
  const auto slope = [](std::size_t memory) {
    return jit(grad([memory](Tensor x) {
      const auto more = [](Tensor n, Tensor) { return n < 100; };
      const auto step = [](Tensor n, Tensor v) { return std::pair{n + 1, sin(v)}; };
      const WhileOptions options{.keep_every = 10, .memory = memory};
      return sum(while_loop(more, step, std::pair{Tensor(0), x}, options).second);
    }));
  };
  const Tensor x = ones(type<float>({64}));
  const Floats want = slope(0)(x).to_vector<float>();
  EXPECT_EQ(slope(8000)(x).to_vector<float>(), want);
  expect_error<CallbackError>([&] { slope(4000)(x).to_vector<float>(); },
                              {"call 'while_loop' at", "outgrown", "of 2000 bytes"});
}

}  // namespace
}  // namespace postern
