// print: a tap whose listener writes lines.
#include <postern/check.h>
#include <postern/control.h>
#include <postern/devices.h>
#include <postern/ops.h>
#include <postern/transforms.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/lines.h"
#include "core/lists.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "core/text.h"
#include "print/print_job.h"
#include "site/tap.h"
#include "transform/walk.h"

namespace postern::internal {

using detail::PrintNode;
using host::PrintJob;

namespace host {

namespace {

TextStyle style_of(const PrintOptions& o, bool types) {
  return {o.precision, o.threshold, o.edge_items, o.suppress, types};
}

std::string value_text(const PrintJob& job, std::size_t value, std::span<const AnyView> leaves,
                       const std::string& spec) {
  std::size_t next = job.first_leaf[value];
  return text_of(job.values[value].node, leaves, next, spec, style_of(job.options, job.whole));
}

/// The user's entries, and what is worth knowing besides.
std::map<std::string, std::string> header(const PrintOptions& options, const TapInfo& info) {
  auto entries = options.header;
  if (!info.transforms.empty()) entries.emplace("transforms", postern::to_string(info.transforms));
  if (options.show_device && !options.header.empty())
    entries.emplace("device", std::to_string(info.device));
  return entries;
}

std::string whole_text(const PrintJob& job, const TapInfo& info, std::span<const AnyView> leaves) {
  Separator comma;
  std::string out;
  for (const auto& [key, value] : header(job.options, info))
    out += fmt::format("{}{}: {}", comma(), key, value);
  if (!out.empty()) out += '\n';
  if (!job.options.label.empty()) out += job.options.label + ": ";
  return out + value_text(job, 0, leaves, "");
}

/// Streams that are written to, and by which threads: one at a time, since two streams may end in
/// one place. But no lock is held while a stream has its text, as what it does with that may wait
/// for a program that prints. So a thread waits for a second at most. Then it leaves its text to
/// the thread that writes to the same stream, or, where no thread does, writes beside the others.
class Streams {
 public:
  /// Writes the text, or leaves it to the thread that does. Returns whether the stream is found bad
  /// for the first time.
  bool write(std::ostream& stream, std::string text) {
    std::unique_lock lock(guard_);
    // A stream may print while it is printed to: then this thread has its turn already.
    const bool has_turn = std::ranges::any_of(busy_, is_mine);
    const auto may_go = [&] { return need_not_wait_for(stream); };
    if (!has_turn && !ended_.wait_for(lock, patience, may_go))
      for (auto& [of, busy] : busy_) busy.stuck = true;
    const auto [entry, is_free] = busy_.try_emplace(&stream);
    if (is_free) return write_all(stream, std::move(text), entry, lock);
    if (!is_mine(*entry)) {
      entry->second.left += text;
      return false;
    }
    lock.unlock();
    return put(stream, text);
  }

 private:
  struct Busy {
    std::thread::id writer;
    std::string left;    // by those who did not wait any longer
    bool stuck = false;  // somebody waited in vain, so nobody else needs to
  };
  using Entries = std::map<const std::ostream*, Busy>;
  static constexpr std::chrono::seconds patience{1};
  static constexpr std::size_t most_left = std::size_t{1} << 20;  // more have to wait again

  static bool is_mine(const Entries::value_type& entry) {
    return entry.second.writer == std::this_thread::get_id();
  }

  /// Whether nobody writes, or all are stuck and there is room to leave text for this stream.
  bool need_not_wait_for(const std::ostream& stream) const {
    return std::ranges::all_of(busy_, [&](const auto& entry) {
      const auto& [of, busy] = entry;
      return busy.stuck && (of != &stream || busy.left.size() < most_left);
    });
  }

