// What transformations do with containers: functions of containers as functions of leaves, axes for
// the leaves, nested results.
#pragma once
#include <postern/detail/api.h>
#include <postern/detail/jit_core.h>

#include <initializer_list>
#include <limits>
#include <optional>

namespace postern {

/// No batch axis, in `in_axes` and `out_axes`.
inline constexpr int unmapped = std::numeric_limits<int>::min();

namespace detail {
/// A T for all leaves of a container, or a list with one entry for each of its parts.
template <class T>
class Prefix {
 public:
  Prefix() : whole_(true) {}
  Prefix(T value) : value_(std::move(value)), whole_(true) {}
  Prefix(std::initializer_list<Prefix> parts) : parts_(parts) {}
  bool whole() const { return whole_; }
  const T& value() const { return value_; }
  const std::vector<Prefix>& parts() const { return parts_; }

 private:
  T value_{};
  bool whole_ = false;
  std::vector<Prefix> parts_;
};
}  // namespace detail

/// A batch axis for all leaves of a container, or a list with one entry for each of its parts: `0`,
/// `{0, unmapped}`, `{{0, 1}, unmapped}`. Negative axes count from the end.
using Axes = detail::Prefix<int>;

namespace detail {

/// Returns a copy of `tree` with empty leaves: its structure and static values.
template <class Tree>
Tree emptied(Tree tree) {
  visit(tree, [](Tensor& leaf) { leaf = Tensor(); });
  return tree;
}

template <class Tree>
std::vector<std::string> paths_of(const Tree& tree) {
  std::vector<std::string> paths;
  leaf_paths(tree, "", paths);
  return paths;
}

/// A function of containers as a function of their leaves; remembers the container that it
/// returned.
template <class F, class... B>
class Flat {
 public:
  using Result = plain_result<F, B...>;
  Flat(Shared<F> f, const B&... like)
      : f_(std::move(f)),
        arguments_(emptied(like)...),
        result_(std::make_shared<std::optional<Result>>()) {}
  Tensors operator()(std::span<const Tensor> leaves) const {
    const Tensor* next = leaves.data();
    std::tuple<B...> arguments = with_leaves(arguments_, next);
    Result result = apply_plain(*f_, arguments);
    Tensors out = leaves_of(result);
    *result_ = emptied(std::move(result));
    return out;
  }
  /// Returns the result's structure; there once the function was called.
  const Result& like() const { return **result_; }

 private:
  Shared<F> f_;
  std::tuple<B...> arguments_;
  std::shared_ptr<std::optional<Result>> result_;
};

/// Returns whether what has this type can have leaves; of types that hold themselves it is said.
template <class T, int depth = 0>
constexpr bool may_have_leaves();
template <int depth>
struct AnyMayHaveLeaves {
  template <class... Parts>
  constexpr auto operator()(const Parts&...) const {
    return std::bool_constant<(may_have_leaves<Parts, depth>() || ...)>();
  }
};
template <class T, int depth>
constexpr bool may_have_leaves() {
  if constexpr (is_leaf<T> || depth == 8)
    return true;
  else if constexpr (is_static<T>)
    return false;
  else if constexpr (is_map<T>::value)
    return may_have_leaves<typename T::mapped_type, depth + 1>();
  else if constexpr (is_vector<T>::value || is_optional<T>::value)
    return may_have_leaves<typename T::value_type, depth + 1>();
  else if constexpr (is_tuple<T>::value)
    return decltype(std::apply(AnyMayHaveLeaves<depth + 1>(), std::declval<T&>()))::value;
  else
    return decltype(with_fields(std::declval<T&>(), AnyMayHaveLeaves<depth + 1>()))::value;
}

/// How leaves lie in a container, as text: its structure without what can have none, which tangents
/// and cotangents may leave out. An optional that has something is as that is.
struct Layout {
  std::string text;
  std::size_t leaves = 0;

