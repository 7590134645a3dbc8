// hook: a named place in a program; who runs the program decides what listens there.
//
//   auto step = pn::jit([](pn::Tensor w) { return 0.5f * pn::hook("weights", w); });
//   auto watched = step.with_hooks({{"weights", pn::listen::stats()}});
#pragma once
#include <postern/detail/api.h>
#include <postern/run.h>
#include <postern/tap.h>

#include <concepts>
#include <iterator>

namespace postern {

namespace internal {
class HookScope;
}

struct HookRules {
  bool allow_unknown = false;  // names that the program does not have are no error
};

/// A hook as a function that is traced comes by it.
struct HookInfo {
  std::string name;
  std::vector<Type> types;  // of the leaves
  std::vector<std::string> paths;
  Place place;
  bool has_default = false;
  bool live = false;  // it stays in the program whoever listens
};

namespace detail {
/// Returns what listens at this hook now: the outermost binding of its name, else `otherwise`. Null
/// for nothing, and then nothing is recorded.
POSTERN_API const Callee* listener(const TapOptions& options, const Shown& value,
                                   const Callee* otherwise, const Place& place);
/// Returns whether it is live, by itself or because the whole program's hooks are. Outside of
/// programs none is.
POSTERN_API bool is_live(const TapOptions& options);
POSTERN_API std::vector<Tensor> tap_hook(const TapOptions& options, const Shown& value,
                                         const Shown* mapped, const Callee* fn, const Place& place);

template <class Tree>
Tree hook(const TapOptions& options, const Tree& tree, const Callee* otherwise,
          const Place& place) {
  const Shown value = shown(tree);
  const Callee* const fn = listener(options, value, otherwise, place);
  if (!fn && !is_live(options)) return tree;
  if (!options.map) return with_leaves(tree, tap_hook(options, value, nullptr, fn, place));
  const Shown mapped = options.map(tree, place);
  return with_leaves(tree, tap_hook(options, value, &mapped, fn, place));
}
}  // namespace detail

/// Returns `value`, a container or a number. When the program passes here, the function that was
/// given for this name (Jitted::with_hooks) sees it, else `fn`, as a tap would; with neither the
/// hook leaves no trace in the program. Names may repeat: the function then fires at each place.
/// Works under every transformation, in control flow, and where nothing is traced. `options` are
/// those of a tap, with the hook's name. One that is `live` stays in the program in any case, and
/// listeners may be turned on there while it runs: see live.h. Throws TypeError when the parameters
/// of what listens do not fit or an option is out of range; a hook that leaves no trace checks
/// nothing.
///
///   auto f = [](pn::Tensor x) {
///     return pn::hook("x", x, [](pn::View<const float> v) { std::cout << v[0] << "\n"; });
///   };
///   f(pn::tensor<float>({1, 2}));  // prints 1
template <class Value>
auto hook(const TapOptions& options, const Value& value, Callee fn) {
  return detail::hook(options,
                      std::decay_t<decltype(detail::as_tree(value))>(detail::as_tree(value)), &fn,
                      fn.place());
}
template <class Value>
auto hook(const TapOptions& options, const Value& value, Place place = Place::current()) {
  return detail::hook(options,
                      std::decay_t<decltype(detail::as_tree(value))>(detail::as_tree(value)),
                      nullptr, place);
}
/// Binds a hook with a name in place of options, and throws the same. Templates over it: g++ 12
/// takes braces of options for a string too.
template <std::convertible_to<std::string> Name, class Value>
auto hook(const Name& name, const Value& value, Callee fn) {
  return hook(TapOptions{.name = std::string(name)}, value, std::move(fn));
}
template <std::convertible_to<std::string> Name, class Value>
auto hook(const Name& name, const Value& value, Place place = Place::current()) {
  return hook(TapOptions{.name = std::string(name)}, value, place);
}
/// Binds a hook with options behind the value, `hook("gradient", g, {.live = true})`; throws the
/// same.
template <std::convertible_to<std::string> Name, class Value>
auto hook(const Name& name, const Value& value, TapOptions options, Callee fn) {
  options.name = std::string(name);
  return hook(options, value, std::move(fn));
}
template <std::convertible_to<std::string> Name, class Value>
auto hook(const Name& name, const Value& value, TapOptions options,
          Place place = Place::current()) {
  options.name = std::string(name);
  return hook(options, value, place);
}

/// Listeners for the hooks that this thread passes operation by operation, outside every program,
/// while the object lives. Compiled programs keep theirs: see Jitted::with_hooks.
class ScopedHooks {
 public:
  /// Opens a scope; of scopes in each other that name one hook the outermost counts. Throws
  /// nothing: a listener that does not fit is a TypeError of the hook.
  POSTERN_API explicit ScopedHooks(std::vector<HookBinding> listeners);
  POSTERN_API ~ScopedHooks();
  ScopedHooks(const ScopedHooks&) = delete;

 private:
  std::vector<HookBinding> listeners_;
  std::unique_ptr<internal::HookScope> scope_;
};

/// One firing of a hook, as a stream shows it. The values are copies.
struct HookEvent {
  std::string name;
  std::vector<Tensor> values;
  std::vector<std::string> paths;
  Place place;
  int device = 0;
  Transforms transforms;
};

namespace detail {
class EventQueue;
POSTERN_API std::shared_ptr<EventQueue> make_event_queue();
POSTERN_API HookBinding event_listener(std::string name, std::shared_ptr<EventQueue> queue);
POSTERN_API void end_events_with(const std::shared_ptr<EventQueue>& queue, StartedRun& run);
POSTERN_API std::optional<HookEvent> next_event(EventQueue& queue);
POSTERN_API void close_events(EventQueue& queue);
}  // namespace detail

/// The hook events of a run that was started by Jitted::stream, in the order in which they happen:
/// `for (const HookEvent& e : stream)`. Ends with the run. For one thread, as the event goes to
/// whoever asks. The program waits when 1024 events have not been taken; when the stream is
/// destroyed it goes on without it. No member throws but `result`: a failure of the run ends the
/// events, and is thrown there.
template <class R>
class HookStream {
 public:
  HookStream(Run<R> run, std::shared_ptr<detail::EventQueue> events)
      : run_(std::move(run)), events_(std::move(events)) {}
  HookStream(HookStream&&) noexcept = default;
  ~HookStream() {
    if (events_) detail::close_events(*events_);
  }

  /// Returns the next event, waiting for it; nothing when the run has ended.
  std::optional<HookEvent> next() { return detail::next_event(*events_); }

  /// Lets go of events that have not been taken, and waits for the run's results. Throws as
  /// Run::result does.
  R result() {
    detail::close_events(*events_);
    return run_.result();
  }
  /// Returns the run, to be waited for or cancelled.
  const Run<R>& run() const { return run_; }

  class Iterator {
   public:
    /// As every input iterator: where it stands is an event, going on waits for the next one.
    using value_type = HookEvent;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    explicit Iterator(HookStream* stream) : stream_(stream) { ++*this; }
    const HookEvent& operator*() const { return *event_; }
    const HookEvent* operator->() const { return &*event_; }
    Iterator& operator++() {
      event_ = stream_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !event_; }

   private:
    HookStream* stream_ = nullptr;
    std::optional<HookEvent> event_;
  };
  /// Begins at the next event and goes up to the end of the run.
  Iterator begin() { return Iterator(this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  Run<R> run_;
  std::shared_ptr<detail::EventQueue> events_;
};

}  // namespace postern
