// What a jitted function has for each kind of arguments that it was called with: see jit.cc.
#pragma once
#include <postern/jit.h>

#include <atomic>

#include "block/overrides.h"
#include "core/once.h"
#include "core/value.h"
#include "run/array.h"
#include "run/compiled.h"
#include "run/interpreted.h"
#include "run/sharded.h"
#include "run/stages.h"
#include "run/tracing.h"

namespace postern::detail {

using namespace internal;

struct Entry : std::enable_shared_from_this<Entry> {
  explicit Entry(std::shared_ptr<const JitOptions> o) : options(std::move(o)), staged(*options) {}

  // What it is for.
  const std::type_info* pack = nullptr;  // C++ types of the arguments
  std::vector<Type> types;
  std::string structure;
  std::vector<bool> donated;
  std::vector<std::optional<Sharding>>
      shardings;  // of arguments that lie on several devices; empty when none does
  std::vector<std::optional<Sharding>> arguments_on;
  const std::shared_ptr<const JitOptions> options;
  int device = 0;  // one of the platform of its arguments
  int home = 0;    // where they are, of a program that calls devices or inspects shardings

  // Made once, by the first thread that asks; the others wait. Of what is traced see Tracing.
  Tracing tracing;
  Once lowered_once, compiled_once, staged_once, sites_once, mode_once;
  ProgramPtr program;
  std::vector<HookInfo> hooks;
  Tensors captures;
  std::shared_ptr<const void> like;
  std::shared_ptr<const run::ProgramModule> module;
  std::shared_ptr<const run::CompiledProgram> compiled;
  run::StagedPrograms staged;
  const run::StagedProgram* stages = nullptr;          // where the program runs so
  std::shared_ptr<const run::InterpretedSites> sites;  // of a program that the host drives
  std::atomic<bool> ready{false};
  std::atomic<bool> has_blocks{false};
  // The one device that it is for, of which it has in it what it calls there; -1: for any.
  std::atomic<int> only_on{-1};
  Mode mode = Mode::automatic;                           // as it was chosen
  const std::uint64_t overrides = blocks::generation();  // those that its blocks were decided by

  /// As one XLA program. `compile` makes that of other modes too, which only show it.
  bool runs_whole() const { return options->mode != Mode::evaluate && !stages; }

  bool lies_as_before(const Tensor& leaf, std::size_t i) const {  // on several devices, or none
    const Sharding *now = run::sharding_of(leaf), *before = nullptr;
    if (!shardings.empty() && shardings[i]) before = &*shardings[i];
    if (now && before) return *now == *before;
    return now == before;
  }

  /// Where arguments lie, or the options say that they shall, or results.
  static int device_of(const JitOptions& o, const Key& key) {
    for (const auto* list : {&o.in_shardings, &o.out_shardings})
      if (!list->empty()) return list->front().mesh().devices().front();
    return run::device_for(key.leaves());
  }

  bool fits_home(const Key& key) const {  // see only_on
    const int only = only_on.load(std::memory_order_relaxed);
    return only < 0 || device_of(*options, key) == only;
  }

  bool fits(const Key& key) const {
    if (run::several_platforms.load(std::memory_order_relaxed) &&
        !run::Runtime::get().backend_of(device).has(device_of(*options, key))) [[unlikely]]
      return false;
    if (overrides != blocks::generation() && has_blocks.load(std::memory_order_relaxed))
      return false;
    const auto leaves = key.leaves();
    if (key.pack() != *pack || leaves.size() != types.size() || key.structure() != structure)
      return false;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const Value* v = Access::value(*leaves[i]);
      if (!v || v->type != types[i]) return false;
      if ((v->kind == Value::Kind::sharded || !shardings.empty()) && !lies_as_before(*leaves[i], i))
          [[unlikely]]
        return false;
    }
    return fits_home(key);
  }
};

}  // namespace postern::detail