  /// Writes to a stream that was free, and what others leave meanwhile; then frees it and rethrows
  /// what the stream threw last.
  bool write_all(std::ostream& stream, std::string text, Entries::iterator entry,
                 std::unique_lock<Mutex>& lock) {
    entry->second.writer = std::this_thread::get_id();
    bool is_new = false;
    std::exception_ptr thrown;
    for (; !text.empty(); text = std::exchange(entry->second.left, {})) {
      lock.unlock();
      try {
        is_new = put(stream, text) || is_new;
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
    }
    busy_.erase(entry);
    lock.unlock();
    ended_.notify_all();
    if (thrown) std::rethrow_exception(thrown);
    return is_new;
  }

  bool put(std::ostream& stream, const std::string& text) {
    enters_users_code();
    stream.write(text.data(), static_cast<std::streamsize>(text.size()));
    stream.flush();
    const std::scoped_lock lock(bad_guard_);
    if (!stream.good()) return bad_.insert(&stream).second;
    bad_.erase(&stream);
    return false;
  }

  Mutex guard_, bad_guard_;
  Condition ended_;
  Entries busy_;
  std::set<const std::ostream*> bad_;  // of which it was said
};

}  // namespace

bool write_to(std::ostream& stream, std::string text) {
  return never_destroyed<Streams>().write(stream, std::move(text));
}

namespace {

/// Hands a line to the options' function, or writes it to their stream, the run's or standard
/// output. In front stands which part of the value it shows; for streams also the device, where
/// there are several.
void write(const PrintOptions& options, const TapInfo& info, std::string text) {
  static const bool several = devices().size() > 1;
  if (!info.part.empty()) {
    std::vector<std::string> ranges;
    for (const IndexRange& r : info.part) ranges.push_back(fmt::format("{}:{}", r.begin, r.end));
    text.insert(0, fmt::format("[{}] ", fmt::join(ranges, ", ")));
  }
  if (options.log) {
    lines::add("print", text);
    enters_users_code();
    return options.log({std::move(text), info.place, info.device, info.run});
  }
  if (several || (options.show_device && options.header.empty()))
    text.insert(0, fmt::format("[device {}] ", info.device));
  lines::add("print", text);
  text += '\n';
  std::ostream* stream = &std::cout;
  if (info.sink) stream = info.sink;
  if (options.stream) stream = options.stream;
  if (!write_to(*stream, std::move(text))) return;
  const char* what = stream == &std::cout ? "standard output" : "a stream";
  log(LogLevel::warning,
      "print: {} takes no more text: the line of the print at {}, and others, are lost", what,
      to_string(info.place));
}

std::size_t leaf_count(const PrintNode& node) {
  if (node.kind == PrintNode::Kind::leaf) return 1;
  std::size_t count = 0;
  for (const PrintNode& part : node.parts) count += leaf_count(part);
  return count;
}

}  // namespace

void PrintJob::operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
  if (options.device >= 0 && info.device != options.device) return;
  if (whole)
    write(options, info, whole_text(*this, info, leaves));
  else
    write(options, info, line(leaves));
}

std::string PrintJob::line(std::span<const AnyView> leaves) const {
  std::string out;
  if (!options.label.empty()) out = options.label + ": ";
  for (const FormatPiece& piece : pieces) {
    out += piece.text;
    if (piece.value >= 0) out += value_text(*this, size_of(piece.value), leaves, piece.spec);
  }
  return out;
}

void check_style(const char* who, const PrintOptions& o) {
  check(o.precision >= -1 && o.precision <= 100,
        "{}: precision must be from 0 to 100, or -1, got {}", who, o.precision);
  check(o.threshold >= 0 && o.edge_items > 0,
        "{}: threshold must not be negative and edge_items positive, got {} and {}", who,
        o.threshold, o.edge_items);
}

void make_ready(const char* who, PrintJob& job, std::span<const Type> leaves) {
  check_style(who, job.options);
  std::size_t leaf = 0;
  for (const detail::PrintValue& v : job.values) {
    job.first_leaf.push_back(leaf);
    leaf += leaf_count(v.node);
  }
  check(leaf == leaves.size(), "{}: the values have {} tensors, {} are given", who, leaf,
        leaves.size());
  static constexpr std::byte zeros[16]{};  // as large as the largest element
  std::vector<AnyView> views;
  for (const Type& t : leaves) views.emplace_back(t.dtype, zeros, nullptr, 0, 1);
  for (const FormatPiece& piece : job.pieces) {
    if (piece.value < 0) continue;
    const auto value = size_of(piece.value);
    try {
      value_text(job, value, views, piece.spec);
    } catch (const fmt::format_error& e) {
      std::string of_type;
      if (leaf_count(job.values[value].node) == 1)
        of_type = fmt::format(" of type {}", to_string(leaves[job.first_leaf[value]]));
      throw_type_error(fmt::format("{}: the placeholder '{}' does not fit its value{}: {}", who,
                                   piece.placeholder, of_type, e.what()));
    }
  }
}

std::shared_ptr<const detail::HostFunction> function_of(PrintJob job) {
  return Callee(std::move(job)).function();
}

const PrintJob* print_job_of(const detail::HostFunction* function) {
  static const auto entered =
      function_of({})->invoke;  // the same for all prints, and for nothing else
  if (function && function->invoke == entered)
    return static_cast<const PrintJob*>(function->object.get());
  return nullptr;
}

}  // namespace host

}  // namespace postern::internal

