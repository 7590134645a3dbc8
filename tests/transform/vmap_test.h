// What the tests of vmap share: taps that write down what they see.
#pragma once
#include "support.h"

namespace postern::test {

inline std::string list(std::span<const float> values) {
  std::string out;
  for (const float v : values) {
    std::string text = std::to_string(v);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    out += (out.empty() ? "" : " ") + text;
  }
  return out;
}

/// What taps of a batch see: the leaves, how they are batched, and which elements are alive.
struct Seen {
  std::vector<std::string> lines;
  auto shows() {
    return [this](const TapInfo& info, std::span<const AnyView> leaves) {
      std::string line;
      for (const AnyView& v : leaves) {
        std::vector<float> values;
        for (std::int64_t i = 0; i < v.size(); ++i) {
          if (v.dtype() == DType::pred)
            values.push_back(float(v.as<bool>()[i]));
          else
            values.push_back(v.dtype() == DType::s32 ? float(v.as<int>()[i]) : v.as<float>()[i]);
        }
        line += (line.empty() ? "[" : ",[") + list(values) + "]";
      }
      if (!info.transforms.empty()) line += " " + to_string(info.transforms);
      if (!info.mask.empty()) {
        line += " ";
        for (const bool b : info.mask) line += b ? 'T' : 'F';
      }
      lines.push_back(line);
    };
  }
};

}  // namespace postern::test
