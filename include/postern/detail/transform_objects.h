// What the transformations return: objects that are called like the function that they are made
// from.
#pragma once
#include <postern/detail/transform_core.h>

#include <functional>

namespace postern::detail {

template <class F, class X, class T>
auto jvp_at(F f, const X& primals, const T& tangents, const Place& place) {
  const typename tuple_of<T>::type given(tangents);
  const Tensors dx = std::apply([](const auto&... t) { return leaves_of(as_tree(t)...); }, given);
  const Layout layout =
      std::apply([](const auto&... t) { return layout_of(as_tree(t)...); }, given);
  return std::apply(
      [&](const auto&... arguments) {
        return with_boxed<F>(
            [&]<class... B>(const B&... x) {
              const Flat<F, B...> flat(Shared<F>(std::move(f)), x...);
              require_layout("jvp", "tangent", layout_of(x...), layout, place);
              const Values v = detail::jvp(flat, leaves_of(x...), dx, place);
              return std::pair{with_leaves(flat.like(), v.results),
                               with_leaves(flat.like(), v.derivatives)};
            },
            arguments...);
      },
      typename tuple_of<X>::type(primals));
}

/// Returns pair{f(arguments...), Map}: what `vjp` and `linearize` return.
template <template <class, class...> class Map, class F, class... A>
auto linear_at(const char* what, F f, A&&... arguments) {
  return with_boxed<F>(
      [&]<class... B>(const B&... x) {
        const Flat<F, B...> flat(Shared<F>(std::move(f)), x...);
        auto map = detail::linearize(what, flat, leaves_of(x...));
        auto y = with_leaves(flat.like(), detail::results_of(*map));
        return std::pair{
            y, Map<decltype(y), B...>(what, map, flat.like(), std::tuple<B...>(emptied(x)...))};
      },
      std::forward<A>(arguments)...);
}

/// What `vjp` and `linear_transpose` return: cotangents of the results to a tuple of those of the
/// arguments. May be called again.
template <class R, class... B>
class Pullback {
 public:
  Pullback(const char* what, std::shared_ptr<const LinearMap> map, const R& like,
           std::tuple<B...> arguments)
      : what_(what),
        map_(std::move(map)),
        results_(layout_of(like)),
        arguments_(std::move(arguments)) {}
  std::tuple<B...> operator()(const R& cotangents) const {
    require_layout(what_, "cotangent", results_, layout_of(cotangents), {});
    return with_leaves(arguments_, detail::pull(*map_, leaves_of(cotangents)));
  }

 private:
  const char* what_;
  std::shared_ptr<const LinearMap> map_;
  Layout results_;
  std::tuple<B...> arguments_;
};

template <class F, class... A>
auto linear_transpose_at(F f, A&&... arguments) {
  return with_boxed<F>(
      [&]<class... B>(const B&... x) {
        const Flat<F, B...> flat(Shared<F>(std::move(f)), x...);
        auto map = detail::linear_transpose(flat, leaves_of(x...));
        return Pullback<plain_result<F, B...>, B...>("linear_transpose", std::move(map),
                                                     flat.like(), std::tuple<B...>(emptied(x)...));
      },
      std::forward<A>(arguments)...);
}

/// What `linearize` returns: tangents of the arguments to those of the results. May be called
/// again; f is not.
template <class R, class... B>
class Pushforward {
 public:
  Pushforward(const char* what, std::shared_ptr<const LinearMap> map, R like,
              const std::tuple<B...>& arguments)
      : what_(what),
        map_(std::move(map)),
        arguments_(layout_of(arguments)),
        like_(std::move(like)) {}
  R operator()(const B&... tangents) const {
    require_layout(what_, "tangent", arguments_, layout_of(std::tie(tangents...)), {});
    return with_leaves(like_, detail::push(*map_, leaves_of(tangents...)));
  }

