// Graphs of calls that wait for their derivative.
#pragma once
#include <ATen/core/MT19937RNGEngine.h>
#include <postern/torch.h>

#include <chrono>
#include <map>
#include <mutex>
#include <span>

#include "derive.h"

namespace postern::torch {

/// Where torch's own random numbers of the CPU go on from.
struct RandomState {
  at::mt19937 engine;
  c10::optional<float> next_float;
  c10::optional<double> next_double;
  bool operator==(const RandomState& other) const;
};
RandomState random_state();
void set_random_state(const RandomState& state);

/// A run of a function that may draw from torch's generator, which is the process's: while one has
/// locked it, such runs of other threads wait.
class Drawing {
 public:
  Drawing();
  ~Drawing();
  Drawing(const Drawing&) = delete;
  /// False: `limit` has passed, or `stop` says so.
  bool lock(std::chrono::milliseconds limit, const StopToken& stop);
  bool locked() const { return lock_.owns_lock(); }
  /// Whether no other run can have drawn since this one began.
  bool alone() const;

 private:
  Drawing* const around_;
  const bool first_;
  const std::uint64_t begun_;
  std::unique_lock<std::recursive_timed_mutex> lock_;
};
/// Back to the state from which this thread's run went on, if it is alone.
void rewind_random_state(const RandomState& state);

/// Where the random numbers of a run began. Not `sure`: others may have drawn in between. `size`:
/// of the run's batch.
struct Began {
  RandomState state;
  bool sure;
  std::int64_t size = 1;
};

/// What a call leaves for its derivative. The operands' memory is the program's and may move, so a
/// graph is given it anew when it is used.
struct Graph {
  TorchTensors inputs;                 // leaves
  std::vector<c10::Storage> storages;  // over the operands' memory; empty: a copy
  TorchTensors bound;                  // what was put into the module's parameters
  TorchTensors results;                // that can be differentiated
  std::vector<std::int64_t> batch;
};

/// Of one call in the source, which its tickets tell: under a batched condition the elements of one
/// operand have tickets of several.
class Kept {
 public:
  /// Whether the function drew random numbers.
  static bool drew(std::int64_t ticket) { return ticket % 2 != 0; }
  explicit Kept(std::size_t most);
  /// The first ticket of this call; 0 where there is none, as no element's derivative is wanted.
  std::int64_t own(std::span<const std::int64_t> tickets) const;

  std::int64_t add(Graph graph, const std::optional<Began>& began);
  /// The graph, for this caller alone; none when it is no longer kept, or in use.
  std::optional<Graph> take(std::int64_t ticket);
  /// Keeps it until another is used, for who asks again.
  void give_back(std::int64_t ticket, Graph graph);
  /// From where the function's random numbers came; none when it drew none. Throws when that is no
  /// longer known.
  std::optional<Began> began(std::int64_t ticket) const;

 private:
  static constexpr int serial_bits = 40;

  const std::size_t most_;
  const std::int64_t number_;
  mutable std::mutex mutex_;
  std::int64_t next_;
  std::map<std::int64_t, Graph> graphs_;  // not yet used
  std::map<std::int64_t, Began> random_;
  std::int64_t last_ = 0;
  std::optional<Graph> used_;
};

}  // namespace postern::torch
