// Clocks, memory, medians, output.
#include "harness.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace bench {

double timed(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

namespace {

/// How many times fill about `round_ns`.
std::int64_t calibrate(const Side& side, double round_ns) {
  side(1);  // compiles, warms up
  for (std::int64_t times = 1;; times *= 4) {
    double took = timed([&] { side(times); });
    if (took <= round_ns / 8) continue;
    // What is made once may have come only now, such as what two threads need that meet.
    took = std::min(took, timed([&] { side(times); }));
    if (took > round_ns / 8)
      return std::max<std::int64_t>(
          1, static_cast<std::int64_t>(static_cast<double>(times) * round_ns / took));
  }
}

}  // namespace

std::vector<double> race(const std::vector<Side>& sides, int rounds, double round_ms,
                         std::chrono::milliseconds rest) {
  std::vector<const Side*> order;
  std::vector<std::int64_t> times;
  for (const Side& side : sides) {
    order.push_back(&side);
    times.push_back(calibrate(side, round_ms * 1e6));
  }
  std::vector<std::vector<double>> samples(order.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t turn = 0; turn < order.size(); ++turn) {
      // Every other round goes backwards, so that nobody always comes after the same neighbour.
      const std::size_t i = round % 2 ? order.size() - 1 - turn : turn;
      if (rest.count() > 0) {
        std::this_thread::sleep_for(rest);
        (*order[i])(1);  // its own threads are awake again
      }
      samples[i].push_back(timed([&] { (*order[i])(times[i]); }) / static_cast<double>(times[i]));
    }
  std::vector<double> medians;
  for (auto& s : samples) medians.push_back(median(std::move(s)));
  return medians;
}

namespace {

std::int64_t status_kib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return std::stoll(line.substr(key.size()));
  throw std::runtime_error("/proc/self/status has no " + key);
}

}  // namespace

std::int64_t resident_bytes() { return status_kib("VmRSS:") * 1024; }
std::int64_t peak_bytes() { return status_kib("VmHWM:") * 1024; }
void reset_peak() {
  std::ofstream refs("/proc/self/clear_refs");
  refs << 5 << std::flush;
  if (!refs)
    throw std::runtime_error(
        "the peak of resident memory cannot be reset: /proc/self/clear_refs cannot be written");
}

namespace {

/// Four significant digits: more would be noise.
double rounded(double x) {
  std::ostringstream text;
  text.precision(4);
  text << x;
  return std::stod(text.str());
}

}  // namespace

Report::Report(Jax jax, const std::string& file) : jax_(std::move(jax)) {
  if (file.empty()) return;
  file_.open(file);
  if (!file_) throw std::runtime_error("cannot write " + file);
}

void Report::add(const Line& line) {
  nlohmann::ordered_json json = {
      {"name", line.name}, {"value", rounded(line.value)}, {"unit", line.unit}};
  const bool compared = !line.peer.empty() && line.peer_value != 0;
  json["peer"] = line.peer.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(line.peer);
  json["peer_value"] =
      compared ? nlohmann::ordered_json(rounded(line.peer_value)) : nlohmann::ordered_json();
  json["ratio"] = compared ? nlohmann::ordered_json(rounded(line.value / line.peer_value))
                           : nlohmann::ordered_json();
  json["note"] = line.note;
  std::cout << json.dump() << std::endl;
  if (file_.is_open()) file_ << json.dump() << std::endl;
}

void Report::add_output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) throw std::runtime_error("cannot run " + command);
  char line[4096];
  while (std::fgets(line, sizeof line, pipe.get())) {
    std::cout << line << std::flush;
    if (file_.is_open()) file_ << line << std::flush;
  }
}

}  // namespace bench
