// What the tests of programs from elsewhere share: JAX's files, and a clean table of functions.
#pragma once
#include <fstream>
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

class Foreign : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"demo.scale", "demo.two", "demo.add", "xla_ffi_python_cpu_callback"})
      unregister_function(name);
  }
};

}  // namespace postern::test