namespace postern {
using namespace internal;

namespace {

Tensors print_by_tap(PrintJob job, const detail::Shown& sent, const Place& place) {
  const PrintOptions& o = job.options;
  check(o.every > 0, "print: every must be positive, got {}", o.every);
  make_ready("print", job, types_of(sent.leaves));
  const TapOptions tap{.name = "print",
                       .ordered = o.ordered,
                       .every = o.every,
                       .partitioned = o.partitioned,
                       .one_order = o.one_order,
                       .process = o.process};
  const Callee fn(std::move(job), place);
  return detail::tap_as(SiteSpec::Kind::print, tap, sent, nullptr, &fn, place);
}

}  // namespace

namespace detail {

void print(const PrintOptions& options, const PrintFormat& format, std::vector<PrintValue> values,
           Tensors leaves) {
  PlaceScope at(format.place());
  check(!options.map && options.header.empty(), "print: map and header are for print_value");
  PrintJob job{.options = options,
               .pieces = host::parse_format(format.text(), values),
               .values = std::move(values)};
  const Shown sent{std::move(leaves), "", {}};
  print_by_tap(std::move(job), sent, format.place());
}

void check_that(const Tensor& ok, const PrintFormat& format, std::vector<PrintValue> values,
                Tensors leaves, Thrower thrower) {
  PlaceScope at(format.place());
  check(ok.has_value() && ok.dtype() == DType::pred, "check: the condition must be pred, got {}",
        type_text(ok));
  PrintJob job{.pieces = host::parse_format(format.text(), values), .values = std::move(values)};
  make_ready("check", job, types_of(leaves));
  for (Tensor& leaf : leaves) leaf = stop_gradient(leaf);
  const Callee fail(
      [job = std::move(job), thrower](const CallInfo& info, std::span<const AnyView> shown) {
        std::string text = job.line(shown);
        if (info.element >= 0) text += fmt::format(" (element {} of the batch)", info.element);
        thrower(text);
      },
      format.place());
  // Only where the condition fails is the host called.
  cond(
      Operand(all(ok), format.place()), [](const Tensors&) { return std::tuple<>(); },
      [&](const Tensors& v) {
        call({.name = "check", .effect = Effect::unordered}, std::tuple<>(), fail, v);
        return std::tuple<>();
      },
      leaves);
}

PrintNode node_of(const Shown& value) {
  if (value.leaves.size() == 1) return {};
  return {PrintNode::Kind::named, std::vector<PrintNode>(value.leaves.size()), value.paths, {}};
}

Tensors print_value(const PrintOptions& options, const Shown& value, const Tensors& sent,
                    PrintNode node, Place place) {
  PlaceScope at(place);
  PrintJob job{.options = options, .values = {{"", std::move(node)}}, .whole = true};
  const Tensors passed = print_by_tap(std::move(job), {sent, "", {}}, place);
  if (options.map) return value.leaves;
  return passed;
}

}  // namespace detail

}  // namespace postern

namespace postern {

std::string to_string(const AnyView& array, const PrintOptions& options, Place place) {
  PlaceScope at(place);
  host::check_style("to_string", options);
  return host::text_of(array, "", host::style_of(options, false));
}

std::string detail::text_of(const Tensor& value, const PrintOptions& options, const Place& place) {
  PlaceScope at(place);
  if (value.is_traced())
    throw_type_error(fmt::format(
        "to_string: the tensor of type {} is traced, it has a value only when the program runs: "
        "pn::print writes it then",
        to_string(value.type(place))));
  const Type& type = value.type(place);
  std::vector<std::byte> data(std::max<std::size_t>(type.byte_size(), 1));
  value.read(data.data(), place);
  return to_string(
      AnyView(type.dtype, data.data(), type.dims.data(), type.dims.size(), type.size()), options);
}

std::ostream& operator<<(std::ostream& out, const Printed& tensor) {
  if (tensor.value.is_traced())
    return out << "Traced " << to_string(tensor.value.type(tensor.place))
               << " (pn::print writes its value when the program runs)";
  return out << detail::text_of(tensor.value, {}, tensor.place);
}

}  // namespace postern
