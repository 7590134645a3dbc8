// Tapes of loops, and the functions that programs call to write and read them.
#include "host/loop_tape.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <span>
#include <system_error>

#include "host/run_state.h"
#include "site/loop_tape.h"

namespace postern::internal::host {

namespace {

/// 1 + 1024 * number: a sum of tickets is none, unless it is of a thousand.
constexpr double between = 1024;
/// Numbers of runs' tapes are below; above are those that belong to no run.
constexpr std::uint64_t first_loose = std::uint64_t{1} << 42;

double ticket_of(std::uint64_t number) { return 1 + between * static_cast<double>(number); }
std::optional<std::uint64_t> number_of(double ticket) {
  const double number = (ticket - 1) / between;
  if (!(number >= 0 && number < 2 * static_cast<double>(first_loose)) ||
      number != std::floor(number))
    return {};
  return static_cast<std::uint64_t>(number);
}

constexpr std::size_t first_bytes = 256, most_bytes = std::size_t{64} << 20;

std::string reason(int error) { return std::error_code(error, std::generic_category()).message(); }

}  // namespace

double loose_ticket(std::uint64_t number) { return ticket_of(first_loose + number); }

LoopTapeBudget::~LoopTapeBudget() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

// Doubling parts of a tape would reach the limit before what is on it does, and leave nothing to
// the other tapes of the loop. So a part takes an eighth of what is left at most.
LoopTapeBudget::Room LoopTapeBudget::room(std::size_t bytes, std::int64_t wanted,
                                          std::int64_t step) {
  const std::scoped_lock lock(guard_);
  const auto one = static_cast<std::int64_t>(std::max<std::size_t>(bytes, 1));
  std::int64_t entries = wanted;
  if (memory_ > 0)
    entries = std::min(entries, std::max<std::int64_t>((memory_ - used_) / one / 8, 1));
  if (memory_ > 0 && used_ + one > memory_) {
    if (!file_.empty()) return room_in_file(bytes, wanted, step);
    throw Error(ErrorCode::resource_exhausted,
                fmt::format("its tape has outgrown its limit: after {} steps {} of {} bytes are in "
                            "use, and the next step takes {} more (WhileOptions::memory; with "
                            "WhileOptions::file the rest goes there, with keep_every less is kept)",
                            step, used_, memory_, one));
  }
  Room out{nullptr, entries, static_cast<std::size_t>(entries * one), false};
  out.data = static_cast<std::byte*>(std::calloc(out.size, 1));
  if (!out.data)
    throw Error(ErrorCode::resource_exhausted,
                fmt::format("there is no memory for its tape: after {} steps {} bytes are in use, "
                            "and {} more are wanted",
                            step, used_, out.size));
  used_ += static_cast<std::int64_t>(out.size);
  return out;
}

LoopTapeBudget::Room LoopTapeBudget::room_in_file(std::size_t bytes, std::int64_t wanted,
                                                  std::int64_t step) {
  auto fail = [&](int error) {
    throw Error(ErrorCode::resource_exhausted,
                fmt::format("the file for its tape cannot be written: '{}': {}; after {} steps {} "
                            "bytes are in memory, {} in the file",
                            file_, reason(error), step, used_, file_size_));
  };
  if (descriptor_ < 0) {
    std::string name = file_ + ".XXXXXX";
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) fail(errno);
    ::unlink(name.c_str());
  }
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t size =
      (std::max<std::size_t>(bytes, 1) * static_cast<std::size_t>(wanted) + page - 1) / page * page;
  // Reserved first: on a full disk a write to mapped memory would end the process.
  int error = 0;
  do error = ::posix_fallocate(descriptor_, file_size_, static_cast<off_t>(size));
  while (error == EINTR);
  if (error) fail(error);
  void* const data =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, file_size_);
  if (data == MAP_FAILED) fail(errno);
  file_size_ += static_cast<std::int64_t>(size);
  return {static_cast<std::byte*>(data), wanted, size, true};
}

void LoopTapeBudget::give_back(const Room& room) {
  if (room.mapped) {
    ::munmap(room.data, room.size);
    return;
  }
  std::free(room.data);
  const std::scoped_lock lock(guard_);
  used_ -= static_cast<std::int64_t>(room.size);
}

LoopTape::~LoopTape() {
  for (const Part& part : parts_) budget_->give_back(part.room);
}

const LoopTape::Part* LoopTape::part_of(std::int64_t k) const {
  auto has = [&](const Part& p) { return k >= p.begin && k < p.begin + p.room.entries; };
  if (recent_ < parts_.size() && has(parts_[recent_])) return &parts_[recent_];
  const auto after = std::ranges::upper_bound(parts_, k, {}, &Part::begin);
  if (after == parts_.begin() || !has(*std::prev(after))) return nullptr;
  recent_ = static_cast<std::size_t>(after - parts_.begin()) - 1;
  return &parts_[recent_];
}

