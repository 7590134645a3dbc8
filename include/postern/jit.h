// jit: a C++ function on tensors becomes a compiled program, once for each combination of argument
// types.
#pragma once
#include <postern/detail/function.h>
#include <postern/detail/jit_core.h>
#include <postern/sharding.h>

#include <algorithm>
#include <functional>

namespace postern {

/// How a program runs; values and errors are the same.
/// compiled: as one XLA program; throws Error(unimplemented) for one that calls back where the
/// plug-in knows no host functions. staged: cut at its host calls into XLA programs, the functions
/// called between them; loops and branches that call are driven from the host. evaluate: operation
/// by operation. automatic: compiled; staged where the plug-in leaves no choice, and where
/// functions called on another device (`call` with a jitted function) cost less between programs
/// than inside of one, see `costs`.
enum class Mode : std::uint8_t { automatic, compiled, staged, evaluate };

struct JitOptions {
  Mode mode = Mode::automatic;
  std::vector<int> donate =
      {};  // arguments whose memory the program may reuse; using them afterwards is an error
  std::string name = "main";  // of the program, in prints and errors
  /// Over several devices: how arguments are spread before the run, one for each argument (all its
  /// leaves); none given: as they are. And how the results shall lie: one for each leaf, or one for
  /// all; none given: as XLA chooses.
  std::vector<Sharding> in_shardings = {}, out_shardings = {};
  /// Where XLA cuts the program: how many bytes of operands one call, tap or print may have
  /// gathered on its device. More is a TypeError when the program is lowered. 0: as Config says.
  std::size_t gather_limit = 0;
  /// Mode::staged (which they imply where the mode is automatic): whether to cut at an operation
  /// too, beside the calls; and the device of an XLA stage, -1 for the one that the program runs
  /// on. Blocks are one operation; what XLA does of loops and branches is one too.
  std::function<Cut(const StageNode&)> cut = {};
  std::function<int(const StageInfo&)> stage_device = {};
  /// All hooks of the function stay in the program, asleep where nobody listens: see live.h.
  bool live_hooks = false;
  Place place = Place::current();  // of the call of jit, for errors
};

/// A function that is compiled on demand. Calling it traces `f` with arguments of the given types,
/// compiles, and runs; later calls with the same types, structures and static values run at once.
/// Copies share the cache. Threads may call, compile and start one at once; those that ask for one
/// program wait for one compilation (if `f`, being traced, waits for one of them, that one traces
/// it too after a second). Inside a trace it is simply `f`. Numbers given for Tensor parameters are
/// scalars; parameters of `f` that are no containers (int, std::string, enums) are static: their
/// values are part of the cache's key. A call returns when the host functions of the program have,
/// but for those of asynchronous taps and what start_call began; without any it may return before.
///
///   auto power = pn::jit([](pn::Tensor x, int n) {  // n is static: one program for each value
///     pn::Tensor y = x;
///     for (int i = 1; i < n; ++i) y = y * x;
///     return y;
///   });
///   const pn::Tensor cubes = power(pn::tensor<float>({1, 2}), 3);  // [1 8]
///
/// Every member that takes arguments throws what `f` throws while it is traced, TypeError for
/// arguments that are empty Tensors or belong to another trace, for options that do not fit the
/// arguments or results (JitOptions::donate, the shardings), and for what cannot be lowered, and
/// Error(reentry) where threads that trace `f` wait for each other.
template <class F>
class Jitted : public detail::BraceCall<Jitted<F>, F> {
 public:
  /// Makes what `jit` returns; nothing is traced yet. Throws as `jit` does.
  Jitted(F f, JitOptions options) : f_(std::move(f)), core_(detail::make_jit(std::move(options))) {}

  // operator(): runs. Results are ready or on their way; an error of the program is thrown here if
  // it is known, else where a result is waited for.

