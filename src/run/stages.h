// StagedProgram: a program cut at its calls into XLA programs that run one after another, with the
// host functions between them.
#pragma once
#include <postern/jit.h>

#include <map>

#include "core/mutex.h"
#include "core/once.h"
#include "run/compiled.h"
#include "run/stage_choice.h"
#include "transform/walk.h"

namespace postern::internal::run {

class StagedProgram;

/// The staged forms of a program and of the programs inside it, each made once.
class StagedPrograms {
 public:
  explicit StagedPrograms(const JitOptions& options) : options_(options) {}
  const StagedProgram& of(const ProgramPtr& program);
  const JitOptions& options() const { return options_; }
  /// Has only calls of devices be cut that were chosen so. Before the first program.
  void choose(StageChoices choices) { choices_ = std::move(choices); }
  const std::optional<StageChoices>& choices() const { return choices_; }

 private:
  const JitOptions& options_;
  std::optional<StageChoices> choices_;  // none: all calls are between programs
  Mutex guard_;
  std::map<ProgramPtr, std::unique_ptr<StagedProgram>> programs_;
};

/// Each equation runs as early as its operands allow, so the XLA programs are as few as the longest
/// chain of calls, and of cuts that the user asked for, needs.
class StagedProgram {
 public:
  StagedProgram(const Program& program, StagedPrograms& family);

  /// Compiles the XLA programs; without it the first run does. Throws CompileError.
  void compile() const;
  /// Runs the stages. Host functions run on the calling thread; those that do not depend on each
  /// other and are not ordered, at the same time on several.
  Tensors run(Tensors inputs) const;
  std::vector<StageInfo> stages() const;

 private:
  /// Equations that one XLA program does.
  struct Device {
    std::vector<std::size_t> equations;
    std::vector<ValueId> inputs, outputs;
  };
  struct Step {
    Device device;   // first, if it has equations
    int place = -1;  // where, if the user said so
    std::vector<std::pair<ValueId, std::size_t>>
        read_by;  // what later steps' XLA programs read of its own, if any has a place
    std::vector<std::vector<std::size_t>>
        host;  // then these, round after round; those of a round may run at once
    std::vector<ValueId> last_used;  // by this step
    std::string reason;              // of the XLA program
  };

  void cut();
  void part_what_runs_beside();
  std::optional<std::vector<std::size_t>> needed_by_host(const Step& step) const;
  std::vector<bool> read_outside_xla() const;
  std::string host_reason(const Equation& equation) const;
  bool on_host(const Equation& equation) const;
  void add_constants();
  Cut asked(const StageNode& node) const;
  Cut wanted_cut(const Equation& equation) const;
  void find_crossing();
  void place();
  StageInfo xla_stage(const Device& device, int place, const std::string& reason) const;
  StageInfo host_stage(const Equation& equation) const;
  class Values;
  std::shared_ptr<const CompiledProgram> compiled(std::size_t step) const;
  std::shared_ptr<const CompiledProgram> make(std::size_t step) const;
  void run_host(const Step& step, Env& values) const;
  std::vector<Type> types(const std::vector<ValueId>& values) const;

  Program program_;
  Reach reach_;
  std::vector<bool> constant_;  // by equation: without operands, so made wherever it is read
  StagedPrograms* family_;
  std::vector<Step> steps_;
  mutable std::vector<std::shared_ptr<const CompiledProgram>> compiled_;  // by step
  std::unique_ptr<Once[]> once_;                                          // for each of them
};

}  // namespace postern::internal::run
