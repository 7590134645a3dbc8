// Why a jitted function compiles again, and what it has captured.
#include "run/misses.h"

#include <string_view>

#include "core/log.h"
#include "core/text.h"

namespace postern::internal::run {

namespace {

constexpr int programs_before_warning = 8;
constexpr std::size_t large_capture = 1 << 20;

/// Parts the structure's text at the ';' behind each argument. Strings may hold some: "3:a;b".
std::vector<std::string_view> by_argument(std::string_view structure) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < structure.size();) {
    std::size_t number = 0, end = at;
    for (; end < structure.size() && is_digit(structure[end]); ++end)
      number = 10 * number + static_cast<std::size_t>(structure[end] - '0');
    const bool is_number = end > at, is_length = end < structure.size() && structure[end] == ':';
    if (is_number && is_length) {
      at = end + 1 + number;
    } else if (is_number) {
      at = end;
    } else if (structure[at++] == ';') {
      parts.push_back(structure.substr(begin, at - 1 - begin));
      begin = at;
    }
  }
  return parts;
}

std::string shown(std::string_view text) {
  constexpr std::size_t most = 60;
  if (text.size() <= most) return std::string(text);
  return fmt::format("{}...", text.substr(0, most));
}

}  // namespace

std::string Misses::difference(const detail::Key& key) const {
  if (!pack_) return "its first";
  if (key.pack() != *pack_) return "the arguments are of other C++ types";
  const auto now = by_argument(key.structure()), before = by_argument(structure_);
  for (std::size_t i = 0; i < now.size(); ++i)
    if (now[i] != before[i])
      return fmt::format("argument {} is {}, before it was {}", i + 1, shown(now[i]),
                         shown(before[i]));
  for (std::size_t argument = 0, leaf = 0; argument < now.size(); ++argument)
    for (const std::size_t end = key.argument_ends()[argument]; leaf < end; ++leaf)
      if (const Type& type = key.leaves()[leaf]->type(); type != types_[leaf])
        return fmt::format("a tensor of argument {} is {}, before it was {}", argument + 1,
                           to_string(type), to_string(types_[leaf]));
  return "arguments lie on other devices, or blocks have other overrides";
}

void Misses::note(const std::string& function, const detail::Key& key) {
  const std::string why = difference(key);
  ++programs_;
  const bool of_values = pack_ && key.pack() == *pack_ && key.structure() != structure_;
  pack_ = &key.pack();
  structure_ = key.structure();
  types_.clear();
  for (const Tensor* t : key.leaves()) types_.push_back(t->type());
  if (log_has("compiles"))
    log_line(fmt::format("{} compiles program {}: {}", function, programs_, why));
  if (!of_values || ++of_values_ != programs_before_warning - 1) return;  // the first was no miss
  log(LogLevel::warning,
      "{} has compiled {} programs, for one static value after the other: {}. Each value is part "
      "of a program; numbers for a parameter of type Tensor are not. POSTERN_LOG=compiles tells of "
      "each program",
      function, programs_before_warning, why);
}

void tell_captures(const std::string& function, const std::vector<Tensor>& captures,
                   std::atomic<bool>& told) {
  const Type* largest = nullptr;
  std::size_t bytes = 0;
  for (const Tensor& t : captures) {
    bytes += t.type().byte_size();
    if (!largest || t.type().byte_size() > largest->byte_size()) largest = &t.type();
  }
  if (!largest) return;
  log(LogLevel::info, "{} has captured {} of {} bytes: constants of its program", function,
      plural(captures.size(), "tensor"), bytes);
  if (largest->byte_size() > large_capture && !told.exchange(true))
    log(LogLevel::warning,
        "{} has captured a tensor {} of {:.1f} MiB, which is a constant of its program: what "
        "changes, such as weights, must be an argument",
        function, to_string(*largest), static_cast<double>(largest->byte_size()) / (1 << 20));
}

}  // namespace postern::internal::run
