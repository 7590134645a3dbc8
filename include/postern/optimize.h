// Optimizers, as optax has them: pure functions over containers. Not part of postern.h.
//
// A step belongs into `jit`. Leaves that are no floats stay as they are, and complex ones
// are refused. Values are computed in the leaves' dtypes.
#pragma once
#include <postern/detail/api.h>
#include <postern/tree.h>

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace postern::detail {
struct OptimizerRules;
/// They work on the leaves of containers.
POSTERN_API std::vector<Tensor> updated(const std::vector<Tensor>& parameters,
                                        const std::vector<Tensor>& updates, const Place& place);
POSTERN_API Tensor global_norm(const std::vector<Tensor>& leaves, const Place& place);
POSTERN_API std::vector<Tensor> clipped(const std::vector<Tensor>& leaves, double most,
                                        const Place& place);
}  // namespace postern::detail

namespace postern::optimize {

/// A number, or one that depends on the step: a function of the number of updates so far, an s32
/// scalar that is traced, to a scalar.
class Schedule {
 public:
  /// Takes a number, also a traced one, or a function. Throws nothing.
  template <class T>
  requires std::is_arithmetic_v<T> Schedule(T number)
      : at_([number](const Tensor&) { return Operand(number).tensor(); }) {}
  Schedule(Tensor number) : at_([number](const Tensor&) { return number; }) {}
  template <std::invocable<Tensor> F>
  Schedule(F f) : at_(std::move(f)) {}
  /// Returns the number at that step. Throws what the function throws.
  Tensor operator()(const Tensor& step) const { return at_(step); }

 private:
  std::function<Tensor(const Tensor&)> at_;
};

/// What an optimizer knows from one step to the next: a container like any other.
template <class Tree>
struct State {
  Tensor count;               // of updates, s32
  std::vector<Tree> moments;  // as many as the optimizer keeps: momentum 1, adam 2
};

/// Makes updates of gradients. May be captured, copied and used from several threads.
///
///   auto loss = [](pn::Tensor w) { return pn::sum(w * w); };
///   const auto adam = pn::optimize::adam({.rate = 0.1});
///   pn::Tensor w = pn::tensor<float>({1, 2});
///   auto state = adam.init(w);
///   auto step = pn::jit([&](pn::Tensor w, pn::optimize::State<pn::Tensor> state) {
///     auto [updates, next] = adam.update(pn::grad(loss)(w), state, w);
///     return std::pair(pn::optimize::apply(w, updates), next);
///   });
///   for (int i = 0; i < 200; ++i) std::tie(w, state) = step(w, state);
///   std::cout << loss(w).item<float>() << "\n";  // about 0
class Optimizer {
 public:
  /// Returns the state before the first update. Throws TypeError for a complex leaf.
  template <class Tree>
  State<Tree> init(const Tree& parameters, Place place = Place::current()) const {
    return state_of(parameters, init_leaves(detail::leaves_of(parameters), place).data());
  }
  /// Returns what is to be added to the parameters, and the next state. Throws TypeError where
  /// gradients, moments and parameters differ in structure or shapes, for a complex leaf, and for
  /// the state of an optimizer that keeps other moments.
  template <class Tree>
  std::pair<Tree, State<Tree>> update(const Tree& gradients, const State<Tree>& state,
                                      const Tree& parameters,
                                      Place place = Place::current()) const {
    detail::require_structure("optimize: the gradient", detail::structure_of(parameters),
                              detail::structure_of(gradients), place);
    const std::vector<Tensor> leaves =
        update_leaves(detail::leaves_of(gradients), detail::leaves_of(state),
                      detail::leaves_of(parameters), place);
    const Tensor* next = leaves.data();
    Tree updates = detail::with_leaves(parameters, next);
    return {std::move(updates), state_of(parameters, next)};
  }

  explicit Optimizer(std::shared_ptr<const detail::OptimizerRules> rules)
      : rules_(std::move(rules)) {}
  const detail::OptimizerRules& rules() const { return *rules_; }

 private:
  template <class Tree>
  State<Tree> state_of(const Tree& like, const Tensor* next) const {
    State<Tree> state{*next++, {}};
    for (std::size_t i = 0; i < moments(); ++i)
      state.moments.push_back(detail::with_leaves(like, next));
    return state;
  }
  POSTERN_API std::size_t moments() const;
  /// They return the leaves of the state; those of the updates, then of the next state.
  POSTERN_API std::vector<Tensor> init_leaves(const std::vector<Tensor>& parameters,
                                              const Place& place) const;
  POSTERN_API std::vector<Tensor> update_leaves(const std::vector<Tensor>& gradients,
                                                const std::vector<Tensor>& state,
                                                const std::vector<Tensor>& parameters,
                                                const Place& place) const;

