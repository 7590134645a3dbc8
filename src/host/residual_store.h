// ResidualStore: what a loop's steps have left for its derivative. ResidualStores: those of a run.
//
// A handle names a store: a number that is a store's alone, also among those of other runs. A sum
// of handles is none, because derivatives are summed where nobody knows what they are.
#pragma once
#include <postern/host.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "control/control.h"
#include "core/mutex.h"
#include "core/weak_cache.h"
#include "host/residual_file.h"

namespace postern::internal::host {

/// The files that are in use, by what their names begin with.
using ResidualFiles = WeakCache<std::string, ResidualFile>;

/// What the stores of one execution of a loop share: how much they may keep, and the file for what
/// is over it (null: that is an error).
class ResidualBudget {
 public:
  ResidualBudget(const ResidualOptions& options, ResidualFiles& files);
  ResidualBudget(const ResidualBudget&) = delete;

  /// Gives memory back to the budget that it is of, which outlives it.
  struct GiveBack {
    ResidualBudget* budget = nullptr;
    std::size_t size = 0;
    bool in_file = false;
    void operator()(std::byte* data) const noexcept { budget->give_back(data, *this); }
  };
  struct Room {
    std::unique_ptr<std::byte, GiveBack> data;
    std::int64_t entries = 0;
  };
  /// Returns memory for as many entries of `bytes` each as fit, `wanted` at most. Where none does,
  /// the error says after how many steps.
  Room room(std::size_t bytes, std::int64_t wanted, std::int64_t steps);

 private:
  void give_back(std::byte* data, const GiveBack& how) noexcept;
  Room room_in_file(std::size_t bytes, std::int64_t wanted, std::int64_t steps);
  std::string after(std::int64_t steps) const;

  const ResidualOptions options_;
  std::shared_ptr<ResidualFile> file_;
  Mutex guard_;
  std::int64_t used_ = 0;  // bytes of memory
};

class ResidualStore {
 public:
  ResidualStore(std::size_t bytes, std::shared_ptr<ResidualBudget> budget)
      : bytes_(bytes), budget_(std::move(budget)) {}
  ResidualStore(const ResidualStore&) = delete;

  /// Writes the values of `count` steps from `first` on, one after another.
  void write(std::int64_t first, std::int64_t count, const void* values);
  /// Throws Error(failed_precondition) for a step that nobody has written.
  void read(std::int64_t first, std::int64_t count, void* values) const;
  const std::shared_ptr<ResidualBudget>& budget() const { return budget_; }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Part {
    std::int64_t begin = 0;
    ResidualBudget::Room room;
    std::vector<bool> written = {};
  };
  Part* room_for(std::int64_t k);
  const Part* part_of(std::int64_t k) const;

  const std::size_t bytes_;
  const std::shared_ptr<ResidualBudget> budget_;
  std::vector<Part> parts_;
  std::int64_t end_ = 0, steps_ = 0;            // there is room for, and are in it
  mutable std::atomic<std::size_t> recent_{0};  // two derivatives may read at the same time
};

/// The stores of a run. Each device of the run writes and reads its own; they share the list.
class ResidualStores {
 public:
  /// Adds a store, and returns its handle.
  double add(std::unique_ptr<ResidualStore> store);
  /// Returns null for a handle of another run, or of a store that is gone.
  ResidualStore* find(double handle);
  void remove(double handle);
  /// Makes what the stores of an execution of a loop share.
  std::shared_ptr<ResidualBudget> new_budget(const ResidualOptions& options);

 private:
  ResidualFiles files_;
  Mutex guard_;
  std::unordered_map<std::uint64_t, std::unique_ptr<ResidualStore>> stores_;  // by handle
};

/// Returns the handle of a store that belongs to no run.
double loose_handle(std::uint64_t number);

/// Returns whether this is one of the functions that write and read stores: it waits for nothing,
/// and what it is given means nothing in another run.
bool is_of_residuals(const detail::HostFunction& function);

/// Returns those of site/residual_store.h, by name; null for all others.
std::shared_ptr<const detail::HostFunction> residual_function(std::string_view name);

}  // namespace postern::internal::host
