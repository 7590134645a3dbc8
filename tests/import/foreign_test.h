// What the tests of programs from elsewhere share: JAX's files, and a clean table of functions.
#pragma once
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "support.h"

namespace postern::test {

inline const std::string folder = POSTERN_TEST_DATA "/stablehlo/";

inline std::string text_in(const std::string& file) {
  std::ifstream in(folder + file);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

using Texts = std::map<std::string, std::string>;  // by name

/// What became of each, in a process of its own: "ok [1. 2.]", "refused ...", "failed ...", "died
/// 6".
inline std::map<std::string, std::string> each_of(const Texts& texts) {
  const TemporaryFolder scratch;
  const std::string file = scratch.path() + "/programs";
  {
    std::ofstream out(file);
    for (const auto& [name, text] : texts) out << "//// " << name << "\n" << text << "\n";
  }
  const Ended ended = run_program("foreign_each", {file}, {}, 600s);
  EXPECT_EQ(ended.code, 0) << ended.err;
  std::map<std::string, std::string> out;
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);)
    out[line.substr(0, line.find(' '))] = line.substr(std::min(line.find(' ') + 1, line.size()));
  EXPECT_EQ(out.size(), texts.size()) << ended.out;
  return out;
}

using Tensors = std::vector<Tensor>;

/// As scripts/golden_stablehlo makes them.
inline Tensor waves(const Type& type) {
  std::vector<float> numbers;
  const bool whole = type.dtype == DType::pred || is_integer(type.dtype);
  for (std::int64_t i = 0; i < type.size(); ++i)
    numbers.push_back(whole ? static_cast<float>(i % 7) : std::sin(static_cast<float>(i)));
  return convert(Tensor({DType::f32, type.dims}, numbers.data()), type.dtype);
}
inline Tensors waves(const Loaded& program) {
  Tensors out;
  for (const Type& t : program.inputs()) out.push_back(waves(t));
  return out;
}

class Foreign : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"demo.scale", "demo.two", "demo.add", "xla_ffi_python_cpu_callback"})
      unregister_function(name);
  }
};

}  // namespace postern::test