  /// Returns the StableHLO text, without compiling or running anything. Abstract arguments may have
  /// extents of `any`, for `save`.
  template <class... A>
  Lowered lower(A&&... args) const {
    return lower_boxed(std::index_sequence_for<A...>(), std::forward<A>(args)...);
  }
  /// Compiles without running: the program, or its stages where the plug-in calls no functions.
  /// Throws CompileError.
  template <class... A>
  Executable compile(A&&... args) const {
    return with(
        std::index_sequence_for<A...>(),
        [](const detail::Entry& e, const detail::Key&) { return detail::compiled(e); }, true,
        std::forward<A>(args)...);
  }
  /// Returns the parts into which the program is cut, with the reason for each: where it runs as
  /// one (Mode::compiled) that one, where the host evaluates it those of Mode::staged.
  template <class... A>
  std::vector<StageInfo> stages(A&&... args) const {
    return with(
        std::index_sequence_for<A...>(),
        [](const detail::Entry& e, const detail::Key&) { return detail::stages(e); }, false,
        std::forward<A>(args)...);
  }
  /// Returns the traced program in readable form.
  template <class... A>
  TracedProgram program(A&&... args) const {
    return with(
        std::index_sequence_for<A...>(),
        [](const detail::Entry& e, const detail::Key&) { return detail::traced(e); }, false,
        std::forward<A>(args)...);
  }
  /// Runs as operator() does, with options, and waits for the end. Host functions are entered on
  /// the threads that they are entered on in a call: when the deadline passes, their StopTokens are
  /// set, others do not begin, and the run is a TimeoutError as soon as those under way have
  /// returned. (`start_with` lets go of those that do not, which costs a thread for each.) Throws
  /// TypeError for options as `start_with` does, and CallbackError cancelled where a host function
  /// ended the run early.
  ///
  ///   auto f = pn::jit([](pn::Tensor x) { return pn::tanh(x); });
  ///   const pn::Tensor y = f.run({.deadline = std::chrono::seconds(10)}, pn::Tensor(0.0f));  // 0
  template <class... A>
  auto run(const RunOptions& options, A&&... args) const {
    return with(
        std::index_sequence_for<A...>(),
        [&](const detail::Entry& e, const detail::Key& key) {
          return detail::run<decltype(invoke(std::forward<A>(args)...))>(e, key, options);
        },
        true, std::forward<A>(args)...);
  }
  /// Starts a run on a host thread and returns at once. Throws CompileError too, and TypeError for
  /// options of the run that are out of range or name a hook or function that the program does not
  /// have; what happens while it runs is thrown where it is waited for.
  ///
  ///   auto slow = pn::jit([](pn::Tensor x) { return pn::tanh(x); });
  ///   auto run = slow.start_with({.deadline = std::chrono::seconds(10)}, pn::tensor<float>({0}));
  ///   const pn::Tensor y = run.result();  // [0]
  template <class... A>
  auto start(A&&... args) const {
    return start_with(RunOptions{}, std::forward<A>(args)...);
  }
  template <class... A>
  auto start_with(const RunOptions& options, A&&... args) const {
    return with(
        std::index_sequence_for<A...>(),
        [&](const detail::Entry& e, const detail::Key& key) {
          using R = decltype(invoke(std::forward<A>(args)...));
          return Run<R>(detail::start(e, key, options),
                        *static_cast<const R*>(detail::result_like(e).get()));
        },
        true, std::forward<A>(args)...);
  }

  /// Returns the same function with other listeners at its hooks, in place of their defaults, with
  /// a cache of its own. Texts that do not change are not compiled again. Two listeners for one
  /// name are a TypeError. When it is traced, names that the program does not have are a TypeError
  /// that lists those that it has.
  ///
  ///   auto step = pn::jit([](pn::Tensor w) { return pn::hook("w", 2.0f * w); });
  ///   auto seen = step.with_hooks({{"w", [](pn::View<const float> w) { std::cout << w[0]; }}});
  ///   const pn::Tensor y = seen(pn::tensor<float>({1, 2}));  // [2 4]
  [[nodiscard]] Jitted with_hooks(std::vector<HookBinding> listeners,
                                  const HookRules& rules = {}) const {
    return Jitted(f_, detail::with_hooks(*core_, std::move(listeners), rules));
  }
  /// Returns the hooks that the function passes when it is traced with arguments like these, with
  /// or without listeners.
  template <class... A>
  std::vector<HookInfo> hooks(A&&... args) const {
    return with(
        std::index_sequence_for<A...>(),
        [](const detail::Entry& e, const detail::Key&) { return detail::hooks_of(e); }, false,
        std::forward<A>(args)...);
  }
  /// Starts a run and shows what passes the hooks of these names (none: all hooks).
  template <class... A>
  auto stream(std::vector<std::string> names, A&&... args) const {
    using R = decltype(invoke(std::forward<A>(args)...));
    if (names.empty())
      for (const HookInfo& h : hooks(args...))
        if (std::find(names.begin(), names.end(), h.name) == names.end()) names.push_back(h.name);
    const auto events = detail::make_event_queue();
    std::vector<HookBinding> listeners;
    for (std::string& name : names)
      listeners.push_back(detail::event_listener(std::move(name), events));
    Run<R> run = with_hooks(std::move(listeners)).start(std::forward<A>(args)...);
    detail::end_events_with(events, *run.internal());
    return HookStream<R>(std::move(run), events);
  }

