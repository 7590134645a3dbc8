// Reading XLA's optimised programs, which come as protobufs.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace postern::test {

/// Calls f(number, bytes) for each length-delimited field of a serialized protobuf.
template <class F>
void each_field(std::string_view message, const F& f) {
  std::size_t at = 0;
  auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0; at < message.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(message[at++]);
      value |= std::uint64_t{byte & 127u} << shift;
      if (byte < 128) break;
    }
    return value;
  };
  while (at < message.size()) {
    const std::uint64_t key = varint();
    if ((key & 7) == 0)
      varint();
    else if ((key & 7) == 1)
      at += 8;
    else if ((key & 7) == 5)
      at += 4;
    else {
      const std::uint64_t size = varint();
      f(static_cast<int>(key >> 3), message.substr(at, size));
      at += size;
    }
  }
}

/// The instructions of all computations in order: operation and shape with layout. Names, numbers
/// and places in the source are left out.
inline std::vector<std::string> instructions_of(std::string_view optimized) {
  std::vector<std::string> out;
  each_field(optimized, [&](int of_code, std::string_view module) {
    if (of_code != 1) return;
    each_field(module, [&](int of_module, std::string_view computation) {
      if (of_module != 3) return;
      each_field(computation, [&](int of_computation, std::string_view instruction) {
        if (of_computation != 2) return;
        out.emplace_back();
        each_field(instruction, [&](int of_instruction, std::string_view text) {
          if (of_instruction == 2 || of_instruction == 3) out.back() += text;
        });
      });
    });
  });
  return out;
}

}  // namespace postern::test
