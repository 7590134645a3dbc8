// What a print does each time it fires. All of it is data, but for streams and functions that take its lines.
#pragma once
#include <postern/host.h>
#include <postern/print.h>

#include <memory>

#include "print/print_text.h"

namespace postern::host {

struct PrintJob {
  PrintOptions options = {};
  std::vector<FormatPiece> pieces = {};  // for print
  std::vector<detail::PrintValue> values = {};
  bool whole = false;                        // print_value: the first value as it is
  std::vector<std::size_t> first_leaf = {};  // of each value

  void operator()(const TapInfo& info, std::span<const AnyView> leaves) const;
  std::string line(std::span<const AnyView> leaves) const;
};

/// Finds each value's leaves, checks the options, and formats zeros once: a specification that fits now fits always. Throws TypeError.
void make_ready(const char* who, PrintJob& job, std::span<const Type> leaves);

std::shared_ptr<const detail::HostFunction> function_of(PrintJob job);
/// What such a function does; null for all other functions.
const PrintJob* print_job_of(const detail::HostFunction* function);

}  // namespace postern::host
