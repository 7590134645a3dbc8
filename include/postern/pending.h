// Calls that overlap: a program starts a host function, computes on, and waits for the results
// later.
#pragma once
#include <postern/transforms.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace postern {

namespace detail {

/// The call that a Pending is of. `vjp`: null for one without a derivative.
struct Started {
  Site site;
  CallOptions options;
  std::shared_ptr<const HostVjp> vjp;
};

/// What a Pending stands for: the container that it will be, and how it was started. A static value
/// of the containers that a Pending is in; its text is the types, and the derivative's identity.
template <class Out>
class Awaited {
 public:
  Awaited() = default;
  Awaited(Out like, std::string text, Started started)
      : what_(std::make_shared<const What>(
            What{std::move(like), std::move(text), std::move(started)})) {}
  operator std::string_view() const { return what_ ? std::string_view(what_->text) : ""; }
  bool has_value() const { return what_ != nullptr; }
  const Out& like() const { return what_->like; }
  const Started& started() const { return what_->started; }

 private:
  struct What {
    Out like;
    std::string text;
    Started started;
  };
  std::shared_ptr<const What> what_;
};

}  // namespace detail

/// A call that was started and not waited for: a container whose leaves are its handle and, of one
/// with a derivative, its operands. As other containers it may be carried through loops, returned
/// from branches and functions, and batched: under vmap each element has a call of its own. It
/// belongs to the run that started it.
///
/// Its results are given once. To wait again, in another run or program than it was started in, or
/// in a loop for a Pending from outside that the loop does not carry, is a TypeError while tracing
/// where that shows, and outside of programs; else it is a CallbackError (code failed_precondition)
/// of the run. All say where the call was started and where it was waited for.
template <class Out>
struct Pending {
  Tensor handle;
  std::vector<Tensor> operands;
  detail::Awaited<Out> gives;
};

namespace detail {
POSTERN_API Tensor start_call(const CallOptions& options, const std::vector<Type>& out,
                              const std::string& structure, const std::vector<std::string>& paths,
                              const Callee& fn, const Tensors& operands);
/// Waits for a call. `started`: null for an empty Pending; `pending`: its leaves.
POSTERN_API Tensors wait_call(const Started* started, const Tensors& pending,
                              const std::vector<Type>& out, const Place& place);

template <class Out>
auto start_call(const CallOptions& options, const Out& out, const Callee& fn,
                std::shared_ptr<const HostVjp> vjp, Tensors operands) {
  auto like = template_of(options.name, out, fn.place());
  std::string text = like.structure + to_string(like.types);
  Tensors given = operands;
  if (vjp) {
    // Two Pendings that a loop or branches take for one must have one derivative.
    text += std::to_string(reinterpret_cast<std::uintptr_t>(vjp->fn().function().get()));
    for (Tensor& x : given) x = stop_gradient(x, fn.place());
  } else {
    operands.clear();
  }
  Tensor handle = start_call(options, like.types, like.structure, like.paths, fn, given);
  visit(like.tree, [](Tensor& leaf) { leaf = abstract(leaf.type()); });
  using Tree = decltype(like.tree);
  return Pending<Tree>{std::move(handle), std::move(operands),
                       Awaited<Tree>(std::move(like.tree), std::move(text),
                                     Started{{options.name, fn.place()}, options, std::move(vjp)})};
}
}  // namespace detail

