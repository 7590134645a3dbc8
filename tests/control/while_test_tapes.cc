// Tapes of while loops: their limits, how they end, and what else happens while they are read.
#include "host/loop_tape.h"
#include "support.h"

namespace postern {
namespace {

namespace host = internal::host;
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

TEST(WhileTapes, ATicketIsOfItsOwnRunHoweverManyCome) {
  RecordProperty("covers", "CTRL-15");
  const auto budget = std::make_shared<host::TapeBudget>(0, "");
  const auto one = [&] { return std::make_unique<host::LoopTape>(4, budget); };
  host::LoopTapes first;
  const double ticket = first.add(one()), other = first.add(one());
  EXPECT_NE(first.find(ticket), nullptr);
  EXPECT_NE(first.find(ticket), first.find(other));
  EXPECT_EQ(first.find(ticket + other), nullptr) << "a sum of tickets is none";
  for (int i = 1; i < 1 << 20; ++i) host::LoopTapes();
  host::LoopTapes later;
  later.add(one());
  EXPECT_EQ(later.find(ticket), nullptr);
  first.remove(ticket);
  EXPECT_EQ(first.find(ticket), nullptr);
  EXPECT_NE(first.add(one()), ticket) << "a kept ticket must not name the next tape";
}

}  // namespace
}  // namespace postern