LoopTape::Part* LoopTape::room_for(std::int64_t k) {
  const std::size_t bytes = std::max<std::size_t>(bytes_, 1);
  while (k >= end_) {
    const std::size_t most = std::max(most_bytes / bytes, std::size_t{1}),
                      first = std::max(first_bytes / bytes, std::size_t{1});
    const auto wanted =
        static_cast<std::int64_t>(std::min(std::max(static_cast<std::size_t>(end_), first), most));
    Part part{end_, budget_->room(bytes_, wanted, end_)};
    part.written.resize(static_cast<std::size_t>(part.room.entries));
    parts_.push_back(std::move(part));
    end_ += parts_.back().room.entries;
  }
  return const_cast<Part*>(part_of(k));
}

void LoopTape::write(std::int64_t first, std::int64_t count, const void* values) {
  const auto* from = static_cast<const std::byte*>(values);
  for (std::int64_t k = first; k < first + count;) {
    Part& part = *room_for(k);
    const std::int64_t at = k - part.begin, n = std::min(first + count - k, part.room.entries - at);
    const std::size_t bytes = static_cast<std::size_t>(n) * bytes_;
    std::memcpy(part.room.data + static_cast<std::size_t>(at) * bytes_, from, bytes);
    std::fill_n(part.written.begin() + at, n, true);
    from += bytes;
    k += n;
  }
}

void LoopTape::read(std::int64_t first, std::int64_t count, void* values) const {
  auto* to = static_cast<std::byte*>(values);
  for (std::int64_t k = first; k < first + count;) {
    const Part* const part = k >= 0 && k < end_ ? part_of(k) : nullptr;
    const std::int64_t at = part ? k - part->begin : 0,
                       n = part ? std::min(first + count - k, part->room.entries - at) : 0;
    std::int64_t there = 0;
    while (there < n && part->written[static_cast<std::size_t>(at + there)]) ++there;
    if (!part || there < n)
      throw Error(ErrorCode::failed_precondition,
                  fmt::format("step {} is not on its tape, which has {} at most", k + there, end_));
    const std::size_t bytes = static_cast<std::size_t>(n) * bytes_;
    std::memcpy(to, part->room.data + static_cast<std::size_t>(at) * bytes_, bytes);
    to += bytes;
    k += n;
  }
}

namespace {
std::atomic<std::uint64_t> tapes_of_runs{0};
}

double LoopTapes::add(std::unique_ptr<LoopTape> tape) {
  const std::uint64_t number = tapes_of_runs.fetch_add(1) % first_loose;
  const std::scoped_lock lock(guard_);
  tapes_[number] = std::move(tape);
  return ticket_of(number);
}

LoopTape* LoopTapes::find(double ticket) {
  const std::optional<std::uint64_t> number = number_of(ticket);
  if (!number) return nullptr;
  const std::scoped_lock lock(guard_);
  const auto found = tapes_.find(*number);
  return found == tapes_.end() ? nullptr : found->second.get();
}

void LoopTapes::remove(double ticket) {
  const std::optional<std::uint64_t> number = number_of(ticket);
  if (!number) return;
  decltype(tapes_)::node_type gone;  // after the lock
  const std::scoped_lock lock(guard_);
  gone = tapes_.extract(*number);
}

namespace {

/// The run that the thread is inside of.
LoopTapes& tapes_of_run() { return nesting()->run->loop_tapes(); }

LoopTape& found(LoopTapes& tapes, double ticket) {
  if (LoopTape* const tape = tapes.find(ticket)) return *tape;
  throw Error(ErrorCode::failed_precondition,
              "its tape is not there. A tape lives as long as the run that made it: put all of the "
              "derivative into one jit. And a loop that is differentiated twice may be pulled back "
              "once only: of the sum of two pullbacks there is no second derivative");
}

/// The tickets of a leaf, and how much of it each of them stands for.
struct Leaf {
  std::span<const double> tickets;
  std::byte* data;
  std::size_t bytes;
};
Leaf leaf_of(const detail::Firing& f, std::size_t ticket, std::size_t leaf) {
  const auto count = static_cast<std::size_t>(f.leaves[ticket].size);
  const detail::LeafLayout& l = f.leaves[leaf];
  const std::size_t bytes = static_cast<std::size_t>(l.size) * byte_width(l.dtype);
  return {{static_cast<const double*>(f.data[ticket]), count},
          static_cast<std::byte*>(f.data[leaf]),
          count ? bytes / count : 0};
}
/// The steps that a firing is about: operand 0, how many of them in the next one; and the room that
/// a leaf has for steps.
struct Steps {
  std::int64_t first = 0, count = 1, room = 1;
  std::size_t operands = 1;
};
Steps steps_of(const detail::Firing& f) {
  Steps out;
  out.first = *static_cast<const std::int64_t*>(f.data[0]);
  out.room = room_for_steps(*f.declared->attributes);
  if (out.room != 1) {
    out.count = *static_cast<const std::int64_t*>(f.data[1]);
    out.operands = 2;
  }
  if (out.first < 0 || out.count < 0 || out.count > out.room)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} steps from step {} on have no place in a block of {}", out.count,
                            out.first, out.room));
  return out;
}

