// Steps, names and times of what is written.
#include "metric.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "spi.h"
#include "summary.h"

namespace postern::internal::host {

std::int64_t step_of(const AnyView& leaf) {
  if (leaf.dtype() != DType::s64 && leaf.dtype() != DType::u64)
    return static_cast<std::int64_t>(real_at(leaf.dtype(), leaf.data(), 0));
  std::int64_t step = 0;
  std::memcpy(&step, leaf.data(), sizeof step);
  check(leaf.dtype() == DType::s64 || step >= 0, "a step is to be below 2^63, got {}",
        static_cast<std::uint64_t>(step));
  return step;
}

MetricStep MetricSteps::next(const TapInfo& info, std::span<const AnyView> leaves) {
  if (leaves.size() > 1 && leaves[0].rank() == 0 && is_integer(leaves[0].dtype()))
    return {step_of(leaves[0]), 1};
  const std::string key =
      fmt::format("{}\n{}:{}\n{}\n{}", info.name, info.place.file, info.place.line, info.device,
                  postern::to_string(info.transforms));
  return {firings_[key]++, 0};
}

namespace {

std::string derivative(const TapInfo& info) {
  return info.transforms.empty() ? "" : " (" + postern::to_string(info.transforms) + ")";
}

}  // namespace

void check_step_format(const char* who, const std::string& file) {
  try {
    static_cast<void>(fmt::format(fmt::runtime(file), fmt::arg("step", std::int64_t{0})));
  } catch (const fmt::format_error& e) {
    check(false, "{}: '{}' is no format of a step: {}", who, one_line(file), e.what());
  }
}

std::string metric_name(const TapInfo& info, std::size_t leaf) {
  return one_line(leaf_name(info.name, path_of(info, leaf)) + derivative(info));
}

std::string metric_tag(const TapInfo& info, std::size_t leaf) {
  std::string tag(info.name);
  if (const std::string path(path_of(info, leaf)); !path.empty())
    tag += "/" + path.substr(path[0] == '.');
  tag += derivative(info);
  if (info.device != 0) tag += fmt::format(" on device {}", info.device);
  return one_line(tag);
}

double MetricClock::now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  last_ = std::max(last_, std::chrono::duration<double>(since).count());
  return last_;
}

}  // namespace postern::internal::host