/// Starts `fn` as `call` calls it, on another thread, and goes on without its results: `wait` gives
/// them. The function works on copies of the operands.
///
/// It runs once for each time that the program comes here, also when nobody waits and whatever the
/// effect; the run ends when it has returned. At most 64 functions of a run work at a time, others
/// begin when one of those returns. Where tracing is not under way it starts at once.
///
/// Order: starts and waits keep the program's order among each other and with ordered effects. So a
/// function begins after the ordered calls and synchronous taps before its start, and has returned
/// when those after its wait begin; in between the program's own effects may come before or after
/// it. Functions with Effect::ordered also begin one after another, each when the one that was
/// started before it on the device has returned, and so do the elements of a vmap that is
/// sequential; others work at the same time. Outside of programs a started function may start
/// others and wait for them; they keep an order of their own. A wait that could never end, for what
/// enters after the function or waits for it, is a CallbackError of code reentry.
///
/// What it throws is thrown by the run where somebody waits, as by a call; nobody waiting, it is
/// kept for barrier(), as of an asynchronous tap. `timeout` counts from the function's beginning:
/// what returns later has failed, whoever waits and whenever. end_run, cancel and a deadline act as
/// on calls: functions that have not begun are left out, those that work are told by their
/// StopToken. Options: Memory::device and partitioned are a TypeError; what else is one is said at
/// `call`.
///
///   auto f = pn::jit([](pn::Tensor x) {
///     auto sum = [](pn::View<const float> v, pn::View<float> s) {
///       s[0] = std::accumulate(v.begin(), v.end(), 0.0f);
///     };
///     const auto pending = pn::start_call(pn::type<float>(), sum, x);
///     const pn::Tensor meanwhile = pn::tanh(x);  // while `sum` works
///     return std::pair{pn::wait(pending), meanwhile};
///   });
///   const pn::Tensor six = f(pn::tensor<float>({1, 2, 3})).first;  // 6
template <class Out, class... Operands>
Pending<typename detail::tensors_of<Out>::type> start_call(const CallOptions& options,
                                                           const Out& out, Callee fn,
                                                           const Operands&... operands) {
  return detail::start_call(options, out, fn, nullptr,
                            detail::leaves_of(detail::as_tree(operands)...));
}
template <class Out, class... Operands>
requires(!std::is_same_v<Out, CallOptions>)
    Pending<typename detail::tensors_of<Out>::type> start_call(const Out& out, Callee fn,
                                                               const Operands&... operands) {
  return start_call(CallOptions{}, out, std::move(fn), operands...);
}

/// Starts a call with a derivative on the host, which is taken where somebody waits: `vjp_fn` as in
/// call_with_vjp. Pendings that a loop carries or branches give for one another must have the same
/// `vjp_fn`: make it once, as a HostVjp, for all of them. Throws as start_call and call_with_vjp
/// do.
template <class Out, class... Operands>
Pending<typename detail::tensors_of<Out>::type> start_call_with_vjp(const CallOptions& options,
                                                                    const Out& out, Callee fn,
                                                                    HostVjp vjp_fn,
                                                                    const Operands&... operands) {
  return detail::start_call(options, out, fn, std::make_shared<const HostVjp>(std::move(vjp_fn)),
                            detail::leaves_of(detail::as_tree(operands)...));
}
template <class Out, class... Operands>
requires(!std::is_same_v<Out, CallOptions>)
    Pending<typename detail::tensors_of<Out>::type> start_call_with_vjp(
        const Out& out, Callee fn, HostVjp vjp_fn, const Operands&... operands) {
  return start_call_with_vjp(CallOptions{}, out, std::move(fn), std::move(vjp_fn), operands...);
}

/// Returns the results of a call that was started, when it has returned: a container as `out` of
/// start_call said. Throws TypeError for a Pending that is empty, or that shows while tracing to be
/// another program's or waited for before; see Pending for what the run fails with.
template <class Out>
Out wait(const Pending<Out>& pending, Place place = Place::current()) {
  std::vector<Type> types;
  if (pending.gives.has_value())
    detail::visit(pending.gives.like(), [&](const Tensor& leaf) { types.push_back(leaf.type()); });
  const std::vector<Tensor> leaves =
      detail::wait_call(pending.gives.has_value() ? &pending.gives.started() : nullptr,
                        detail::leaves_of(pending), types, place);
  return detail::with_leaves(pending.gives.like(), leaves);
}

}  // namespace postern