 private:
  const char* what_;
  std::shared_ptr<const LinearMap> map_;
  Layout arguments_;
  R like_;
};

/// What `grad` and `value_and_grad` return.
template <class F, bool with_value, std::size_t... argnums>
class Gradient : public BraceCall<Gradient<F, with_value, argnums...>, F> {
 public:
  Gradient(F f, GradOptions options, Place place)
      : f_(std::move(f)), options_(options), place_(place) {}
  template <class... A>
  auto invoke(A&&... arguments) const {
    return with_boxed<F>([this]<class... B>(const B&... x) { return this->run(x...); },
                         std::forward<A>(arguments)...);
  }

 private:
  template <class... B>
  auto run(const B&... x) const {
    using R = plain_result<F, B...>;
    constexpr bool aux = is_value_and_aux<R>;
    static_assert(
        aux || std::is_same_v<R, Tensor>,
        "postern: grad needs a function that returns a scalar Tensor, or std::pair{scalar, aux}");
    Flat<F, B...> flat(f_, x...);
    const std::tuple<B...> arguments(x...);
    const Values v =
        detail::value_and_grad(with_value ? "value_and_grad" : "grad", flat, leaves_of(x...),
                               active_leaves<argnums...>(arguments), aux, options_, place_);
    auto gradient = chosen_with<argnums...>(arguments, v.derivatives);
    auto value = with_leaves(flat.like(), v.results);
    if constexpr (with_value)
      return std::pair{std::move(value), std::move(gradient)};
    else if constexpr (aux)
      return std::pair{std::move(gradient), std::move(value.second)};
    else
      return gradient;
  }

  Shared<F> f_;
  GradOptions options_;
  Place place_;
};

/// What `jacfwd` and `jacrev` return.
template <class F, bool forward, std::size_t... argnums>
class Jacobian : public BraceCall<Jacobian<F, forward, argnums...>, F> {
 public:
  Jacobian(F f, GradOptions options, Place place)
      : f_(std::move(f)), options_(options), place_(place) {}
  template <class... A>
  auto invoke(A&&... arguments) const {
    return with_boxed<F>(
        [this]<class... B>(const B&... x) {
          Flat<F, B...> flat(f_, x...);
          const std::tuple<B...> all(x...);
          const std::vector<bool> active = active_leaves<argnums...>(all);
          const Tensors blocks =
              detail::jacobian(forward, flat, leaves_of(x...), active, options_, place_);
          // The blocks are in the order of the arguments, each once; argnums may name them in
          // another, and twice.
          const Tensor* next = blocks.data();
          Tensors leaves;
          visit(flat.like(), [&](const Tensor&) {
            Tensors row(active.size());
            for (std::size_t i = 0; i < row.size(); ++i)
              if (active[i]) row[i] = *next++;
            append_leaves(chosen_with<argnums...>(all, row), leaves);
          });
          return with_leaves(nest(flat.like(), chosen<argnums...>(all)), leaves);
        },
        std::forward<A>(arguments)...);
  }

 private:
  Shared<F> f_;
  GradOptions options_;
  Place place_;
};

/// What `vmap` returns.
template <class F>
class Batched : public BraceCall<Batched<F>, F> {
 public:
  Batched(F f, VmapOptions options, Place place)
      : f_(std::move(f)), options_(std::move(options)), place_(place) {}
  template <class... A>
  auto invoke(A&&... arguments) const {
    return with_boxed<F>(
        [this]<class... B>(const B&... x) {
          Flat<F, B...> flat(f_, x...);
          std::vector<int> axes;
          append_prefix(std::tuple<const B&...>(x...), options_.in_axes, axes, "vmap: in_axes");
          auto out_axes = [&] {
            std::vector<int> out;
            append_prefix(flat.like(), options_.out_axes, out, "vmap: out_axes");
            return out;
          };
          const Tensors y = detail::vmap(flat, leaves_of(x...), axes, out_axes, options_.axis_size,
                                         options_.axis_name, place_);
          return with_leaves(flat.like(), y);
        },
        std::forward<A>(arguments)...);
  }

