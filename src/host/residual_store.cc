// Residual stores of loops, and the functions that programs call to write and read them.
#include "host/residual_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <span>

#include "core/lists.h"
#include "host/run_state.h"
#include "site/residual_store.h"

namespace postern::internal::host {

namespace {

/// A handle is 1 + 1024 * number, so a sum of handles is none, unless it is of a thousand.
constexpr double between = 1024;
/// Numbers of runs' stores are below; above are those that belong to no run.
constexpr std::uint64_t first_loose = std::uint64_t{1} << 42;

double handle_of(std::uint64_t number) { return 1 + between * static_cast<double>(number); }
/// Returns nothing for what is no handle, NaN included.
std::optional<std::uint64_t> number_of(double handle) {
  const double number = (handle - 1) / between;
  const bool in_range = number >= 0 && number < 2 * static_cast<double>(first_loose);
  if (!in_range || number != std::floor(number)) return {};
  return static_cast<std::uint64_t>(number);
}

constexpr std::int64_t first_bytes = 256, most_bytes = std::int64_t{64} << 20;  // of a part

/// Returns the bytes of so many entries; more than there can be, where they cannot be counted.
std::size_t size_of_entries(std::int64_t entries, std::size_t bytes) {
  constexpr auto most = size_of(PTRDIFF_MAX);
  std::size_t out = 0;
  if (__builtin_mul_overflow(size_of(entries), std::max<std::size_t>(bytes, 1), &out)) return most;
  return std::min(out, most);
}

}  // namespace

double loose_handle(std::uint64_t number) { return handle_of(first_loose + number); }

ResidualBudget::ResidualBudget(const ResidualOptions& options, ResidualFiles& files)
    : options_(options) {
  if (options.file.empty()) return;
  file_ = files.of(options.file, [&] { return std::make_shared<ResidualFile>(options.file); });
}

/// "after 30 steps", of the loop as the user wrote it.
std::string ResidualBudget::after(std::int64_t steps) const {
  if (options_.of_segment) return fmt::format("after {} steps of a segment", steps);
  return fmt::format("after {} steps", steps * options_.keep_every);
}

// Doubling parts of a store would reach the limit before what is in it does, and leave nothing to
// the other stores of the loop. So a part takes an eighth of what is left at most.
ResidualBudget::Room ResidualBudget::room(std::size_t bytes, std::int64_t wanted,
                                          std::int64_t steps) {
  const std::scoped_lock lock(guard_);
  const auto one = static_cast<std::int64_t>(std::max<std::size_t>(bytes, 1));
  const std::int64_t limit = options_.share();  // 0: as much as there is
  const std::int64_t left = limit - used_;
  if (limit > 0 && one > left) {
    if (file_) return room_in_file(bytes, wanted, steps);
    std::string most = fmt::format("{} bytes", limit);
    if (limit != options_.memory)
      most += fmt::format(
          " (half of {}: one for the carries that keep_every keeps, one for the "
          "steps of a segment)",
          options_.memory);
    throw Error(
        ErrorCode::resource_exhausted,
        fmt::format("its residuals have outgrown their limit: {} {} of {} are in use, the next "
                    "step takes {} more (WhileOptions::memory; with WhileOptions::file the "
                    "rest goes there, with keep_every less is kept)",
                    after(steps), used_, most, one));
  }
  std::int64_t entries = wanted;
  if (limit > 0) entries = std::min(entries, std::max<std::int64_t>(left / one / 8, 1));
  const std::size_t size = size_of_entries(entries, bytes);
  auto* const data = static_cast<std::byte*>(std::calloc(size, 1));
  if (!data)
    throw Error(ErrorCode::resource_exhausted,
                fmt::format("there is no memory for its residuals: {} {} bytes are in use, {} more "
                            "are wanted",
                            after(steps), used_, size));
  used_ += static_cast<std::int64_t>(size);
  return {{data, {.budget = this, .size = size}}, entries};
}

ResidualBudget::Room ResidualBudget::room_in_file(std::size_t bytes, std::int64_t wanted,
                                                  std::int64_t steps) {
  const std::size_t size = size_of_entries(wanted, bytes);
  int error = 0;
  std::byte* const data = file_->room(size, error);
  if (!data)
    throw Error(
        ErrorCode::resource_exhausted,
        fmt::format("the file for its residuals cannot be written: '{}': {}; {} {} bytes are in "
                    "memory, {} in the file",
                    file_->prefix(), std::strerror(error), after(steps), used_, file_->size()));
  return {{data, {.budget = this, .size = size, .in_file = true}}, wanted};
}

void ResidualBudget::give_back(std::byte* data, const GiveBack& how) noexcept {
  if (how.in_file) return file_->give_back(data, how.size);
  std::free(data);
  const std::scoped_lock lock(guard_);
  used_ -= static_cast<std::int64_t>(how.size);
}

/// Returns the part with room for step k, or null. The one that was found last is tried first.
const ResidualStore::Part* ResidualStore::part_of(std::int64_t k) const {
  auto has = [&](const Part& p) { return k >= p.begin && k < p.begin + p.room.entries; };
  const std::size_t recent = recent_.load(std::memory_order_relaxed);
  if (recent < parts_.size() && has(parts_[recent])) return &parts_[recent];
  const auto after = std::ranges::upper_bound(parts_, k, {}, &Part::begin);
  if (after == parts_.begin() || !has(*std::prev(after))) return nullptr;
  recent_.store(size_of(after - parts_.begin()) - 1, std::memory_order_relaxed);
  return &*std::prev(after);
}

// A step far ahead, as of who goes backwards, has all before it in one part: a file may name any
// step, and what there is no memory for is refused as one piece.
ResidualStore::Part* ResidualStore::room_for(std::int64_t k) {
  const auto bytes = static_cast<std::int64_t>(std::max<std::size_t>(bytes_, 1));
  const std::int64_t least = std::max<std::int64_t>(first_bytes / bytes, 1);
  const std::int64_t most = std::max<std::int64_t>(most_bytes / bytes, 1);
  while (k >= end_) {
    const std::int64_t as_much_again = std::clamp(end_, least, most);
    const std::int64_t wanted = std::max(as_much_again, k - end_ + 1);
    Part part{end_, budget_->room(bytes_, wanted, steps_)};
    part.written.resize(size_of(part.room.entries));
    parts_.push_back(std::move(part));
    end_ += parts_.back().room.entries;
  }
  return const_cast<Part*>(part_of(k));
}

void ResidualStore::write(std::int64_t first, std::int64_t count, const void* values) {
  const auto* from = static_cast<const std::byte*>(values);
  for (std::int64_t k = first; k < first + count;) {
    Part& part = *room_for(k);
    const std::int64_t at = k - part.begin, n = std::min(first + count - k, part.room.entries - at);
    const std::size_t bytes = size_of(n) * bytes_;
    std::memcpy(part.room.data.get() + size_of(at) * bytes_, from, bytes);
    const auto written = part.written.begin() + at;
    steps_ += n - std::count(written, written + n, true);
    std::fill_n(written, n, true);
    from += bytes;
    k += n;
  }
}

void ResidualStore::read(std::int64_t first, std::int64_t count, void* values) const {
  const auto refuse = [&](std::int64_t step) {
    throw Error(
        ErrorCode::failed_precondition,
        fmt::format("step {} is not among its residuals, which are of {} at most", step, end_));
  };
  auto* to = static_cast<std::byte*>(values);
  for (std::int64_t k = first; k < first + count;) {
    const Part* const part = part_of(k);
    if (!part) refuse(k);
    const std::int64_t at = k - part->begin;
    const std::int64_t n = std::min(first + count - k, part->room.entries - at);
    for (std::int64_t i = 0; i < n; ++i)
      if (!part->written[size_of(at + i)]) refuse(k + i);
    const std::size_t bytes = size_of(n) * bytes_;
    std::memcpy(to, part->room.data.get() + size_of(at) * bytes_, bytes);
    to += bytes;
    k += n;
  }
}

static std::atomic<std::uint64_t> stores_of_runs{0};

double ResidualStores::add(std::unique_ptr<ResidualStore> store) {
  const std::uint64_t number = stores_of_runs.fetch_add(1) % first_loose;
  const std::scoped_lock lock(guard_);
  stores_[number] = std::move(store);
  return handle_of(number);
}

std::shared_ptr<ResidualBudget> ResidualStores::new_budget(const ResidualOptions& options) {
  return std::make_shared<ResidualBudget>(options, files_);
}

ResidualStore* ResidualStores::find(double handle) {
  const std::optional<std::uint64_t> number = number_of(handle);
  if (!number) return nullptr;
  const std::scoped_lock lock(guard_);
  const auto found = stores_.find(*number);
  return found == stores_.end() ? nullptr : found->second.get();
}

void ResidualStores::remove(double handle) {
  const std::optional<std::uint64_t> number = number_of(handle);
  if (!number) return;
  decltype(stores_)::node_type gone;  // after the lock
  const std::scoped_lock lock(guard_);
  gone = stores_.extract(*number);
}

namespace {

/// The run that the thread is inside of.
ResidualStores& stores_of_run() { return nesting()->run->residual_stores(); }

/// Returns the store. Its steps are to have so many bytes: a program from a file may mix stores.
ResidualStore& found(ResidualStores& stores, double handle, std::size_t bytes) {
  ResidualStore* const store = stores.find(handle);
  if (!store)
    throw Error(
        ErrorCode::failed_precondition,
        "its residuals are not there. They live as long as the run that made them: put all of the "
        "derivative into one jit. And a loop that is differentiated twice may be pulled back once "
        "only: of the sum of two pullbacks there is no second derivative");
  if (store->bytes() == bytes) return *store;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("its residuals have steps of {} bytes, not of {}", store->bytes(), bytes));
}

std::span<const double> handles_at(const detail::Firing& f, std::size_t operand) {
  return {static_cast<const double*>(f.data[operand]), size_of(f.leaves[operand].size)};
}

/// The handles of a leaf, and how much of it each of them stands for.
struct Leaf {
  std::span<const double> handles;
  std::byte* data;
  std::size_t bytes;
};
Leaf leaf_of(const detail::Firing& f, std::size_t handle, std::size_t leaf) {
  const std::span<const double> handles = handles_at(f, handle);
  const detail::LeafLayout& layout = f.leaves[leaf];
  const std::size_t bytes = size_of(layout.size) * byte_width(layout.dtype);
  return {handles, static_cast<std::byte*>(f.data[leaf]),
          handles.empty() ? 0 : bytes / handles.size()};
}
/// The steps that an invocation is about: operand 0, how many of them in the next one; and the room
/// that a leaf has for steps.
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
  if (out.first < 0 || out.count < 0 || out.count > out.room ||
      out.first >= std::numeric_limits<std::int64_t>::max() - out.count)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} steps from step {} on have no place in a block of {}", out.count,
                            out.first, out.room));
  return out;
}

