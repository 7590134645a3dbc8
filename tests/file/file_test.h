// Files as bytes, and what tests of checkpoints keep in them.
#pragma once
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support.h"

namespace postern::test {

namespace fs = std::filesystem;

inline std::string contents(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return std::move(text).str();
}
inline void put(const fs::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

struct TrainingState {
  Tensor weights, step;
};
inline const TrainingState start{tensor<float>({1, 2, 3}), Tensor(0)};

}  // namespace postern::test
