// What it costs to run programs on a platform, and what equations are thought to cost there: by
// these programs are cut.
#pragma once
#include <postern/devices.h>

#include "core/primitive.h"
#include "run/backend.h"

namespace postern::internal::run {

/// Returns the platform's, measured by the first who asks.
const Costs& costs_of(const Backend& backend);

/// Returns seconds that the equation takes, and all of a program: its operations, or the bytes that
/// they read and write, whichever takes longer. Each for itself, though XLA makes one loop of many;
/// loops of unknown length as if of one step.
double seconds_of(const Program& program, const Equation& equation, const Costs& costs);
double seconds_of(const Program& program, const Costs& costs);

/// Returns "12 us".
std::string time_text(double seconds);

/// While it lives, all platforms cost that: for tests.
class CostsScope {
 public:
  explicit CostsScope(const Costs& costs);
  ~CostsScope();
  CostsScope(const CostsScope&) = delete;

 private:
  const Costs* const outer_;
  const Costs costs_;
};

}  // namespace postern::internal::run