/// Returns what the stores of the loop share: any that there is has it, else it is made.
std::shared_ptr<ResidualBudget> budget_of_loop(const detail::Firing& f, const Steps& steps,
                                               ResidualStores& stores) {
  for (std::size_t i = 0; i < f.results; ++i)
    for (const double handle : handles_at(f, steps.operands + i)) {
      const ResidualStore* const store = handle != 0 ? stores.find(handle) : nullptr;
      if (store) return store->budget();
    }
  return stores.new_budget(residual_options(*f.declared->attributes));
}

/// Operands: steps, handles, leaves. Results: handles, where those that were 0 have a store now.
void write(void*, const detail::Firing& f) {
  const Steps steps = steps_of(f);
  ResidualStores& stores = stores_of_run();
  std::shared_ptr<ResidualBudget> budget;
  struct Written {
    ResidualStore* to;
    const std::byte* from;
  };
  std::vector<Written> all;
  for (std::size_t i = 0; i < f.results; ++i) {
    const Leaf leaf = leaf_of(f, steps.operands + i, steps.operands + f.results + i);
    const std::size_t bytes = leaf.bytes / size_of(steps.room);
    auto* const out = static_cast<double*>(f.data[f.operands + i]);
    for (std::size_t j = 0; j < leaf.handles.size(); ++j) {
      out[j] = leaf.handles[j];
      if (out[j] == 0) {
        if (!budget) budget = budget_of_loop(f, steps, stores);
        out[j] = stores.add(std::make_unique<ResidualStore>(bytes, budget));
      }
      all.push_back({&found(stores, out[j], bytes), leaf.data + j * leaf.bytes});
    }
  }
  // Where memory is limited a step goes in all stores before the next one does, so that none takes
  // what another will need for the same steps.
  std::int64_t at_once = steps.count;
  if (f.declared->attributes->has("memory")) at_once = 1;
  for (std::int64_t k = 0; k < steps.count; k += at_once)
    for (const Written& w : all)
      w.to->write(steps.first + k, at_once, w.from + size_of(k) * w.to->bytes());
}

