// What listeners that write metrics share: the steps of firings, the names of values, and what
// happens when nothing can be written.
#pragma once
#include <postern/listen.h>

#include <cstdint>
#include <exception>
#include <map>
#include <span>
#include <string>

#include "spi.h"

namespace postern::internal::host {

/// A firing's step, and which of its leaves is the first that is a value.
struct MetricStep {
  std::int64_t step;
  std::size_t first;
};

/// Counts the firings of those places that do not show their step.
class MetricSteps {
 public:
  MetricStep next(const TapInfo& info, std::span<const AnyView> leaves);

 private:
  std::map<std::string, std::int64_t> firings_;
};

/// Returns an integer, which need not fit a double. Throws TypeError from 2^63 on.
std::int64_t step_of(const AnyView& leaf);

/// Throws TypeError where a file's name is no format of a step.
void check_step_format(const char* who, const std::string& file);

/// Returns "name.path", with the transformations of derivatives.
std::string metric_name(const TapInfo& info, std::size_t leaf);

/// Returns "name/path"; with what tells it from the same tap's on the first device and as written.
std::string metric_tag(const TapInfo& info, std::size_t leaf);

/// Seconds since 1970, never less than before, whatever the clock does. For one thread at a time.
class MetricClock {
 public:
  double now();

 private:
  double last_ = 0;
};

/// Does what can fail as OnError says.
class WriteFailures {
 public:
  explicit WriteFailures(listen::OnError on_error) : on_error_(on_error) {}

  template <class F>
  void run(const char* who, const F& write) {
    if (on_error_ == listen::OnError::stop) return write();
    try {
      write();
      if (failed_ > 0) log(LogLevel::warning, "{}: writes again, after {} failures", who, failed_);
      failed_ = 0;
    } catch (const std::exception& e) {
      if (failed_++ == 0) log(LogLevel::warning, "{}; the program goes on", e.what());
    }
  }

 private:
  listen::OnError on_error_;
  std::uint64_t failed_ = 0;  // since it last worked
};

}  // namespace postern::internal::host