std::shared_ptr<LoopTapeBudget> new_budget(const Attributes& options) {
  return std::make_shared<LoopTapeBudget>(
      options.has("memory") ? options.get<std::int64_t>("memory") : 0,
      options.has("file") ? options.get<std::string>("file") : std::string());
}

/// Operands: steps, tickets, leaves. Results: tickets.
void write(void*, const detail::Firing& f) {
  const std::size_t n = f.results;
  const Steps steps = steps_of(f);
  LoopTapes& tapes = tapes_of_run();
  std::shared_ptr<LoopTapeBudget> budget;
  auto leaf = [&](std::size_t i) { return leaf_of(f, steps.operands + i, steps.operands + n + i); };
  auto budget_of_loop = [&] {
    for (std::size_t i = 0; i < n && !budget; ++i)
      for (const double t : leaf(i).tickets)
        if (LoopTape* const tape = t != 0 ? tapes.find(t) : nullptr) {
          budget = tape->budget();
          break;
        }
    if (!budget) budget = new_budget(*f.declared->attributes);
    return budget;
  };
  struct Written {
    LoopTape* to;
    const std::byte* from;
  };
  std::vector<Written> all;
  for (std::size_t i = 0; i < n; ++i) {
    const Leaf of = leaf(i);
    const std::size_t bytes = of.bytes / static_cast<std::size_t>(steps.room);
    auto* const out = static_cast<double*>(f.data[f.operands + i]);
    for (std::size_t j = 0; j < of.tickets.size(); ++j) {
      out[j] = of.tickets[j];
      if (out[j] == 0) out[j] = tapes.add(std::make_unique<LoopTape>(bytes, budget_of_loop()));
      all.push_back({&found(tapes, out[j]), of.data + j * of.bytes});
    }
  }
  // Where memory is limited a step goes on all tapes before the next one does, so that none takes
  // what another will need for the same steps.
  std::int64_t at_once = steps.count;
  if (f.declared->attributes->has("memory")) at_once = 1;
  for (std::int64_t k = 0; k < steps.count; k += at_once)
    for (const Written& w : all)
      w.to->write(steps.first + k, at_once, w.from + static_cast<std::size_t>(k) * w.to->bytes());
}

/// Operands: steps, tickets. Results: leaves.
void read(void*, const detail::Firing& f) {
  LoopTapes& tapes = tapes_of_run();
  const Steps steps = steps_of(f);
  for (std::size_t i = 0; i < f.results; ++i) {
    const Leaf leaf = leaf_of(f, steps.operands + i, f.operands + i);
    const std::size_t bytes =
        leaf.bytes / static_cast<std::size_t>(steps.room) * static_cast<std::size_t>(steps.count);
    for (std::size_t j = 0; j < leaf.tickets.size(); ++j) {
      std::byte* const to = leaf.data + j * leaf.bytes;
      std::size_t there = 0;
      if (leaf.tickets[j] != 0) {
        found(tapes, leaf.tickets[j]).read(steps.first, steps.count, to);
        there = bytes;
      }
      std::memset(to + there, 0, leaf.bytes - there);
    }
  }
}

/// Operands: anything, tickets.
void free_tapes(void*, const detail::Firing& f) {
  LoopTapes& tapes = tapes_of_run();
  for (std::size_t i = 1; i < f.operands; ++i)
    for (const double t : std::span(static_cast<const double*>(f.data[i]),
                                    static_cast<std::size_t>(f.leaves[i].size)))
      if (t != 0) tapes.remove(t);
}

std::shared_ptr<const detail::HostFunction> function(void (*invoke)(void*, const detail::Firing&)) {
  using Kind = detail::Parameter::Kind;
  auto out = std::make_shared<detail::HostFunction>();
  out->parameters = {{Kind::all_operands, DType::token}, {Kind::all_results, DType::token}};
  out->invoke = invoke;
  return out;
}

}  // namespace

bool is_of_loop_tapes(const detail::HostFunction& f) {
  return f.invoke == write || f.invoke == read || f.invoke == free_tapes;
}

std::shared_ptr<const detail::HostFunction> loop_tape_function(std::string_view name) {
  // Never destroyed: runs may end after main.
  static const auto* const all =
      new std::array<std::pair<std::string_view, std::shared_ptr<const detail::HostFunction>>, 3>{
          {{tape_write, function(write)},
           {tape_read, function(read)},
           {tape_free, function(free_tapes)}}};
  for (const auto& [known, own] : *all)
    if (known == name) return own;
  return nullptr;
}

}  // namespace postern::internal::host
