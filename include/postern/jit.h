// jit: a C++ function on tensors becomes a compiled program, once for each combination of argument types.
#pragma once
#include <postern/detail/jit_core.h>

namespace postern {

/// compiled: one XLA program. staged: cut at its host calls into XLA programs that an orchestrator runs. evaluate: operation by operation.
enum class Mode : std::uint8_t { compiled, staged, evaluate };

struct JitOptions {
  Mode mode = Mode::compiled;
  std::vector<int> donate = {};  // arguments whose memory the program may reuse; they cannot be used afterwards
  std::string name = "main";     // of the program, in prints and errors
};

/// A compiled-on-demand function. Calling it with containers of tensors (or numbers) traces `f` with arguments of their types, compiles, and runs; later calls
/// with the same types, structures and static values run at once. Copies share the cache. Thread-safe; several threads that ask for one program wait for one compilation.
/// Inside a trace it is simply `f`. Parameters of `f` that are not containers (int, std::string, enums) are static: their values are part of the cache key.
template <class F>
class Jitted {
 public:
  Jitted(F f, JitOptions options) : f_(std::make_shared<F>(std::move(f))), core_(detail::make_jit(std::move(options))) {}

  /// Runs. Results are ready or on their way; errors of the program are thrown here if known, else where a result is waited for.
  template <class... A>
  auto operator()(A&&... args) const {
    using R = Result<A...>;
    if (detail::tracing()) return static_cast<R>((*f_)(detail::boxed<F, A>(args)...));
    return with_boxed([&](auto&... boxed) {
      detail::Key key(boxed...);
      const detail::Entry& entry = detail::find(*core_, key, tracer<R>(boxed...));
      return detail::run<R>(entry, key);
    }, std::forward<A>(args)...);
  }

  /// The StableHLO text and what it needs, without compiling or running anything.
  template <class... A>
  Lowered lower(A&&... args) const {
    return prepared([](const detail::Entry& e) { return detail::lowered(e); }, false, std::forward<A>(args)...);
  }
  /// Compiles without running. Throws CompileError.
  template <class... A>
  Executable compile(A&&... args) const {
    return prepared([](const detail::Entry& e) { return detail::compiled(e); }, true, std::forward<A>(args)...);
  }
  /// The traced program, readable by print.
  template <class... A>
  ProgramText program(A&&... args) const {
    return prepared([](const detail::Entry& e) { return detail::program_of(e); }, false, std::forward<A>(args)...);
  }
  /// Starts a run that can be waited for with a limit, cancelled, and given a deadline.
  template <class... A>
  Run start(A&&... args) const {
    return start(RunOptions{}, std::forward<A>(args)...);
  }
  template <class... A>
  Run start(const RunOptions& options, A&&... args) const {
    using R = Result<A...>;
    return with_boxed([&](auto&... boxed) {
      detail::Key key(boxed...);
      return detail::start(detail::find(*core_, key, tracer<R>(boxed...)), key, options);
    }, std::forward<A>(args)...);
  }

  const F& function() const { return *f_; }

 private:
  template <class... A>
  using Result = detail::plain_result<F, A...>;

  template <class Use, class... A>
  auto with_boxed(Use&& use, A&&... args) const {
    return [&](auto... boxed) { return use(boxed...); }(detail::boxed<F, A>(args)...);
  }
  /// How to trace `f` for arguments like these, called only when the cache has no entry.
  template <class R, class... B>
  auto tracer(const B&... boxed) const {
    return [this, &boxed...](const std::vector<Tensor>& leaves, detail::Outputs& out) {
      const Tensor* next = leaves.data();
      std::tuple<B...> args{detail::with_leaves_of(boxed, next)...};
      out.set<R>(std::apply([this](auto&... a) { return static_cast<R>((*f_)(a...)); }, args));
    };
  }
  template <class Use, class... A>
  auto prepared(Use&& use, bool compile, A&&... args) const {
    using R = Result<A...>;
    return with_boxed([&](auto&... boxed) {
      detail::Key key(boxed...);
      return use(detail::find(*core_, key, tracer<R>(boxed...), compile));
    }, std::forward<A>(args)...);
  }

  std::shared_ptr<F> f_;
  std::shared_ptr<detail::JitCore> core_;
};

template <class F>
Jitted<std::decay_t<F>> jit(F&& f, JitOptions options = {}) {
  return {std::forward<F>(f), std::move(options)};
}

}  // namespace postern
