// jit: looking up, tracing, compiling, running.
//
// A jit has an Entry for each kind of arguments that it was called with: their types, how they lie
// on devices, and the structure around them. What an Entry holds is made once and in this order, by
// the first thread that needs it: the traced program, and then either its module and its code, or
// its stages, or what the host needs to evaluate it. Once an Entry is `ready`, a call looks at the
// last one used, compares the arguments with it, and runs, without taking a lock. An Entry whose
// blocks were decided by overrides that have changed since fits nothing any more.
#include <postern/jit.h>
#include <postern/shard.h>
#include <algorithm>

#include <ostream>

#include "block/overrides.h"
#include "core/enum.h"
#include "core/fork.h"
#include "core/known_programs.h"
#include "core/mutex.h"
#include "platform/platform.h"
#include "run/entry.h"
#include "run/inspect.h"
#include "run/misses.h"
#include "run/start.h"
#include "shard/inspect_sharding.h"
#include "shard/shard_map.h"
#include "site/hook.h"
#include "trace/trace.h"
#include "transform/simplify.h"
#include "transform/walk.h"

namespace postern {
using namespace internal;

namespace detail {

class JitCore {
 public:
  JitCore(std::shared_ptr<const JitOptions> o, std::vector<HookBinding> l, const HookRules& r)
      : options(std::move(o)), listeners(std::move(l)), rules(r) {}

  Entry& entry(const Key& key, const Tracer& tracer) {
    if (Entry* e = last_.load(std::memory_order_acquire); e && e->fits(key)) [[likely]]
      return *e;
    std::scoped_lock lock(guard_);
    for (const auto& e : entries_)
      if (e->fits(key)) {
        last_.store(e.get(), std::memory_order_release);
        return *e;
      }
    entries_.push_back(make_entry(key, tracer));
    misses_.note(words(), key);
    return *entries_.back();
  }

  void remember(Entry& e) { last_.store(&e, std::memory_order_release); }

  const std::shared_ptr<const JitOptions> options;
  const std::vector<HookBinding> listeners;
  const HookRules rules;
  mutable std::atomic<bool> told_captures{false};

  /// Returns what errors and the log call the function.
  std::string words() const {
    return fmt::format("jit '{}' at {}", options->name, to_string(options->place));
  }

 private:
  /// Returns the path of leaf `i`: "argument 1.w".
  static std::string path_of(const Tracer& tracer, std::size_t i) {
    std::vector<std::string> paths;
    Outputs out;
    out.paths = &paths;
    tracer({}, out);
    return paths[i];
  }

  /// Makes the entry for such arguments: their types, structure and shardings, which are donated.
  std::shared_ptr<Entry> make_entry(const Key& key, const Tracer& tracer) const {
    PlaceScope here(options->place);
    auto e = std::make_shared<Entry>(options);
    for (const Tensor* t : key.leaves()) {
      if (!t->has_value())
        throw_type_error(fmt::format("jit: {} is an empty Tensor, one that was never given a value",
                                     path_of(tracer, e->types.size())));
      if (Access::traced(*t))
        throw_type_error(fmt::format(
            "jit: {}, of type {}, is traced, but nothing is being traced on this thread; its trace "
            "has ended or belongs to another thread",
            path_of(tracer, e->types.size()), to_string(t->type())));
      e->types.push_back(t->type());
    }
    if (run::several_platforms) e->device = Entry::device_of(*options, key);
    e->pack = &key.pack();
    e->structure = key.structure();
    const auto leaves = key.leaves();
    if (std::ranges::any_of(leaves,
                            [](const Tensor* t) { return run::sharding_of(*t) != nullptr; }))
      for (const Tensor* t : leaves) e->shardings.push_back(postern::sharding_of(*t));
    e->arguments_on = e->shardings;
    const auto ends = key.argument_ends();
    const auto first_leaf = [&](std::size_t argument) {
      return argument == 0 ? 0 : ends[argument - 1];
    };
    const auto& in_shardings = options->in_shardings;
    if (!in_shardings.empty()) {
      check(in_shardings.size() == ends.size(),
            "jit: in_shardings has {} entries, the function has {} arguments", in_shardings.size(),
            ends.size());
      e->arguments_on.resize(leaves.size());
      for (std::size_t argument = 0; argument < ends.size(); ++argument)
        for (std::size_t leaf = first_leaf(argument); leaf < ends[argument]; ++leaf)
          e->arguments_on[leaf] = in_shardings[argument];
    }
    for (const int argument : options->donate) {
      check(argument >= 0 && size_of(argument) < ends.size(),
            "jit: donate names argument {}, the function has {}", argument, ends.size());
      e->donated.resize(e->types.size(), false);
      const auto at = size_of(argument);
      for (std::size_t leaf = first_leaf(at); leaf < ends[at]; ++leaf) e->donated[leaf] = true;
    }
    return e;
  }

