// InterpretedRun: an execution whose host functions are entered between its operations, by the
// threads that drive it: Mode::staged, Mode::evaluate, and operations at once.
#pragma once
#include <functional>
#include <map>

#include "core/primitive.h"
#include "core/scoped.h"
#include "host/registry.h"
#include "host/run_state.h"

namespace postern::internal::run {

class CompiledProgram;
class StagedPrograms;

/// The sites of a program and of those inside it.
struct InterpretedSites {
  explicit InterpretedSites(ProgramPtr program);
  explicit InterpretedSites(const SitePtr& site);

  std::vector<SitePtr> specs() const;
  /// Returns what tells programs apart, the same in every process: of which a recording is.
  std::string text() const;

  std::vector<host::HostSite> list;
  std::map<const SiteSpec*, std::size_t> index;
  bool named = false;  // some are found by name
  bool of_processes = false;
  ProgramPtr program;  // null: of one site
};

class InterpretedRun : public host::RunState, public std::enable_shared_from_this<InterpretedRun> {
 public:
  /// Takes a family. `family`: what the programs inside it run as; null: operation by operation.
  explicit InterpretedRun(std::shared_ptr<const InterpretedSites> of,
                          StagedPrograms* family = nullptr);

  /// Runs `body`, which may enter the run's sites.
  Tensors interpret(const std::function<Tensors()>& body);
  /// Throws when the run has failed, was asked to end, or is late.
  void check_going();
  /// Runs a compiled program that calls back as a part of this one, to its end.
  void run_part(const CompiledProgram& program, std::span<const Tensor* const> arguments,
                std::span<Tensor> results);

  std::shared_ptr<RunState> self() override { return weak_from_this().lock(); }
  StagedPrograms* family() const { return family_; }

  /// Returns the run that this thread drives, if any.
  static InterpretedRun* current();
  /// The thread drives that run (null: none) for a scope.
  class Scope : Scoped<InterpretedRun*> {
   public:
    explicit Scope(InterpretedRun* run);
  };

 private:
  friend Tensors invoke_now(const Primitive& primitive, const ParamsPtr& params,
                            TensorSpan operands);
  void begin();
  /// Begins a run of this site alone: as a part of `whole`, or (null) outside of programs.
  static std::shared_ptr<InterpretedRun> begin_alone(const SitePtr& spec, InterpretedRun* whole);
  const host::HostSite* find(const SiteSpec& site) const;

  std::shared_ptr<const InterpretedSites> sites_;
  StagedPrograms* const family_;
};

/// Fires a call or tap on concrete tensors: its function runs here and now, on this thread, with
/// the checks of the compiled path.
Tensors invoke_now(const Primitive& primitive, const ParamsPtr& params, TensorSpan operands);

}  // namespace postern::internal::run
