// call: a compiled program calls a function of the process and computes on with what it returns.
#pragma once
#include <postern/detail/api.h>
#include <postern/host.h>
#include <postern/tensor.h>
#include <postern/tree.h>

#include <chrono>
#include <optional>

namespace postern {

/// When a call may be dropped, and what order it keeps.
/// pure: dropped when its results are unused. unordered: runs exactly once for each execution.
/// ordered: also in program order with the taps, hooks, prints and ordered calls of its device.
/// Programs that one thread calls keep the order too: on one device all these effects, on several
/// the ordered calls. A program waits for the thread's earlier ones to end, so none of them may
/// wait for a later one; what Run stands for (`start`) keeps no order with others.
enum class Effect : std::uint8_t { pure, unordered, ordered };

/// How vmap treats a call. sequential: once for each element, in order, with unbatched shapes.
/// parallel: likewise, at the same time on host threads. expand_dims: once, batched operands with
/// the batch axis in front, the others with an axis of 1. broadcast_all: once, all operands with
/// the batch axis.
enum class VmapMethod : std::uint8_t { sequential, parallel, expand_dims, broadcast_all };

/// Where a function finds its leaves. host: in memory of the process; a program on a GPU brings
/// them there and back. device: where they are: on a GPU the views then hold device pointers, to be
/// used in work on CallInfo::stream and not read here; on a CPU there is no difference. Such a
/// function fills its results in place, those of pred with 0 and 1 alone, takes no plain numbers
/// and has no time limit, for that would need copies. device_recorded: likewise, and all that the
/// function does is to queue work on the stream, the same for the same operands' and results'
/// addresses. XLA may then record that in a command buffer (a CUDA graph) and play it again, in
/// later runs too, without entering the function; for pure calls.
enum class Memory : std::uint8_t { host, device, device_recorded };

struct CallOptions {
  std::string name = "call";
  Effect effect = Effect::pure;
  std::chrono::nanoseconds timeout{
      0};  // for each firing; 0: none. The function then works on copies, on another thread
  VmapMethod vmap = VmapMethod::sequential;
  std::chrono::nanoseconds warn_after{0};  // one log line for each slower firing; 0: never
  int device =
      -1;  // in an automatically partitioned program, the device that makes the call; -1: the first
  /// Each device calls with its own part of the operands, spread so, in place of one call with the
  /// whole; the results (whose types are given as wholes) are spread likewise. Not inside
  /// shard_map, where every call is one device's own.
  std::optional<Sharding> partitioned = {};
  Memory memory = Memory::host;
  /// With Effect::ordered, inside shard_map: one order over all devices. Each passes here equally
  /// often, so not inside a cond or while loop there; of one passage the devices' firings come in
  /// the order of devices(), all of them before those of the next passage.
  bool one_order = false;
  Place place = Place::current();  // of the braces: names a call of a compiled function; other
                                   // functions bring their own
};

namespace detail {
POSTERN_API std::vector<Tensor> call(const CallOptions& options, const std::vector<Type>& out,
                                     const std::string& structure,
                                     const std::vector<std::string>& paths, const Callee& fn,
                                     const std::vector<Tensor>& operands);

/// Throws TypeError, naming the call and the leaf's path, for a leaf of a template that stands for
/// no type.
POSTERN_API void check_template(const std::string& call, const Place& place,
                                const std::string& path, const Type& leaf);
POSTERN_API void check_template(const std::string& call, const Place& place,
                                const std::string& path, const Tensor& leaf);

template <class T>
requires(!std::is_arithmetic_v<T>) const T& as_tree(const T& tree) { return tree; }
inline Tensor as_tree(const Operand& number) { return number.tensor(); }
template <class T>
requires std::is_arithmetic_v<T> Tensor as_tree(T number) { return Tensor(number); }

/// What a call gives, as its template says.
template <class Tree>
struct Template {
  Tree tree;
  std::vector<Type> types;
  std::string structure;
  std::vector<std::string> paths;
};
template <class Out>
Template<typename tensors_of<Out>::type> template_of(const std::string& call, const Out& out,
                                                     const Place& place) {
  std::vector<std::string> paths;
  leaf_paths(out, "", paths);
  std::size_t at = 0;
  visit(out, [&](const auto& leaf) { check_template(call, place, paths[at++], leaf); });
  Template<typename tensors_of<Out>::type> like{abstract_tree(out), {}, {}, {}};
  visit(
      like.tree, [&](const Tensor& leaf) { like.types.push_back(leaf.type()); }, &like.structure);
  leaf_paths(like.tree, "", like.paths);
  return like;
}
}  // namespace detail

/// Calls `fn` each time the program runs, with the leaves of `operands`, and returns its results, a
/// container like `out`, whose leaves are Types, Tensors (only their types count) or C++ numbers.
/// See Callee for the forms of `fn`. Where tracing is not under way `fn` runs at once on this
/// thread. Throws TypeError when the parameters of `fn` do not fit the operands' types, `out` is
/// empty and the call pure, or an option is out of range. A failure while the program runs is a
/// CallbackError (TimeoutError) at whoever waits for the run.
///
///   auto f = pn::jit([](pn::Tensor x) {
///     return pn::call(pn::type<float>({2}), [](pn::View<const float> in, pn::View<float> out) {
///       for (std::int64_t i = 0; i < in.size(); ++i) out[i] = std::sqrt(in[i]);
///     }, x);
///   });
///   const pn::Tensor y = f(pn::tensor<float>({4, 9}));  // [2 3]
template <class Out, class... Operands>
typename detail::tensors_of<Out>::type call(const CallOptions& options, const Out& out, Callee fn,
                                            const Operands&... operands) {
  auto like = detail::template_of(options.name, out, fn.place());
  const std::vector<Tensor> leaves =
      detail::call(options, like.types, like.structure, like.paths, fn,
                   detail::leaves_of(detail::as_tree(operands)...));
  return detail::with_leaves(std::move(like.tree), leaves);
}
template <class Out, class... Operands>
requires(!std::is_same_v<Out, CallOptions>) typename detail::tensors_of<Out>::type
    call(const Out& out, Callee fn, const Operands&... operands) {
  return call(CallOptions{}, out, std::move(fn), operands...);
}
/// Refuses a call that does not say what it gives: it does not compile. Throws nothing.
template <class F, class... Operands>
requires detail::HasSignature<F>
auto call(F&&, const Operands&...) {
  static_assert(sizeof(F) == 0,
                "postern: a call says what it gives before its function: in place of call(f, x) "
                "write call(x.type(), f, x), or call(std::tuple<>(), f, x) for nothing");
}

}  // namespace postern