  std::atomic<Entry*> last_{nullptr};
  Mutex guard_;
  std::vector<std::shared_ptr<Entry>> entries_;
  run::Misses misses_;
};

/// Returns the mode's word for errors about one that was asked for.
static const char* word_of(Mode mode) {
  if (mode == Mode::compiled) return "compiled";
  if (mode == Mode::staged) return "staged";
  return "evaluate";
}

std::shared_ptr<JitCore> make_jit(JitOptions options) {
  PlaceScope at(options.place);
  check_enum("jit: Mode", options.mode, Mode::evaluate);
  const bool may_cut = options.mode == Mode::automatic || options.mode == Mode::staged;
  check(may_cut || (!options.cut && !options.stage_device),
        "jit: the options cut and stage_device are for Mode::staged; the mode is {}",
        word_of(options.mode));
  return std::make_shared<JitCore>(std::make_shared<const JitOptions>(std::move(options)),
                                   std::vector<HookBinding>(), HookRules());
}

std::shared_ptr<JitCore> with_hooks(const JitCore& core, std::vector<HookBinding> listeners,
                                    const HookRules& rules) {
  for (auto it = listeners.begin(); it != listeners.end(); ++it) {
    PlaceScope at(it->fn.place());
    check(std::find_if(std::next(it), listeners.end(),
                       [&](const HookBinding& b) { return b.name == it->name; }) == listeners.end(),
          "with_hooks: two listeners are given for hook '{}'", it->name);
  }
  for (const HookBinding& earlier : core.listeners)
    if (std::ranges::find(listeners, earlier.name, &HookBinding::name) == listeners.end())
      listeners.push_back(earlier);
  return std::make_shared<JitCore>(core.options, std::move(listeners), rules);
}

const std::vector<HookInfo>& hooks_of(const Entry& e) { return e.hooks; }

NestedHooks::NestedHooks(const JitCore& core) : core_(core) {
  if (!core.listeners.empty() || core.options->live_hooks)
    scope_ = std::make_unique<HookScope>(core.listeners, false, core.options->live_hooks);
}
NestedHooks::~NestedHooks() = default;
void NestedHooks::check_known() const {
  if (scope_) scope_->check_known(core_.rules);
}

bool tracing() { return Trace::current() != nullptr; }

namespace {

struct Traced {
  ProgramPtr program;
  std::vector<HookInfo> hooks;
  Tensors captures;
  std::shared_ptr<const void> like;
  bool has_blocks, stays_home;  // stays: it calls devices, so that it is for this one alone
  int home;                     // as Entry has it
};

Traced trace_for(const Entry& e, const JitCore& core, const Key& key, const Tracer& tracer) {
  Outputs out;
  const std::uint64_t blocks_before = blocks::met();
  for (const Type& t : e.types) check_type(t);
  HookScope hooks(core.listeners, true, core.options->live_hooks);
  Closed closed = trace_program("jit", e.types, [&](TensorSpan leaves) {
    tracer(Tensors(leaves.begin(), leaves.end()), out);
    return out.leaves;
  });
  hooks.check_known(core.rules);
  Program named = *closed.program;
  named.name = e.options->name;
  named.captures = closed.captures.size();
  ProgramPtr program = simplify(named);
  const bool stays_home = run::calls_devices(*program);
  int home = e.device;
  if (stays_home || uses(*program, inspect_sharding_p)) home = Entry::device_of(*e.options, key);
  if (stays_home) program = simplify(*run::with_own_calls_inlined(program, home));
  PlaceScope at(e.options->place);
  check(!out.nothing || !program->equations.empty() || !hooks.met().empty(),
        "jit: the function returns nothing, and has no calls, taps and prints: is a `return` "
        "missing?");
  return {.program = std::move(program),
          .hooks = hooks.met(),
          .captures = std::move(closed.captures),
          .like = std::move(out.like),
          .has_blocks = blocks::met() != blocks_before,
          .stays_home = stays_home,
          .home = home};
}

void trace_entry(Entry& e, const JitCore& core, const Key& key, const Tracer& tracer) {
  e.tracing(
      e.options->name, [&] { return trace_for(e, core, key, tracer); },
      [&](Traced made) {
        e.program = std::move(made.program);
        e.hooks = std::move(made.hooks);
        e.captures = std::move(made.captures);
        e.like = std::move(made.like);
        e.has_blocks = made.has_blocks;
        e.home = made.home;
        if (made.stays_home) e.only_on = made.home;
        run::tell_captures(core.words(), e.captures, core.told_captures);
      });
}

run::Lowerable lowerable_of(const Entry& e) {
  PlaceScope at(e.options->place);
  const std::vector<Sharding>& out_shardings = e.options->out_shardings;
  const std::size_t given = out_shardings.size(), results = e.program->outputs.size();
  check(given <= 1 || given == results,
        "jit: out_shardings has {} entries, the function has {} result leaves", given, results);
  std::vector<std::optional<Sharding>> results_on;
  for (std::size_t i = 0; i < results && given > 0; ++i) {
    results_on.emplace_back(out_shardings[std::min(i, given - 1)]);        // one: for all
    results_on.back()->part_type(e.program->type(e.program->outputs[i]));  // or throws
  }
  for (std::size_t i = 0; i < e.arguments_on.size(); ++i)
    if (e.arguments_on[i]) e.arguments_on[i]->part_type(e.types[i]);
  return {e.options->name, e.program,      e.types.size(),        e.captures,
          e.donated,       e.arguments_on, std::move(results_on), e.options->gather_limit};
}

void lower_entry(Entry& e) {
  e.lowered_once([&] { e.module = run::lower(lowerable_of(e)); });
}

/// While one lives, the thread's default device is where a program runs.
struct AtHome {
  explicit AtHome(int device) {
    if (device != run::default_device()) scope.emplace(device, Place{});
  }
  std::optional<DeviceScope> scope;
};

void compile_entry(Entry& e) {
  e.compiled_once([&] {
    lower_entry(e);
    auto compiled =
        std::make_shared<const run::CompiledProgram>(e.module, e.types.size(), e.captures);
    const AtHome there(e.home);
    run::tell_shardings(lowerable_of(e), *e.module);
    e.compiled = std::move(compiled);
    add_known_program(e.options->name, e.program);
  });
}

/// The mode that was asked for; else staged where the user places cuts or XLA cannot call back, or
/// where that is how functions called on other devices cost less.
Mode chosen_mode(Entry& e) {
  const JitOptions& o = *e.options;
  if (o.mode != Mode::automatic) return o.mode;
  if (o.cut || o.stage_device) return Mode::staged;
  const bool calls_devices = run::calls_devices(*e.program);
  if (!calls_devices && !has_site(*e.program)) return Mode::compiled;
  if (!run::Runtime::get().backend_of(e.device).used.calls_back) return Mode::staged;
  const bool captures_sharded = std::ranges::any_of(
      e.captures, [](const Tensor& t) { return run::sharding_of(t) != nullptr; });
  const bool on_one_device = e.shardings.empty() && e.arguments_on.empty() &&
                             o.out_shardings.empty() && meshes_of(*e.program).empty() &&
                             !captures_sharded;
  if (!calls_devices || !on_one_device) return Mode::compiled;
  run::StageChoices choices = run::choose_stages(*e.program, e.home);
  const bool any_stage = choices.any_stage();
  e.staged.choose(std::move(choices));
  return any_stage ? Mode::staged : Mode::compiled;
}

Mode mode_of(Entry& e) {
  e.mode_once([&] {
    const JitOptions& o = *e.options;
    const Mode mode = chosen_mode(e);
    PlaceScope at(o.place);
    check(mode == Mode::compiled || (o.in_shardings.empty() && o.out_shardings.empty()),
          "jit: in_shardings and out_shardings are for a program that runs as one "
          "(Mode::compiled); the mode is {}",
          word_of(mode));
    e.mode = mode;
  });
  return e.mode;
}

void stage_entry(Entry& e) {
  e.staged_once([&] {
    const AtHome there(e.home);
    const run::StagedProgram& stages = e.staged.of(e.program);
    stages.compile();
    e.stages = &stages;
  });
}

}  // namespace

// The entry for these arguments, traced, and with `compile` ready to run in the mode that its
// options ask for. Throws what tracing and compiling do; the next call then tries again.
const Entry& find(JitCore& core, const Key& key, const Tracer& tracer, bool compile) {
  refuse_forked();
  Entry& e = core.entry(key, tracer);
  if (e.ready.load(std::memory_order_acquire)) [[likely]]
    return e;
  const run::AtDevice there(e.device);
  trace_entry(e, core, key, tracer);
  // Where another thread has traced it, for another device, these arguments need one more.
  if (!e.fits_home(key)) return find(core, key, tracer, compile);
  if (!compile) return e;
  const Mode mode = mode_of(e);
  if (mode == Mode::staged) stage_entry(e);
  if (mode == Mode::compiled)
    compile_entry(e);
  else
    e.sites_once([&] { e.sites = std::make_shared<const run::InterpretedSites>(e.program); });
  e.ready.store(true, std::memory_order_release);
  core.remember(e);
  return e;
}

std::size_t result_count(const Entry& e) { return e.program->outputs.size(); }
std::shared_ptr<const void> result_like(const Entry& e) { return e.like; }

namespace {

std::shared_ptr<run::InterpretedRun> interpreted_run(const Entry& e) {
  return std::make_shared<run::InterpretedRun>(
      e.sites, e.stages ? const_cast<run::StagedPrograms*>(&e.staged) : nullptr);
}
/// Returns those inputs that the program takes. Throws as a compiled one does.
std::vector<const Value*> donated_of(const Entry& e, const Tensors& inputs) {
  std::vector<const Value*> given, donated;
  for (const Tensor& t : inputs) given.push_back(Access::value(t));
  for (std::size_t i = 0; i < e.donated.size(); ++i) {
    if (!e.donated[i]) continue;
    detail::refuse_donated(*given[i]);
    run::refuse_twice(given, i);
    donated.push_back(given[i]);
  }
  return donated;
}

Tensors arguments_of(const Key& key) {
  Tensors out;
  for (const Tensor* t : key.leaves()) out.push_back(*t);
  return out;
}

/// Evaluates the program from the host; between operations values stay on the program's device.
Tensors interpret(const Entry& e, run::InterpretedRun& run, const Tensors& arguments) {
  Tensors inputs = joined({arguments, e.captures});
  std::vector<const Tensor*> pointers;
  for (const Tensor& t : inputs) pointers.push_back(&t);
  const AtHome there(run::home_of(pointers).device);
  const auto donated = donated_of(e, inputs);
  Tensors results = run.interpret([&] {
    if (e.stages) return run::apart_from(donated, e.stages->run(std::move(inputs)));
    return run::apart_from(donated, internal::apply(*e.program, inputs));
  });
  for (const Value* value : donated) run::mark_donated(*value);  // what read it has been queued
  return results;
}

}  // namespace

void run(const Entry& e, const Key& key, std::span<Tensor> results) {
  if (e.runs_whole()) [[likely]]
    return e.compiled->run(key.leaves(), results);
  const auto keep = e.shared_from_this();
  const auto run = interpreted_run(e);
  run::RunRequest of_part(run::WholeRunScope::take());
  std::optional<host::Deadline> none;  // a part has no deadline of its own
  of_part.give(*run, none);
  std::ranges::move(interpret(e, *run, arguments_of(key)), results.begin());
}

/// Returns the sites whose functions a run may be given for itself.
static std::vector<SitePtr> sites_of(const Entry& e) {
  if (!e.runs_whole()) return e.sites->specs();
  std::vector<SitePtr> sites = e.module->sites;
  if (e.only_on >= 0)  // it calls devices, whose functions have sites too
    any_equation(*e.program, [&](const Equation& equation) {
      if (equation.primitive->site) sites.push_back(as<SiteParams>(*equation.params).site);
      return false;
    });
  return sites;
}

void run(const Entry& e, const Key& key, const RunOptions& options, std::span<Tensor> results) {
  PlaceScope at(e.options->place);
  const bool names_sites = !options.hooks.empty() || !options.functions.empty();
  run::RunRequest request(options, names_sites ? sites_of(e) : std::vector<SitePtr>());
  if (e.runs_whole()) {
    const auto keep = e.compiled;
    keep->run(key.leaves(), results, nullptr, &request);
  } else {
    const auto keep = e.shared_from_this();
    const auto run = interpreted_run(e);
    std::optional<host::Deadline> deadline;
    request.give(*run, deadline);
    std::ranges::move(interpret(e, *run, arguments_of(key)), results.begin());
    deadline.reset();  // from here on it cannot fail the run
    if (run->failed()) run->rethrow();
  }
  for (const Tensor& t : results) t.block_until_ready();
}

std::shared_ptr<StartedRun> start(const Entry& e, const Key& key, const RunOptions& options) {
  PlaceScope at(e.options->place);
  const std::vector<SitePtr> sites = sites_of(e);
  if (e.runs_whole()) return start_run(e.compiled, arguments_of(key), options, sites);
  auto run = interpreted_run(e);
  run->own_functions = host::RunFunctions::of(options, sites);
  run->set_of_processes(e.sites->of_processes);
  return start_run(
      run,
      [run, keep = e.shared_from_this(), arguments = arguments_of(key)] {
        return interpret(*keep, *run, arguments);
      },
      options, sites);
}

Lowered lowered(const Entry& entry) {
  Entry& e = const_cast<Entry&>(entry);  // made once, under its flag
  const run::AtDevice there(e.device);
  lower_entry(e);
  return Lowered(e.module, e.program, e.captures);
}
Executable compiled(const Entry& entry) {
  Entry& e = const_cast<Entry&>(entry);
  const run::AtDevice there(e.device);
  // Where the plug-in calls nothing there is no one program, but stages, which `find` has compiled.
  const bool is_cut = e.stages && e.options->mode == Mode::automatic;
  if (is_cut && !run::Runtime::get().backend_of(e.device).used.calls_back)
    return Executable(nullptr);
  compile_entry(e);
  return Executable(e.compiled);
}
std::vector<StageInfo> stages(const Entry& entry) {
  Entry& e = const_cast<Entry&>(entry);  // makes its own, under its lock
  const run::AtDevice there(e.device);
  if (mode_of(e) != Mode::compiled) return e.staged.of(e.program).stages();
  const Program& p = *e.program;
  std::string reason = "one program; it calls nothing";
  if (e.staged.choices())
    reason = "one program; " + run::reasons(*e.staged.choices());
  else if (has_site(p))
    reason = "one program; its host functions are called from inside of it";
  std::vector<Type> inputs(e.types);
  for (const Tensor& t : e.captures) inputs.push_back(t.type());
  const auto equations = static_cast<int>(p.equations.size());
  return {{"xla", "", Place{}, equations, inputs, p.output_types(), -1, std::move(reason)}};
}
TracedProgram traced(const Entry& e) { return TracedProgram(e.program); }

}  // namespace detail

}  // namespace postern
