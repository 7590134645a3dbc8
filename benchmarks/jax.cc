// JAX as a peer: peers.py run now, or what it printed elsewhere.
#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "harness.h"

namespace bench {

using nlohmann::json;

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  std::array<char, 4096> part;
  while (pipe)
    if (const std::size_t n = std::fread(part.data(), 1, part.size(), pipe.get()))
      text.append(part.data(), n);
    else
      break;
  return text;
}

void Jax::measure(const std::string& benchmark) {
  for (const std::string& done : measured_)
    if (done == benchmark) return;
  measured_.push_back(benchmark);
  if (recorded_where_.empty()) {
    const json recorded = json::parse(std::ifstream(folder_ + "/recorded_jax.json"));
    recorded_where_ = recorded["where"];
    for (const auto& [name, line] : recorded["lines"].items())
      lines_.push_back({name, line[0], line[1], "jax", 0, "recorded: " + recorded_where_});
  }
  if (python_.empty()) return;
  std::size_t fresh = 0;
  const std::string text = output_of("'" + python_ + "' '" + folder_ + "/peers.py' " + benchmark);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    const json line = json::parse(text.substr(at, end - at), nullptr, false);
    // In front of what was recorded.
    if (line.is_object()) {
      lines_.insert(lines_.begin(),
                    {line["name"], line["value"], line["unit"], "jax", 0, line["note"]});
      ++fresh;
    }
    if (end == std::string::npos) break;
    at = end + 1;
  }
  if (!fresh)
    std::cerr << "bench: peers.py gave no figure for " << benchmark
              << "; what was recorded elsewhere is used\n";
}

Line Jax::beside(Line ours, const std::string& benchmark) {
  measure(benchmark);
  ours.peer = "jax";
  for (const Line& theirs : lines_) {
    if (theirs.name != ours.name) continue;
    if (theirs.unit != ours.unit)
      throw std::runtime_error("JAX's " + ours.name + " is in " + theirs.unit + ", not " +
                               ours.unit);
    ours.peer_value = theirs.value;
    ours.note = theirs.note + (ours.note.empty() ? "" : "; ") + ours.note;
    return ours;
  }
  ours.note = "no figure of JAX";
  return ours;
}

}  // namespace bench
