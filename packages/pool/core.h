// A pool's elements: who steps which of them when, and what becomes of it.
//
// Either a call steps all of them (step, reset), or threads of the executor step those that were
// sent. Whoever saves finds neither at work: it keeps new steps waiting for as long as it copies.
#pragma once
#include <postern/pool.h>

#include <atomic>
#include <deque>
#include <optional>

#include "deal.h"
#include "spi.h"

namespace postern::internal::pools {

class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(std::unique_ptr<detail::Simulators> simulators, const SimulatorOptions& options);

  /// Where a call's results go, and who may stop it.
  struct Results {
    const CallInfo& info;
    std::byte* observations;
    std::byte* rewards;
    bool *terminated, *truncated;
  };
  void step(const std::byte* actions, const Results& out);
  void reset(const Results& out);
  void send(const CallInfo& info, View<const std::int32_t> elements, const std::byte* actions);
  void receive(std::int64_t k, std::int32_t* elements, const Results& out);

  /// Gives the state of all elements as bytes, when none is being stepped; takes it up again.
  std::string save();
  void load(std::string_view text);
  /// Keeps it in checkpoints, for as long as the pool is open. Throws as register_state does.
  void keep(const Place& place);
  void close() noexcept;

  const SimulatorOptions options;
  const std::string label;  // for errors: pool "walk"
  const std::int64_t size;
  const Type action, observation;  // of one element

 private:
  enum class Where : std::uint8_t { resting, sent, in_hand, arrived };
  struct Element {
    std::uint64_t episode = 0;  // how many have begun
    std::int64_t steps = 0;     // of this one
    bool begins = true;         // with the next step
    Where where = Where::resting;
    Stepped stepped = {};  // of what has arrived
    std::exception_ptr failure = {};
  };
  /// What threads have made of all elements.
  struct Batch {
    const std::byte* actions;  // null: all begin anew
    const Results& out;
    std::int64_t lowest;
    std::size_t failed = 0;
    std::exception_ptr failure = {};
    std::atomic<bool> left_out{false};  // some, since the run is to stop
  };
  class Stepping;
  class Saving;
  /// What a checkpoint has beside the simulators: the elements, and those that were sent.
  struct Saved {
    std::vector<Element> elements;
    std::deque<std::int32_t> waiting, ready;
    std::vector<std::byte> actions, observations;
  };

  Stepped advance(std::int64_t e, const std::byte* action, std::byte* observation);
  /// Returns what it threw, or null.
  std::exception_ptr try_advance(std::int64_t e, const std::byte* action, std::byte* observation,
                                 Stepped& stepped) noexcept;
  void step_all(Batch& batch);
  void step_one(Batch& batch, std::int64_t e) noexcept;
  void put(const Results& out, std::int64_t at, const Stepped& stepped) const;
  void forget_waiting();
  [[noreturn]] void fail(std::int64_t e, const std::exception_ptr& error, std::size_t count) const;

  Saved read(std::istream& in, std::vector<std::string>& simulators) const;
  void refuse_closed() const;
  /// Waits under the lock. Throws Error(cancelled) where the run is to stop before.
  void wait(std::unique_lock<Mutex>& lock, const detail::StopState* run,
            const std::function<bool()>& done);
  /// Has threads step what is waiting.
  void employ();
  void work() noexcept;
  std::int64_t under_way() const;
  void forget_sent(std::vector<std::exception_ptr>& gone);

  const std::unique_ptr<detail::Simulators> simulators_;
  const std::size_t action_bytes_, observation_bytes_;
  std::vector<Element> elements_;
  Deal deal_;
  std::chrono::nanoseconds last_work_ = std::chrono::nanoseconds::max();  // of the last batch

  Mutex guard_;
  StopCondition changed_;
  bool stepping_ = false, closed_ = false;
  int saving_ = 0;
  std::optional<RegisteredState> kept_;
  // Of what was sent: the actions, and the observations of what has arrived, by element.
  std::vector<std::byte> sent_actions_, arrived_;
  std::deque<std::int32_t> waiting_, ready_;
  std::int64_t in_hand_ = 0, workers_ = 0;
};

}  // namespace postern::internal::pools