  template <class Tree>
  void add(const Tree& tree) {
    auto each = [this](const auto&... parts) { (this->add(parts), ...); };
    if constexpr (is_leaf<Tree>) {
      text += '*';
      ++leaves;
    } else if constexpr (!may_have_leaves<Tree>()) {
      return;
    } else if constexpr (is_vector<Tree>::value) {
      text += '[';
      for (const auto& part : tree) add(part);
      text += ']';
    } else if constexpr (is_map<Tree>::value) {
      text += '{';
      for (const auto& [key, part] : tree) {
        text += std::to_string(key.size());
        text += ':';
        text += key;
        add(part);
      }
      text += '}';
    } else if constexpr (is_optional<Tree>::value) {
      if (tree)
        add(*tree);
      else
        text += '?';
    } else if constexpr (is_tuple<Tree>::value) {
      text += '(';
      std::apply(each, tree);
      text += ')';
    } else {
      text += '{';
      with_fields(tree, each);
      text += '}';
    }
  }
};
/// Returns that of a tuple of these.
template <class... Trees>
Layout layout_of(const Trees&... trees) {
  Layout out;
  out.text += '(';
  (out.add(trees), ...);
  out.text += ')';
  return out;
}
/// Throws TypeError where tangents or cotangents (`kind`) lie otherwise than what they belong to. A
/// tuple of one may stand for it. Other numbers of leaves are refused where the leaves are taken.
POSTERN_API void require_layout(const char* what, const char* kind, const Layout& required,
                                const Layout& got, const Place& place);

[[noreturn]] POSTERN_API void refuse_prefix(const std::string& path, std::size_t parts,
                                            std::size_t given);

/// Appends what the prefix says of each leaf; `path` is for errors.
template <class Tree, class T>
void append_prefix(const Tree& tree, const Prefix<T>& prefix, std::vector<T>& out,
                   const std::string& path) {
  if (prefix.whole()) return visit(tree, [&](const Tensor&) { out.push_back(prefix.value()); });
  // By pieces: of a sum of strings g++ 12 warns in users' optimized builds (array-bounds).
  auto path_of = [&](std::size_t i) {
    std::string part = path;
    part += '[';
    part += std::to_string(i);
    part += ']';
    return part;
  };
  auto each = [&](const auto&... parts) {
    if (prefix.parts().size() != sizeof...(parts))
      refuse_prefix(path, sizeof...(parts), prefix.parts().size());
    std::size_t i = 0;
    ((append_prefix(parts, prefix.parts()[i], out, path_of(i)), ++i), ...);
  };
  auto list = [&](const auto& parts, auto&& part_of) {
    if (prefix.parts().size() != parts.size())
      refuse_prefix(path, parts.size(), prefix.parts().size());
    std::size_t i = 0;
    for (const auto& part : parts) {
      append_prefix(part_of(part), prefix.parts()[i], out, path_of(i));
      ++i;
    }
  };
  if constexpr (is_leaf<Tree> || is_static<Tree>)
    refuse_prefix(path, is_leaf<Tree>, prefix.parts().size());
  else if constexpr (is_tuple<Tree>::value)
    std::apply(each, tree);
  else if constexpr (is_vector<Tree>::value)
    list(
        tree, [](const auto& part) -> const auto& { return part; });
  else if constexpr (is_map<Tree>::value)
    list(
        tree, [](const auto& entry) -> const auto& { return entry.second; });
  else if constexpr (is_optional<Tree>::value) {
    if (tree) append_prefix(*tree, prefix, out, path);
  } else
    with_fields(tree, each);
}

/// R with each Tensor replaced by an A: the derivative of a container by a container.
template <class R, class A>
struct nested {
  static_assert(sizeof(R) == 0,
                "postern: the result of a Jacobian must be made of Tensor, tuple, pair, array, "
                "vector, map and optional");
};
template <class A>
struct nested<Tensor, A> {
  using type = A;
};
template <class... R, class A>
struct nested<std::tuple<R...>, A> {
  using type = std::tuple<typename nested<R, A>::type...>;
};
template <class X, class Y, class A>
struct nested<std::pair<X, Y>, A> {
  using type = std::pair<typename nested<X, A>::type, typename nested<Y, A>::type>;
};
template <class R, std::size_t n, class A>
struct nested<std::array<R, n>, A> {
  using type = std::array<typename nested<R, A>::type, n>;
};
template <class R, class A>
struct nested<std::vector<R>, A> {
  using type = std::vector<typename nested<R, A>::type>;
};
template <class R, class A>
struct nested<std::map<std::string, R>, A> {
  using type = std::map<std::string, typename nested<R, A>::type>;
};
template <class R, class A>
struct nested<std::optional<R>, A> {
  using type = std::optional<typename nested<R, A>::type>;
};

/// Returns the structure of the derivative; leaves are empty.
template <class R, class A>
typename nested<R, A>::type nest(const R& result, const A& argument) {
  using Out = typename nested<R, A>::type;
  if constexpr (is_leaf<R>)
    return argument;
  else if constexpr (is_tuple<R>::value)
    return std::apply([&](const auto&... parts) { return Out{nest(parts, argument)...}; }, result);
  else {
    Out out;
    if constexpr (is_vector<R>::value)
      for (const auto& part : result) out.push_back(nest(part, argument));
    else if constexpr (is_map<R>::value)
      for (const auto& [key, part] : result) out.emplace(key, nest(part, argument));
    else if (result)
      out = nest(*result, argument);
    return out;
  }
}

template <std::size_t... argnums>
constexpr bool is_chosen(std::size_t argument) {
  return sizeof...(argnums) == 0 ? argument == 0 : ((argument == argnums) || ...);
}

/// Returns which leaves belong to the arguments that are named; none named: the first.
template <std::size_t... argnums, class... B>
std::vector<bool> active_leaves(const std::tuple<B...>& arguments) {
  std::vector<bool> active;
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    auto add = [&](const auto& argument, bool chosen) {
      visit(argument, [&](const Tensor&) { active.push_back(chosen); });
    };
    (add(std::get<i>(arguments), is_chosen<argnums...>(i)), ...);
  }
  (std::index_sequence_for<B...>());
  return active;
}

/// Returns the arguments that are named: one alone, or a tuple of several. None named: the first.
template <std::size_t... argnums, class... B>
auto chosen(const std::tuple<B...>& arguments) {
  static_assert(((argnums < sizeof...(B)) && ...) && sizeof...(B) > 0,
                "postern: the function has no such argument to differentiate by");
  if constexpr (sizeof...(argnums) == 0)
    return std::get<0>(arguments);
  else if constexpr (sizeof...(argnums) == 1)
    return std::get<(argnums, ...)>(arguments);
  else
    return std::tuple{std::get<argnums>(arguments)...};
}

/// Returns the gradients of the chosen arguments from those of all leaves.
template <std::size_t... argnums, class... B>
auto chosen_with(const std::tuple<B...>& arguments, const Tensors& leaves) {
  return chosen<argnums...>(with_leaves(arguments, leaves));
}

template <class R>
inline constexpr bool is_value_and_aux = false;
template <class Aux>
inline constexpr bool is_value_and_aux<std::pair<Tensor, Aux>> = true;

template <class T>
struct tuple_of {
  using type = std::tuple<T>;
};
template <class... T>
struct tuple_of<std::tuple<T...>> {
  using type = std::tuple<T...>;
};

/// Calls `use(boxed arguments...)` with what `f` is traced for.
template <class F, std::size_t... i, class Use, class... A>
decltype(auto) use_boxed(std::index_sequence<i...>, Use&& use, A&&... arguments) {
  return use(hold_t<decltype(boxed<F, i>(std::forward<A>(arguments)))>(
      boxed<F, i>(std::forward<A>(arguments)))...);
}
template <class F, class Use, class... A>
decltype(auto) with_boxed(Use&& use, A&&... arguments) {
  return use_boxed<F>(std::index_sequence_for<A...>(), std::forward<Use>(use),
                      std::forward<A>(arguments)...);
}

}  // namespace detail
}  // namespace postern
