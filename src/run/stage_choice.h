// Which functions that are called on other devices are stages between a program's own, where they
// could be called from inside of it too.
#pragma once
#include <map>
#include <string>

#include "core/program.h"

namespace postern::internal::run {

struct StageChoices {
  struct Choice {
    bool stage;
    std::string reason;
  };
  std::map<const Params*, Choice> of;  // by the parameters of the call
  std::vector<const Params*> order;

  bool any_stage() const;
  /// Returns whether it is such a stage, or has one inside.
  bool is_stage(const Equation& equation) const;
  /// Says why; empty for what is no such call.
  std::string reason(const Equation& equation) const;
};

std::vector<ValueId> results_of(const Equation& equation);

/// Returns what was chosen, with reasons, in the order of the program.
std::string reasons(const StageChoices& choices);

/// Returns whether functions are called on other devices in it, outside of such functions.
bool calls_devices(const Program& program);
/// Returns the program with those that are called on this device, where it runs, as a part of it.
ProgramPtr with_own_calls_inlined(const ProgramPtr& program, int device);

/// Chooses for a program that runs on this device, by what the platforms cost (run/costs). None is
/// a stage where the program has calls that could not stay inside of the stages.
StageChoices choose_stages(const Program& program, int device);

}  // namespace postern::internal::run
