// A user's program: runs on the plug-in that was installed with the library, not on the build
// tree's.
#include <postern/postern.h>

#include <fstream>
#include <iostream>
#include <string>

int main(int, char** argv) {
  auto twice = postern::jit([](postern::Tensor x) { return x * 2.0f; });
  if (twice(postern::Tensor(21.0f)).item<float>() != 42.0f) return 1;

  const std::string prefix = argv[1];
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(prefix + "/") != std::string::npos && line.ends_with("xla_cpu_pjrt.so")) return 0;
  std::cerr << "the plug-in in use is not beneath " << prefix << '\n';
  return 1;
}
