// The graphs that calls keep, by their tickets, and where torch's random numbers began.
#include "kept.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace postern::torch {

namespace {

constexpr std::size_t random_states = 4096;  // of 2.5 KB

at::CPUGeneratorImpl& generator() {
  return *static_cast<at::CPUGeneratorImpl*>(
      at::detail::getDefaultCPUGenerator().unsafeGetGeneratorImpl());
}

std::recursive_timed_mutex drawing;
std::atomic<int> drawings{0};
std::atomic<std::uint64_t> begun{0};
std::atomic<std::int64_t> calls{0};
thread_local Drawing* innermost = nullptr;

}  // namespace

Drawing::Drawing()
    : around_(std::exchange(innermost, this)),
      first_(drawings++ == 0),
      begun_(++begun),
      lock_(drawing, std::defer_lock) {}

Drawing::~Drawing() {
  --drawings;
  innermost = around_;
}

bool Drawing::lock(std::chrono::milliseconds limit, const StopToken& stop) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!lock_.try_lock_for(std::chrono::milliseconds(20)))
    if (stop.stop_requested() || std::chrono::steady_clock::now() >= end) return false;
  return true;
}

bool Drawing::alone() const { return locked() || (first_ && begun == begun_); }

void rewind_random_state(const RandomState& state) {
  if (innermost && innermost->alone()) set_random_state(state);
}

bool RandomState::operator==(const RandomState& other) const {
  const at::mt19937_data_pod a = engine.data(), b = other.engine.data();
  return a.left_ == b.left_ && a.next_ == b.next_ && a.seed_ == b.seed_ && a.state_ == b.state_ &&
         next_float == other.next_float && next_double == other.next_double;
}

RandomState random_state() {
  at::CPUGeneratorImpl& from = generator();
  const std::scoped_lock lock(from.mutex_);
  return {from.engine(), from.next_float_normal_sample(), from.next_double_normal_sample()};
}

void set_random_state(const RandomState& state) {
  at::CPUGeneratorImpl& to = generator();
  const std::scoped_lock lock(to.mutex_);
  to.set_engine(state.engine);
  to.set_next_float_normal_sample(state.next_float);
  to.set_next_double_normal_sample(state.next_double);
}

Kept::Kept(std::size_t most) : most_(most), number_(++calls), next_(number_ << serial_bits) {}

std::int64_t Kept::own(std::span<const std::int64_t> tickets) const {
  const auto mine = [&](std::int64_t t) { return t >> serial_bits == number_; };
  const auto found = std::find_if(tickets.begin(), tickets.end(), mine);
  return found == tickets.end() ? 0 : *found;
}

std::int64_t Kept::add(Graph graph, const std::optional<Began>& began) {
  std::optional<Graph> dropped;  // freed without the lock
  const std::scoped_lock lock(mutex_);
  const std::int64_t ticket = next_ + (began ? 1 : 0);
  next_ += 2;
  if (began) random_.emplace(ticket, *began);
  if (random_.size() > std::max(random_states, most_)) random_.erase(random_.begin());
  if (most_ == 0) return ticket;
  graphs_.emplace(ticket, std::move(graph));
  if (graphs_.size() > most_) {
    dropped = std::move(graphs_.begin()->second);
    graphs_.erase(graphs_.begin());
  }
  return ticket;
}

std::optional<Graph> Kept::take(std::int64_t ticket) {
  const std::scoped_lock lock(mutex_);
  if (used_ && last_ == ticket) return std::exchange(used_, std::nullopt);
  const auto found = graphs_.find(ticket);
  if (found == graphs_.end()) return {};
  std::optional<Graph> graph = std::move(found->second);
  graphs_.erase(found);
  return graph;
}

void Kept::give_back(std::int64_t ticket, Graph graph) {
  std::optional<Graph> before = std::move(graph);
  const std::scoped_lock lock(mutex_);
  used_.swap(before);
  last_ = ticket;
}

std::optional<Began> Kept::began(std::int64_t ticket) const {
  if (!drew(ticket)) return {};
  const std::scoped_lock lock(mutex_);
  const auto found = random_.find(ticket);
  if (found == random_.end())
    throw Error(ErrorCode::failed_precondition,
                "the function drew random numbers when it was called, and where they began is no "
                "longer kept, so its derivative would be that of another function; raise "
                "Options::kept");
  return found->second;
}

}  // namespace postern::torch