 private:
  Shared<F> f_;
  VmapOptions options_;
  Place place_;
};

/// What `custom_jvp` returns.
template <class F, class Rule>
class CustomJvp : public BraceCall<CustomJvp<F, Rule>, F> {
 public:
  CustomJvp(F f, Rule rule, Place place)
      : f_(std::move(f)), rule_(std::move(rule)), place_(place) {}
  template <class... A>
  auto invoke(A&&... arguments) const {
    return with_boxed<F>(
        [this]<class... B>(const B&... x) {
          Flat<F, B...> flat(f_, x...);
          auto rule = [rule = rule_, place = place_, like = std::tuple<B...>(emptied(x)...),
                       flat](std::span<const Tensor> leaves) {
            const Tensor* next = leaves.data();
            const auto primals = with_leaves(like, next), tangents = with_leaves(like, next);
            const auto [y, dy] = (*rule)(primals, tangents);
            require_structure("custom_jvp: the rule's value", structure_of(flat.like()),
                              structure_of(as_tree(y)), place);
            require_structure("custom_jvp: the rule's tangent", structure_of(flat.like()),
                              structure_of(as_tree(dy)), place);
            return leaves_of(as_tree(y), as_tree(dy));
          };
          const Tensors y = detail::custom_jvp(flat, rule, leaves_of(x...), place_);
          return with_leaves(flat.like(), y);
        },
        std::forward<A>(arguments)...);
  }

 private:
  Shared<F> f_;
  Shared<Rule> rule_;
  Place place_;
};

/// What `custom_vjp` returns.
template <class F, class Fwd, class Bwd>
class CustomVjp : public BraceCall<CustomVjp<F, Fwd, Bwd>, F> {
 public:
  CustomVjp(F f, Fwd forward, Bwd backward, Place place)
      : f_(std::move(f)),
        forward_(std::move(forward)),
        backward_(std::move(backward)),
        place_(place) {}
  template <class... A>
  auto invoke(A&&... arguments) const {
    return with_boxed<F>(
        [this]<class... B>(const B&... x) {
          Flat<F, B...> flat(f_, x...);
          auto forward = [forward = forward_, backward = backward_, place = place_,
                          like = std::tuple<B...>(emptied(x)...),
                          flat](std::span<const Tensor> leaves) {
            const Tensor* next = leaves.data();
            const auto [y, kept] = std::apply(*forward, with_leaves(like, next));
            require_structure("custom_vjp: the forward rule's value", structure_of(flat.like()),
                              structure_of(as_tree(y)), place);
            return Forward{leaves_of(as_tree(y)), leaves_of(kept),
                           pull_back(backward, kept, flat.like(), layout_of(like), place)};
          };
          const Tensors y = detail::custom_vjp(flat, forward, leaves_of(x...), place_);
          return with_leaves(flat.like(), y);
        },
        std::forward<A>(arguments)...);
  }

 private:
  template <class Kept, class R>
  static TensorFunction pull_back(Shared<Bwd> backward, const Kept& kept, const R& result,
                                  Layout arguments, Place place) {
    return [backward, kept = emptied(kept), result, arguments = std::move(arguments),
            place](std::span<const Tensor> leaves) {
      const Tensor* next = leaves.data();
      const auto residuals = with_leaves(kept, next);
      const auto cotangents = with_leaves(result, next);
      const auto given = (*backward)(residuals, cotangents);
      require_layout("custom_vjp", "cotangent", arguments, layout_of(given), place);
      return leaves_of(given);
    };
  }

  Shared<F> f_;
  Shared<Fwd> forward_;
  Shared<Bwd> backward_;
  Place place_;
};

/// What `vectorize` and `checkpoint` return: `apply` is given `f` as a function of leaves.
template <class F, class Options, auto apply>
class Applied : public BraceCall<Applied<F, Options, apply>, F> {
 public:
  Applied(F f, Options options, Place place)
      : f_(std::move(f)), options_(std::move(options)), place_(place) {}
  template <class... A>
  auto invoke(A&&... arguments) const {
    return with_boxed<F>(
        [this]<class... B>(const B&... x) {
          const Flat<F, B...> flat(f_, x...);
          const Tensors y = apply(flat, options_, leaves_of(x...), place_);
          return with_leaves(flat.like(), y);
        },
        std::forward<A>(arguments)...);
  }

