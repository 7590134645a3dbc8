// Loads and runs a program from elsewhere with single bits of its file flipped: run_damaged FILE
// FIRST STEP COUNT. Before each attempt the bit's number is written on a line of its own,
// afterwards how it ended, so that whoever waits knows which bit ended the process.
#include <fcntl.h>
#include <postern/postern.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace pn = postern;

namespace {

const char* attempt(const std::string& bytes) {
  try {
    const pn::Loaded program = pn::load_text(bytes, "damaged");
    try {
      std::vector<pn::Tensor> arguments;
      for (const pn::Type& t : program.inputs()) {
        if (static_cast<std::uint64_t>(t.byte_size()) > (1u << 24)) return "too large";
        arguments.push_back(pn::zeros(t));
      }
      for (const pn::Tensor& t : program(arguments)) t.block_until_ready();
      return "ran";
    } catch (const pn::Error&) {
      return "failed";
    }
  } catch (const pn::Error&) {
    return "refused";
  }
}

}  // namespace

int main(int, char** arguments) {
  std::ifstream in(arguments[1], std::ios::binary);
  std::ostringstream whole;
  whole << in.rdbuf();
  const std::size_t first = std::strtoul(arguments[2], nullptr, 10),
                    step = std::strtoul(arguments[3], nullptr, 10),
                    count = std::strtoul(arguments[4], nullptr, 10);
  pn::register_function("demo.add",
                        [](std::span<const pn::AnyView>, std::span<const pn::AnyMutableView>) {});
  const std::string bytes = whole.str();
  for (std::size_t bit = first, i = 0; i < count && bit < 8 * bytes.size(); bit += step, ++i) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    std::printf("%zu ", bit);
    std::fflush(stdout);
    alarm(10);  // a flipped bit can make a loop that never ends
    std::printf("%s\n", attempt(damaged));
    std::fflush(stdout);
  }
  return 0;
}
