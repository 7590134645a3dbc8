// Programs that XLA cuts for several devices: compiled for each set of lanes that they run on.
#pragma once
#include <map>
#include <memory>

#include "core/mutex.h"
#include "lower/lowering.h"
#include "pjrt/executable.h"
#include "run/runtime.h"

namespace postern::internal::run {

class PartitionedCode {
 public:
  /// Compiles for the devices themselves. Throws CompileError.
  explicit PartitionedCode(const Module& module);
  const pjrt::Executable& main() const { return main_; }
  const pjrt::Executable& on(const Lanes& lanes);
  /// Returns them as the module asks, or as XLA chose.
  const std::vector<Sharding>& result_shardings() const { return results_; }

 private:
  std::string text_;
  std::vector<bool> free_;  // by result: XLA chooses its sharding
  pjrt::Executable main_;
  std::vector<Sharding> results_;
  Mutex guard_;
  std::map<int, pjrt::Executable> spare_;  // by first lane
};

/// Returns how XLA spreads the results of this module when it chooses.
std::vector<Sharding> chosen_shardings(const Module& module);

/// Returns the code of this module, from memory, from disk, or compiled now.
std::shared_ptr<PartitionedCode> load_partitioned(const Module& module);

}  // namespace postern::internal::run
