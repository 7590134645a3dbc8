// Transformations: derivatives in both modes, batching, rules of one's own, recomputation. Each
// takes a function of containers and gives one (or calls it at once), and all nest in each other,
// in `jit` and in control flow. Outside `jit` they run at once.
//
// Tensors that a function captures from outside are constants to its transformation. Integers and
// pred have no tangents: what is given for them is ignored, and where a container of tangents or
// cotangents has a leaf for them, it is pred zeros of their shape.
//
// What they give may be called by several threads at once where the function itself may be.
//
// Every function throws TypeError, itself or where what it gives is called, for what has no
// derivative or batch rule, for arguments, tangents, cotangents and results other than said, for
// empty Tensors and for options that do not fit; and whatever the function throws while it is
// traced.
#pragma once
#include <postern/call.h>
#include <postern/detail/transform_core.h>

namespace postern {

struct GradOptions {
  bool holomorphic = false;  // the function is complex-differentiable; its results are complex
  bool allow_int = false;    // integer and pred leaves among what is differentiated by get pred
                             // zeros, else they are a TypeError
};

struct LinearSolveOptions {
  bool symmetric = false;  // matvec is its own transpose, and `solve` solves with both
};

struct VmapOptions {
  Axes in_axes = 0;   // for all arguments, or a list with one entry for each; `unmapped`: the same
                      // for all elements
  Axes out_axes = 0;  // for the result
  std::optional<std::int64_t> axis_size = {};  // needed only where no argument is mapped
  std::string axis_name = {};  // of the batch axis, for the collectives of shard.h in f
};

/// One step of a function under `checkpoint`: "multiply", or "call" with the name of a call or tap.
struct CheckpointStep {
  std::string_view operation, name;
  std::span<const Type> results;
};
struct RecomputeOptions {
  std::function<bool(const CheckpointStep&)> save =
      {};  // whether to keep a step's results; none given: nothing is kept
};

/// A host function for a derivative, and perhaps one for its own derivative, and so on: see
/// `call_with_vjp`.
class HostVjp {
 public:
  /// Has no derivative of its own, or that one. TypeError for a null function.
  HostVjp(Callee fn) : fn_(std::move(fn)) {}
  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, HostVjp> && !std::is_same_v<std::decay_t<F>, Callee>)
      HostVjp(F&& fn, Place place = Place::current())
      : fn_(std::forward<F>(fn), place) {}
  HostVjp(Callee fn, HostVjp vjp_fn)
      : fn_(std::move(fn)), next_(std::make_shared<const HostVjp>(std::move(vjp_fn))) {}
  /// Returns the function, and that for its derivative (null: none).
  const Callee& fn() const { return fn_; }
  const HostVjp* next() const { return next_.get(); }

 private:
  Callee fn_;
  std::shared_ptr<const HostVjp> next_;
};
/// Returns a function for a derivative that has a derivative itself, by `vjp_fn`: see
/// call_with_vjp.
[[nodiscard]] inline HostVjp with_vjp(Callee fn, HostVjp vjp_fn) {
  return {std::move(fn), std::move(vjp_fn)};
}

}  // namespace postern

#include <postern/detail/transform_objects.h>