  /// Does what operator() does, which also takes arguments in braces; throws the same.
  template <class... A>
  auto invoke(A&&... args) const {
    return invoke_boxed(std::index_sequence_for<A...>(), std::forward<A>(args)...);
  }

 private:
  Jitted(detail::Shared<F> f, std::shared_ptr<detail::JitCore> core)
      : f_(std::move(f)), core_(std::move(core)) {}

  template <std::size_t... i, class... A>
  auto invoke_boxed(std::index_sequence<i...>, A&&... args) const {
    if (detail::tracing()) {
      const detail::NestedHooks hooks(*core_);
      auto result = detail::call_plain(*f_, detail::boxed<F, i>(args)...);
      hooks.check_known();
      return result;
    }
    return run_boxed(detail::boxed<F, i>(args)...);
  }
  template <class... B>
  auto run_boxed(const B&... boxed) const {
    using R = detail::plain_result<F, B...>;
    const detail::Key key(boxed...);
    std::shared_ptr<detail::JitCore> kept;
    const auto tracer = this->tracer(kept, boxed...);
    return detail::run<R>(detail::find(*core_, key, tracer), key);
  }
  template <std::size_t... i, class Use, class... A>
  auto with(std::index_sequence<i...>, Use&& use, bool compile, A&&... args) const {
    return [&](const auto&... boxed) {
      const detail::Key key(boxed...);
      std::shared_ptr<detail::JitCore> kept;
      const auto tracer = this->tracer(kept, boxed...);
      return use(detail::find(*core_, key, tracer, compile), key);
    }(detail::boxed<F, i>(args)...);
  }
  template <std::size_t... i, class... A>
  Lowered lower_boxed(std::index_sequence<i...>, A&&... args) const {
    return [this](const auto&... boxed) {
      auto extents = detail::open_extents(detail::Key(boxed...));
      if (extents.empty()) return lower_at(boxed...);
      auto at = [self = *this, extents,
                 held = std::tuple<std::decay_t<decltype(boxed)>...>(boxed...)](
                    const std::vector<std::int64_t>& sizes) {
        return std::apply(
            [&](const auto&... b) { return self.lower_at(detail::at_sizes(b, extents, sizes)...); },
            held);
      };
      return detail::lowered_open({std::move(extents), std::move(at)});
    }(detail::boxed<F, i>(args)...);
  }
  template <class... B>
  Lowered lower_at(const B&... boxed) const {
    const detail::Key key(boxed...);
    std::shared_ptr<detail::JitCore> kept;
    const auto tracer = this->tracer(kept, boxed...);
    return detail::lowered(detail::find(*core_, key, tracer, false));
  }
  /// Returns how to trace `f` for arguments like these; used only when the cache has no entry. `f`
  /// may drop this function, so `kept` keeps the cache from then on.
  template <class... B>
  auto tracer(std::shared_ptr<detail::JitCore>& kept, const B&... boxed) const {
    return [this, &kept, &boxed...](const std::vector<Tensor>& leaves, detail::Outputs& out) {
      if (out.paths) {
        [[maybe_unused]] std::size_t i = 0;
        return (detail::leaf_paths(boxed, "argument " + std::to_string(i++), *out.paths), ...);
      }
      kept = core_;
      [[maybe_unused]] const Tensor* next = leaves.data();
      std::tuple<B...> args{detail::with_leaves(boxed, next)...};
      out.set(detail::apply_plain(*f_, args));
    };
  }

  detail::Shared<F> f_;
  std::shared_ptr<detail::JitCore> core_;
};

/// Returns `f`, compiled on demand: see Jitted. Throws TypeError for options that do not go
/// together.
template <class F>
[[nodiscard]] Jitted<std::decay_t<F>> jit(F&& f, JitOptions options = {}) {
  return {std::forward<F>(f), std::move(options)};
}

}  // namespace postern