/// Operands: steps, handles. Results: leaves, of zeros where a handle is 0 and behind the steps.
void read(void*, const detail::Firing& f) {
  ResidualStores& stores = stores_of_run();
  const Steps steps = steps_of(f);
  for (std::size_t i = 0; i < f.results; ++i) {
    const Leaf leaf = leaf_of(f, steps.operands + i, f.operands + i);
    const std::size_t one = leaf.bytes / size_of(steps.room), bytes = one * size_of(steps.count);
    for (std::size_t j = 0; j < leaf.handles.size(); ++j) {
      std::byte* const to = leaf.data + j * leaf.bytes;
      std::size_t there = 0;
      if (leaf.handles[j] != 0) {
        found(stores, leaf.handles[j], one).read(steps.first, steps.count, to);
        there = bytes;
      }
      std::memset(to + there, 0, leaf.bytes - there);
    }
  }
}

/// Operands: anything, handles.
void free_residuals(void*, const detail::Firing& f) {
  ResidualStores& stores = stores_of_run();
  for (std::size_t i = 1; i < f.operands; ++i)
    for (const double handle : handles_at(f, i))
      if (handle != 0) stores.remove(handle);
}

std::shared_ptr<const detail::HostFunction> function(void (*invoke)(void*, const detail::Firing&)) {
  using Kind = detail::Parameter::Kind;
  auto out = std::make_shared<detail::HostFunction>();
  out->parameters = {{Kind::all_operands, DType::token}, {Kind::all_results, DType::token}};
  out->invoke = invoke;
  return out;
}

}  // namespace

bool is_of_residuals(const detail::HostFunction& f) {
  return f.invoke == write || f.invoke == read || f.invoke == free_residuals;
}

std::shared_ptr<const detail::HostFunction> residual_function(std::string_view name) {
  using Functions = std::map<std::string_view, std::shared_ptr<const detail::HostFunction>>;
  // Never destroyed: runs may end after main.
  static const auto* const all = new Functions{{residual_write, function(write)},
                                               {residual_read, function(read)},
                                               {residual_free, function(free_residuals)}};
  const auto found = all->find(name);
  return found == all->end() ? nullptr : found->second;
}

}  // namespace postern::internal::host