namespace postern {

// --- derivatives ---

/// Returns values and tangents of f at `primals` in the direction `tangents`: tuples of arguments
/// (or the only argument alone), as pair{y, dy}. Tangents have the types and the structure of their
/// values; what can have no tensors may be left out.
///
///   const auto [y, dy] = pn::jvp([](pn::Tensor x) { return pn::square(x); },
///                                pn::tensor<float>({1, 2}), pn::tensor<float>({1, 0}));
///   const pn::Tensor tangent = dy;  // [2 0]
template <class F, class X, class T>
[[nodiscard]] auto jvp(F f, const X& primals, const T& tangents, Place place = Place::current()) {
  return detail::jvp_at(std::move(f), primals, tangents, place);
}

/// Returns pair{f(arguments...), pullback}: reverse mode. `pullback(ct)` gives the cotangents of
/// the arguments, a tuple, for those of the result, a container like it; it may be called again.
///
///   const auto [y, pullback] = pn::vjp([](pn::Tensor a, pn::Tensor b) { return a * b; },
///                                      pn::tensor<float>({1, 2}), pn::tensor<float>({3, 4}));
///   const auto [da, db] = pullback(pn::ones_like(y));
///   const pn::Tensor by_a = da;  // [3 4]
template <class F, class... A>
[[nodiscard]] auto vjp(F f, A&&... arguments) {
  return detail::linear_at<detail::Pullback>("vjp", std::move(f), std::forward<A>(arguments)...);
}

/// Returns pair{f(arguments...), map}: `map(tangents...)` gives the tangent of the result. For many
/// directions at one point: f runs once.
///
///   const auto [y, map] = pn::linearize([](pn::Tensor x) { return pn::square(x); }, 3.0f);
///   const pn::Tensor dy = map(pn::Tensor(1.0f)), twice = map(pn::Tensor(2.0f));  // 12
template <class F, class... A>
[[nodiscard]] auto linearize(F f, A&&... arguments) {
  return detail::linear_at<detail::Pushforward>("linearize", std::move(f),
                                                std::forward<A>(arguments)...);
}

/// Returns the transpose of f, which is linear in its arguments taken together: from a container
/// like f's result to the tuple of those like the arguments, to be called as often as wanted.
/// `like` gives the arguments' types, float or complex: a Type, a number or a Tensor for each leaf.
/// As vjp, but there is no point and nothing of f is computed that depends on its arguments. f is
/// traced at once, and an operation that is not linear in them, or adds what does not depend on
/// them and is not seen to be zero (`zeros`, the number 0), is a TypeError that names it. A linear
/// host call needs `linear_call`; a tap of what depends on the arguments shows its cotangent, and
/// says "transpose" in TapInfo::transforms. As jax.linear_transpose, which adds what is constant
/// without a word and takes integers too.
///
///   auto steps = [](pn::Tensor x) { return pn::slice(x, {1}, {3}) - pn::slice(x, {0}, {2}); };
///   auto transposed = pn::linear_transpose(steps, pn::type<float>({3}));
///   const auto [x] = transposed(pn::tensor<float>({1, 10}));
///   const pn::Tensor y = x;  // [-1 -9 10]
template <class F, class... T>
[[nodiscard]] auto linear_transpose(F f, const T&... like) {
  return detail::linear_transpose_at(std::move(f), detail::abstract_tree(like)...);
}

/// Returns the gradient of a function with a real scalar result (TypeError otherwise) by its first
/// argument, a container like it. `grad<1>(f)`: by the second; `grad<0, 2>(f)`: a tuple of
/// gradients. A function that returns `std::pair{scalar, aux}` gives pair{gradient, aux}.
///
///   auto loss = [](pn::Tensor w, pn::Tensor x) { return pn::sum(pn::square(w * x)); };
///   const pn::Tensor w = pn::tensor<float>({1, 2}), x = pn::tensor<float>({3, 4});
///   const pn::Tensor by_w = pn::grad(loss)(w, x);     // [18 64]
///   const pn::Tensor by_x = pn::grad<1>(loss)(w, x);  // [6 32]
template <std::size_t... argnums, class F>
[[nodiscard]] detail::Gradient<F, false, argnums...> grad(F f, GradOptions options = {},
                                                          Place place = Place::current()) {
  return {std::move(f), options, place};
}
/// Returns pair{f(...), gradient}, computed together; f's result may be std::pair{scalar, aux}.
///
///   auto step = pn::jit([](pn::Tensor w) {
///     const auto [loss, g] = pn::value_and_grad([](pn::Tensor v) { return pn::sum(v * v); })(w);
///     return std::pair{w - 0.25f * g, loss};
///   });
///   const pn::Tensor w = step(pn::tensor<float>({2, 4})).first;  // [1 2]
template <std::size_t... argnums, class F>
[[nodiscard]] detail::Gradient<F, true, argnums...> value_and_grad(F f, GradOptions options = {},
                                                                   Place place = Place::current()) {
  return {std::move(f), options, place};
}

/// Returns all derivatives of f's results by its first argument (`jacfwd<1>(f)`: by the second):
/// for Tensors an array of shape result + argument, for containers the result's container with the
/// argument's in the place of each leaf. jacfwd costs one run of f for each number in the argument.
///
///   auto f = [](pn::Tensor x) { return pn::stack({x[0] * x[1], pn::square(x[0])}); };
///   const pn::Tensor j = pn::jacfwd(f)(pn::tensor<float>({2, 3}));  // [[3 2] [4 0]]
template <std::size_t... argnums, class F>
[[nodiscard]] detail::Jacobian<F, true, argnums...> jacfwd(F f, GradOptions options = {},
                                                           Place place = Place::current()) {
  return {std::move(f), options, place};
}
/// Returns the same in reverse mode: one run for each number in the result.
template <std::size_t... argnums, class F>
[[nodiscard]] detail::Jacobian<F, false, argnums...> jacrev(F f, GradOptions options = {},
                                                            Place place = Place::current()) {
  return {std::move(f), options, place};
}
/// Returns second derivatives: jacfwd of jacrev.
template <std::size_t... argnums, class F>
[[nodiscard]] auto hessian(F f, GradOptions options = {}, Place place = Place::current()) {
  return jacfwd<argnums...>(jacrev<argnums...>(std::move(f), options, place), options, place);
}

// --- batching ---

/// Returns f for a batch: written for one element, it is given arrays with one more axis and gives
/// such. Calls, taps and effects inside run for each element as their options say; in branches and
/// loops that only some elements take, only for those.
///
/// With options.axis_name the elements can tell each other something: f may use `psum(x, name)` and
/// the other collectives of shard.h. Of equal names the innermost is meant. All elements take part,
/// in branches and loops those that are not live too. What is the same for all of them, such as a
/// psum, may be a result whose out_axes is `unmapped`. The default of a block cannot name the axis,
/// since an override could not take its place. As jax.vmap's axis_name.
///
///   auto dot = [](pn::Tensor x, pn::Tensor y) { return pn::sum(x * y); };
///   const pn::Tensor x = pn::tensor<float>({{1, 2}, {3, 4}}), y = pn::tensor<float>({1, 10});
///   const pn::Tensor each = pn::vmap(dot, {.in_axes = {0, pn::unmapped}})(x, y);  // [21 43]
template <class F>
[[nodiscard]] detail::Batched<F> vmap(F f, VmapOptions options = {},
                                      Place place = Place::current()) {
  return {std::move(f), std::move(options), place};
}

/// Returns f, written for arguments of few axes, for arguments with more in front. The signature
/// names the axes that f sees; equal names must have equal extents, the axes before them broadcast.
/// As jax.numpy.vectorize.
///
///   auto dot = [](pn::Tensor x, pn::Tensor y) { return pn::sum(x * y); };
///   const pn::Tensor x = pn::tensor<float>({{1, 2}, {3, 4}}), y = pn::tensor<float>({1, 10});
///   const pn::Tensor each = pn::vectorize(dot, "(n),(n)->()")(x, y);  // [21 43]
template <class F>
[[nodiscard]] detail::Vectorized<F> vectorize(F f, std::string signature,
                                              Place place = Place::current()) {
  return {std::move(f), std::move(signature), place};
}

// --- rules of one's own ---

/// Returns x, whose derivative is zero on purpose.
template <class Tree>
[[nodiscard]] Tree stop_gradient(const Tree& x, Place place = Place::current()) {
  return map_leaves([&](const Tensor& leaf) { return detail::stop_gradient(leaf, place); }, x);
}

/// Returns f with a derivative of its own: `rule(arguments, tangents)`, both tuples, returns
/// pair{y, dy}; dy must be linear in the tangents. It is traced when a derivative is taken, so it
/// may use f and other such functions. Serves forward and reverse mode. What f captures must not be
/// differentiated.
///
///   auto log1pexp = pn::custom_jvp(
///       [](pn::Tensor x) { return pn::log1p(pn::exp(x)); },
///       [](const auto& x, const auto& dx) {
///         const pn::Tensor e = pn::exp(std::get<0>(x));
///         return std::pair{pn::log1p(e), std::get<0>(dx) * (1.0f - 1.0f / (1.0f + e))};
///       });
///   const pn::Tensor g = pn::grad(log1pexp)(pn::Tensor(100.0f));  // 1
template <class F, class Rule>
[[nodiscard]] detail::CustomJvp<F, Rule> custom_jvp(F f, Rule rule,
                                                    Place place = Place::current()) {
  return {std::move(f), std::move(rule), place};
}

/// Returns f with a reverse-mode derivative of its own: `forward(arguments...)` returns pair{y,
/// residuals}, any container, and `backward(residuals, ct)` the cotangents of the arguments: a
/// tuple (for a single argument also it alone) of their structure, in which an empty Tensor is zero
/// and what can have no tensors may be left out. Both are traced when a derivative is taken.
/// Forward mode through it is a TypeError. Numbers that the rules need may be static arguments or
/// go into the residuals.
///
///   auto clipped = pn::custom_vjp(  // the identity, whose gradient is kept within -1 and 1
///       [](pn::Tensor x) { return x; },
///       [](pn::Tensor x) { return std::pair{x, std::tuple<>()}; },
///       [](std::tuple<>, pn::Tensor ct) { return pn::clip(ct, -1, 1); });
///   auto loss = [clipped](pn::Tensor x) { return pn::sum(3.0f * clipped(x)); };
///   const pn::Tensor g = pn::grad(loss)(pn::tensor<float>({5, 6}));  // [1 1]
template <class F, class Forward, class Backward>
[[nodiscard]] detail::CustomVjp<F, Forward, Backward> custom_vjp(F f, Forward forward,
                                                                 Backward backward,
                                                                 Place place = Place::current()) {
  return {std::move(f), std::move(forward), std::move(backward), place};
}

/// Returns f(residuals, x), which is linear in x, with its transpose: `transpose(residuals, ct)`
/// gives a container like x. Makes a linear call usable in both modes. A derivative by the
/// residuals is a TypeError.
///
///   auto scale = [](pn::Tensor factor, pn::Tensor x) { return factor * x; };
///   auto f = [scale](pn::Tensor x) {
///     return pn::sum(pn::linear_call(scale, scale, pn::Tensor(3.0f), x));
///   };
///   const pn::Tensor g = pn::grad(f)(pn::tensor<float>({1, 2}));  // [3 3]
template <class F, class Transpose, class Residuals, class X>
auto linear_call(F f, Transpose transpose, const Residuals& residuals, const X& x,
                 Place place = Place::current()) {
  return detail::linear_call_at(std::move(f), std::move(transpose), residuals, x, place);
}

/// Returns the x for which matvec(x) = b: what `solve(matvec, b)` gives, which is not
/// differentiated (it may loop, or call a host function). Derivatives are such systems again, with
/// matvec, which is linear and may capture what is differentiated; reverse mode solves with its
/// transpose, by `transpose_solve(vecmat, ct)`, or by `solve` where options.symmetric says that
/// they are the same, and is a TypeError where neither is given. b is a container of float and
/// complex tensors, and so are x and what all of these functions take and give: others are a
/// TypeError. They are traced at once, and matvec and vecmat are handed on as
/// std::function<Tree(const Tree&)>. That x solves the system is not checked. Works in both modes,
/// to any order, and under vmap. As jax.lax.custom_linear_solve.
///
///   auto x_of = [](pn::Tensor a, pn::Tensor b) {  // a x = b, elementwise
///     return pn::custom_linear_solve([a](pn::Tensor x) { return a * x; }, b,
///                                    [a](auto, pn::Tensor y) { return y / a; },
///                                    {.symmetric = true});
///   };
///   const pn::Tensor da = pn::grad(x_of)(pn::Tensor(2.0f), pn::Tensor(8.0f));  // -2
template <class MatVec, class Tree, class Solve>
auto custom_linear_solve(MatVec matvec, const Tree& b, Solve solve, LinearSolveOptions options = {},
                         Place place = Place::current()) {
  return detail::custom_linear_solve_at(std::move(matvec), detail::as_tree(b), std::move(solve),
                                        nullptr, options.symmetric, place);
}
template <class MatVec, class Tree, class Solve, class TransposeSolve>
requires(!std::is_same_v<TransposeSolve, LinearSolveOptions>) auto custom_linear_solve(
    MatVec matvec, const Tree& b, Solve solve, TransposeSolve transpose_solve,
    LinearSolveOptions options = {}, Place place = Place::current()) {
  return detail::custom_linear_solve_at(std::move(matvec), detail::as_tree(b), std::move(solve),
                                        std::move(transpose_solve), options.symmetric, place);
}

/// Returns an x for which f(x) is zero: what `solve(f, initial)` gives, which is not
/// differentiated. The derivative is by what f captures, after the implicit function theorem:
/// `tangent_solve(g, y)` gives the dx for which g(dx) = y, where g is f's derivative at x, and must
/// be linear in y, as `y / g(1.0f)` for a scalar, or custom_linear_solve. Nothing depends on
/// `initial` then. Containers, types, orders and errors as for custom_linear_solve. As
/// jax.lax.custom_root.
///
///   auto root = [](pn::Tensor a) {  // the square root of a, by Newton's method
///     auto newton = [](auto f, pn::Tensor x) {
///       for (int i = 0; i < 8; ++i) x = x - f(x) / (2.0f * x);
///       return x;
///     };
///     return pn::custom_root([a](pn::Tensor x) { return x * x - a; }, 1.0f, newton,
///                            [](auto g, pn::Tensor y) { return y / g(pn::Tensor(1.0f)); });
///   };
///   const pn::Tensor da = pn::grad(root)(pn::Tensor(4.0f));  // 0.25
template <class F, class Tree, class Solve, class TangentSolve>
auto custom_root(F f, const Tree& initial, Solve solve, TangentSolve tangent_solve,
                 Place place = Place::current()) {
  return detail::custom_root_at(std::move(f), detail::as_tree(initial), std::move(solve),
                                std::move(tangent_solve), place);
}

/// Calls a host function with a derivative on the host. `vjp_fn` is given the operands' leaves, the
/// results' leaves and the results' cotangents, then the operands' cotangents to fill as `View<T>`;
/// leaves that are not differentiable have no cotangents. Reverse mode only. `vjp_fn` may be
/// `with_vjp(fn, its_vjp_fn)`, which makes the derivative differentiable in its turn. Throws as
/// `call` does.
///
///   auto cube = [](pn::Tensor x) {
///     return pn::call_with_vjp(
///         pn::type<float>(), [](float v) { return v * v * v; },
///         [](float v, float, float ct, pn::View<float> dv) { dv[0] = 3 * v * v * ct; }, x);
///   };
///   const pn::Tensor g = pn::grad(cube)(pn::Tensor(2.0f));  // 12
template <class Out, class... Operands>
typename detail::tensors_of<Out>::type call_with_vjp(const CallOptions& options, const Out& out,
                                                     Callee fn, HostVjp vjp_fn,
                                                     const Operands&... operands) {
  auto like = detail::template_of(options.name, out, fn.place());
  const detail::Tensors y =
      detail::call_with_vjp(options, detail::leaves_of(like.tree), like.structure, like.paths, fn,
                            vjp_fn, detail::leaves_of(detail::as_tree(operands)...));
  return detail::with_leaves(std::move(like.tree), y);
}
template <class Out, class... Operands>
requires(!std::is_same_v<Out, CallOptions>) typename detail::tensors_of<Out>::type
    call_with_vjp(const Out& out, Callee fn, HostVjp vjp_fn, const Operands&... operands) {
  return call_with_vjp(CallOptions{}, out, std::move(fn), std::move(vjp_fn), operands...);
}

/// Returns f, whose intermediate values are not kept for the derivative but computed again (pure
/// calls included) when it is taken. Results of calls with an effect are kept and the calls not
/// repeated; taps fire again, with TapInfo::recomputed.
///
///   auto layer = pn::checkpoint([](pn::Tensor x) { return pn::sin(pn::sin(x)); });
///   auto loss = [layer](pn::Tensor x) { return pn::sum(layer(layer(x))); };
///   const pn::Tensor g = pn::grad(loss)(pn::tensor<float>({0, 0}));  // [1 1]
template <class F>
[[nodiscard]] detail::Checkpointed<F> checkpoint(F f, RecomputeOptions options = {},
                                                 Place place = Place::current()) {
  return {std::move(f), std::move(options), place};
}

}  // namespace postern