  std::shared_ptr<const detail::OptimizerRules> rules_;
};

/// Returns parameters + updates, each leaf of the parameter's dtype. Throws TypeError where their
/// structures or shapes differ, and for a complex leaf.
template <class Tree>
[[nodiscard]] Tree apply(const Tree& parameters, const Tree& updates,
                         Place place = Place::current()) {
  detail::require_structure("optimize: the update", detail::structure_of(parameters),
                            detail::structure_of(updates), place);
  return detail::with_leaves(parameters, detail::updated(detail::leaves_of(parameters),
                                                         detail::leaves_of(updates), place));
}

// --- optimizers ---

// No function throws but where it says so. `rate` may be a schedule everywhere.

/// Makes stochastic gradient descent: the update is -rate gradient.
struct SgdOptions {
  Schedule rate;
};
[[nodiscard]] POSTERN_API Optimizer sgd(const SgdOptions& options);
/// Makes descent with a trace of earlier gradients, which fades by `decay` a step; with `nesterov`
/// the update looks one step ahead.
struct MomentumOptions {
  Schedule rate;
  double decay = 0.9;
  bool nesterov = false;
};
[[nodiscard]] POSTERN_API Optimizer momentum(const MomentumOptions& options);
/// Makes Adam (Kingma and Ba, 2014).
struct AdamOptions {
  Schedule rate;
  double b1 = 0.9, b2 = 0.999;  // how the means of gradients and of their squares fade
  double epsilon = 1e-8;        // added to the root of the mean of squares
};
[[nodiscard]] POSTERN_API Optimizer adam(const AdamOptions& options);
/// Makes Adam with weights that decay, by rate * decay * weight (Loshchilov and Hutter, 2017).
struct AdamWOptions {
  Schedule rate;
  double b1 = 0.9, b2 = 0.999, epsilon = 1e-8;
  double decay = 1e-4;
  /// Which parameters decay, as `[](const pn::Type& t) { return t.rank() > 1; }`; none: all.
  std::function<bool(const Type&)> decays = {};
};
[[nodiscard]] POSTERN_API Optimizer adamw(const AdamWOptions& options);
/// Makes Lion (Chen et al., 2023): the sign of a mean of gradients, and weights that decay.
struct LionOptions {
  Schedule rate;
  double b1 = 0.9, b2 = 0.99;
  double decay = 1e-3;
  std::function<bool(const Type&)> decays = {};
};
[[nodiscard]] POSTERN_API Optimizer lion(const LionOptions& options);

/// Makes one that hands what each gives to the next, as optax.chain:
/// `chain({clip_by_global_norm(1), adam({.rate = 1e-3})})`.
[[nodiscard]] POSTERN_API Optimizer chain(const std::vector<Optimizer>& optimizers);
/// Makes one that scales gradients down to that norm, for use in a chain. Throws TypeError unless
/// it is positive.
[[nodiscard]] POSTERN_API Optimizer clip_by_global_norm(double most,
                                                        Place place = Place::current());

/// Returns the root of the sum of all leaves' squares; integers count as f32. Throws TypeError for
/// a complex leaf.
template <class Tree>
[[nodiscard]] Tensor global_norm(const Tree& tree, Place place = Place::current()) {
  return detail::global_norm(detail::leaves_of(tree), place);
}
/// Returns the container with its floats scaled down to that norm of theirs. Throws TypeError
/// unless it is positive, and for a complex leaf.
template <class Tree>
[[nodiscard]] Tree clip_by_global_norm(const Tree& tree, double most,
                                       Place place = Place::current()) {
  return detail::with_leaves(tree, detail::clipped(detail::leaves_of(tree), most, place));
}

// --- schedules ---

// Every function throws TypeError for numbers of steps that are not positive.

/// Goes from one number to another in `steps` steps, in a line, and stays there.
[[nodiscard]] POSTERN_API Schedule linear(double from, double to, std::int64_t steps,
                                          Place place = Place::current());
/// Falls from a number to `end` times that in `steps` steps, along half a period of the cosine, and
/// stays there.
[[nodiscard]] POSTERN_API Schedule cosine_decay(double from, std::int64_t steps, double end = 0,
                                                Place place = Place::current());
/// Returns from * factor^(step / steps), where `staircase` rounds the exponent down.
[[nodiscard]] POSTERN_API Schedule exponential_decay(double from, std::int64_t steps, double factor,
                                                     bool staircase = false,
                                                     Place place = Place::current());
/// Changes from each schedule to the next at these steps, from which that one counts.
[[nodiscard]] POSTERN_API Schedule join(const std::vector<Schedule>& schedules,
                                        const std::vector<std::int64_t>& at,
                                        Place place = Place::current());
/// Rises in a line from `from` to `peak`, then falls as cosine_decay to `to`; `steps` are all.
struct WarmupCosine {
  double from = 0, peak = 1, to = 0;
  std::int64_t warmup = 0, steps = 0;
};
[[nodiscard]] POSTERN_API Schedule warmup_cosine_decay(const WarmupCosine& options,
                                                       Place place = Place::current());

}  // namespace postern::optimize
