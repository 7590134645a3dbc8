// For libFuzzer: whatever loads, text or VHLO, is interpreted inside of a program, or refused.
// scripts/fuzz builds and runs it.
#include <postern/file.h>
#include <postern/jit.h>
#include <postern/tensor.h>

#include <algorithm>
#include <string>
#include <vector>

using Tensors = std::vector<postern::Tensor>;

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with("// postern program")) return 0;  // the target `load` has those
  try {
    const postern::Loaded program = postern::load_text(text);
    static_cast<void>(program.operations());
    Tensors arguments;
    for (postern::Type type : program.inputs()) {
      std::ranges::replace(type.dims, -1, 3);
      arguments.push_back(postern::abstract(type));
    }
    const auto inside = postern::jit([&](const Tensors& x) -> Tensors { return program.run(x); });
    static_cast<void>(inside.program(arguments));
  } catch (const postern::Error&) {
  }
  return 0;
}
