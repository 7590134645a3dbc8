// tap: shows a value to a host function while the program runs, and passes it on unchanged.
#pragma once
#include <postern/call.h>
#include <postern/detail/api.h>

#include <chrono>
#include <typeinfo>

namespace postern {

/// sync: the function runs on the executing thread, on the device's own memory, and the program
/// waits for it; what it throws stops the run. async: the value is copied to a queue of the device
/// and the program goes on; a host thread enters the function, in program order; what it throws is
/// kept for `barrier()`, and later firings are delivered all the same.
enum class TapMode : std::uint8_t { sync, async };

namespace listen {
/// What a listener does that cannot write: `stop` throws, which ends the run; `go_on` says so in
/// the log and lets the program go on.
enum class OnError : std::uint8_t { stop, go_on };
}  // namespace listen

namespace detail {
/// The leaves of a container, how they hang together, and their paths.
struct Shown {
  std::vector<Tensor> leaves;
  std::string structure;
  std::vector<std::string> paths;
};
template <class Tree>
Shown shown(const Tree& tree) {
  Shown out;
  visit(
      tree, [&](const Tensor& leaf) { out.leaves.push_back(leaf); }, &out.structure);
  leaf_paths(tree, "", out.paths);
  return out;
}
[[noreturn]] POSTERN_API void wrong_map(const std::type_info& takes, const std::type_info& tapped,
                                        const Place& place);
}  // namespace detail

/// A function of the tapped value, traced and computed on the device; its results (any container)
/// are sent in place of the value. It takes what is tapped, by its type: `.map = [](pn::Tensor x) {
/// return pn::sum(x); }`.
class TapMap {
 public:
  TapMap() = default;
  /// Takes a function; a value of another type than its parameter is a TypeError where it is
  /// tapped.
  template <class F>
  requires detail::HasSignature<F> TapMap(F f) {
    using Parameters = typename detail::Signature<F>::Parameters;
    static_assert(std::tuple_size_v<Parameters> == 1,
                  "postern: the map of a tap takes one parameter, what is tapped");
    using Value = std::decay_t<std::tuple_element_t<0, Parameters>>;
    apply_ = [f = std::move(f)](const void* value, const std::type_info& type, const Place& place) {
      if (type != typeid(Value)) detail::wrong_map(typeid(Value), type, place);
      return detail::shown(detail::as_tree(f(*static_cast<const Value*>(value))));
    };
  }
  /// Returns whether there is a function. Throws nothing.
  explicit operator bool() const { return static_cast<bool>(apply_); }
  template <class Value>
  detail::Shown operator()(const Value& value, const Place& place) const {
    return apply_(&value, typeid(Value), place);
  }

 private:
  detail::Function<detail::Shown(const void*, const std::type_info&, const Place&)> apply_;
};

struct TapOptions {
  std::string name = "tap";
  TapMode mode = TapMode::sync;
  bool ordered = true;  // in program order with the other effects of its device; false: by data
                        // dependence alone
  bool derivatives = false;  // also shown tangents (jvp: values, then tangents) and cotangents
                             // (grad: values, later the cotangents)
  std::int64_t every = 1;  // only firings 0, every, 2 * every, ... of this place, counted for each
                           // device over all runs of the program
  std::int64_t until = 0;  // only the first so many of those, over all devices; 0: all
  // At least so long between those, over all devices: the first, then whichever comes next when the
  // time has passed. `until` counts what is shown. 0: any.
  std::chrono::nanoseconds interval{0};
  TapMap map = {};  // what is sent; the value passed on stays whole
  std::optional<Sharding> partitioned =
      {};  // each device shows its part of the leaves, spread so; of equal parts one is shown
  bool one_order = false;      // with `ordered`, inside shard_map: one order over all devices, see
                               // CallOptions::one_order
  int process = -1;            // shown on this one only (CallInfo::process); -1: on all
  std::int64_t keep_last = 0;  // async: at most so many firings wait, the oldest are lost
                               // (TapInfo::dropped counts); 0: none is ever lost
  bool live = false;  // hooks: stays in the program for listeners that are turned on while it runs
};

namespace detail {
POSTERN_API std::vector<Tensor> tap(const TapOptions& options, const Shown& value,
                                    const Shown* mapped, const Callee& fn);
}

/// Returns `value`, a container or a number. `fn` takes an optional `const TapInfo&`, then the
/// leaves (see Callee); what it returns is ignored. It fires once each time the program passes
/// here, also when nobody uses the result, on the path that is taken, once for a whole batch under
/// vmap, and once under differentiation, with the value. Where nothing is traced it fires at once.
/// Throws TypeError when the parameters of `fn` do not fit, or an option is out of range.
///
///   auto f = pn::jit([](pn::Tensor x) {
///     const pn::Tensor y = pn::tap({.name = "x"}, 2.0f * x, [](pn::View<const float> v) {
///       std::cout << v[0] << "\n";
///     });
///     return pn::sum(y);
///   });
///   const pn::Tensor y = f(pn::tensor<float>({1, 2}));  // 6
template <class Value>
auto tap(const TapOptions& options, const Value& value, Callee fn) {
  auto tree = detail::as_tree(value);
  if (!options.map)
    return detail::with_leaves(tree, detail::tap(options, detail::shown(tree), nullptr, fn));
  const detail::Shown mapped = options.map(tree, fn.place());
  return detail::with_leaves(tree, detail::tap(options, detail::shown(tree), &mapped, fn));
}
template <class Value>
auto tap(const Value& value, Callee fn) {
  return tap(TapOptions{}, value, std::move(fn));
}

/// Of the queue of asynchronous taps of a device.
struct TapQueueStats {
  std::uint64_t delivered = 0, dropped = 0;  // firings since the process began
  std::uint64_t pending = 0;
  std::size_t bytes = 0, peak_bytes = 0;  // held for what is pending, and the most that ever was
  std::size_t limit = 0;                  // Config::tap_queue_bytes
};
/// Returns those of the device of that ordinal; throws TypeError for a negative one.
POSTERN_API TapQueueStats tap_queue_stats(int device = 0, Place place = Place::current());

}  // namespace postern