 private:
  Shared<F> f_;
  Options options_;
  Place place_;
};
template <class F>
using Vectorized = Applied<F, std::string, &vectorize>;
template <class F>
using Checkpointed = Applied<F, RecomputeOptions, &checkpoint>;

template <class F, class Transpose, class Residuals, class X>
auto linear_call_at(F f, Transpose transpose, const Residuals& residuals, const X& x,
                    const Place& place) {
  const Flat<F, Residuals, X> flat(Shared<F>(std::move(f)), residuals, x);
  auto backward = [transpose = Shared<Transpose>(std::move(transpose)), place,
                   residuals = emptied(residuals), layout = layout_of(x),
                   flat](std::span<const Tensor> leaves) {
    const Tensor* next = leaves.data();
    const auto kept = with_leaves(residuals, next);
    const auto cotangents = with_leaves(flat.like(), next);
    const auto given = (*transpose)(kept, cotangents);
    require_layout("linear_call", "cotangent", layout, layout_of(as_tree(given)), place);
    return leaves_of(as_tree(given));
  };
  const Tensors y = detail::linear_call(flat, backward, leaves_of(residuals), leaves_of(x), place);
  return with_leaves(flat.like(), y);
}

/// Returns `f`, from containers like `like` to such, as a function of leaves.
template <class F, class Tree>
TensorFunction on_leaves(const char* what, F f, const Tree& like) {
  return [what, f = Shared<F>(std::move(f)), like = emptied(like)](std::span<const Tensor> leaves) {
    const Tensor* next = leaves.data();
    Tree x = with_leaves(like, next);
    const auto y = call_plain(*f, x);
    require_structure(what, structure_of(like), structure_of(as_tree(y)), {});
    return leaves_of(as_tree(y));
  };
}
/// Does so with a function that solves: it is given the map on containers too.
template <class Solve, class Tree>
Solver solver_on_leaves(const char* what, Solve solve, const Tree& like) {
  return [what, solve = Shared<Solve>(std::move(solve)), like = emptied(like)](
             const TensorFunction& map, std::span<const Tensor> b) {
    std::function<Tree(const Tree&)> on_trees = [map, like](const Tree& x) {
      return with_leaves(like, map(leaves_of(x)));
    };
    const auto given = [&](Tree right) { return call_plain(*solve, on_trees, right); };
    return on_leaves(what, given, like)(b);
  };
}

template <class Tree, class Map, class Solve, class Back>
Tree custom_linear_solve_at(Map matvec, const Tree& b, Solve solve, Back transpose_solve,
                            bool symmetric, const Place& place) {
  Solver back;
  if constexpr (!std::is_null_pointer_v<Back>)
    back = solver_on_leaves("custom_linear_solve: what transpose_solve gives",
                            std::move(transpose_solve), b);
  return with_leaves(
      b, custom_linear_solve(
             on_leaves("custom_linear_solve: what matvec gives", std::move(matvec), b),
             solver_on_leaves("custom_linear_solve: what solve gives", std::move(solve), b), back,
             symmetric, leaves_of(b), place));
}

template <class Tree, class F, class Solve, class Tangent>
Tree custom_root_at(F f, const Tree& initial, Solve solve, Tangent tangent_solve,
                    const Place& place) {
  return with_leaves(
      initial,
      custom_root(on_leaves("custom_root: what f gives", std::move(f), initial),
                  solver_on_leaves("custom_root: what solve gives", std::move(solve), initial),
                  solver_on_leaves("custom_root: what tangent_solve gives",
                                   std::move(tangent_solve), initial),
                  leaves_of(initial), place));
}

}  // namespace postern::detail
