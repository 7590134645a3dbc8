// Checkpoints of several processes, which are threads here.
#include <cstring>
#include <thread>

#include "checkpoint/together.h"
#include "file/file_test.h"

namespace postern::test {
using namespace internal;
namespace {

/// Two rows of four, which that one of two processes shows.
checkpoints::Snapshot half_of(int rank, std::chrono::milliseconds patience) {
  checkpoints::Snapshot out{.tap = "state",
                            .place = "train.cc:1",
                            .wholes = {{"w", make_type(DType::f32, {4})}},
                            .parts = {},
                            .states = {}};
  const float rows[] = {2.0f * static_cast<float>(rank), 1.0f};
  checkpoints::CheckpointPart part;
  part.tensors.push_back({"w", make_type(DType::f32, {2})});
  part.begins = {{2 * rank}};
  part.size = sizeof rows;
  part.bytes = checkpoints::aligned_memory(part.size);
  std::memcpy(part.bytes.get(), rows, part.size);
  out.parts.push_back(std::move(part));
  out.together = {rank, 2, 1, "run 1, firing 0 of tap 'state' at line 1", patience};
  return out;
}

TEST(Together, IsWholeWhereAnotherProcessHasWaitedForTooLong) {
  const TemporaryFolder folder;
  std::string text;
  std::jthread other([&] {
    try {
      write_together(folder.path(), half_of(1, 3s), 0, {});
    } catch (const Error& e) {
      text = e.what();
    }
  });
  // Process 0 rests before the checkpoint counts, until the other one has given up.
  const auto place = [&] {
    other.join();
    return checkpoints::checkpoint_path(folder.path(), 1);
  };
  write_together(folder.path(), half_of(0, 60s), 0, place);
  EXPECT_NE(text.find("process 0 has not ended it"), std::string::npos) << text;
  const auto kept = checkpoints::read_checkpoint(checkpoints::checkpoint_path(folder.path(), 1));
  EXPECT_EQ(kept.files.size(), 2u);
  EXPECT_EQ(kept.processes.size(), 2u);
}

}  // namespace
}  // namespace postern::test
