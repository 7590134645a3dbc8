// Containers: values whose leaves are tensors. A Tensor, std::tuple, pair, array, vector,
// map<string, ...>, optional, or a plain aggregate of containers, nested at will. Numbers, enums
// and strings inside are static: they are kept and take part in cache keys.
//
//   struct Layer {
//     pn::Tensor w, b;
//   };
//   using State = std::tuple<std::vector<Layer>, std::map<std::string, pn::Tensor>, int>;
#pragma once
#include <postern/detail/aggregate.h>
#include <postern/detail/api.h>
#include <postern/tensor.h>

#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace postern {

/// A container in another one that has a name there, which the paths of its leaves show in place of
/// its number: what `named` returns.
template <class T>
struct WithName {
  std::string name;
  T value;
};

namespace detail {

template <class T>
inline constexpr bool is_leaf = std::is_same_v<T, Tensor> || std::is_same_v<T, Type>;
template <class T>
inline constexpr bool is_static =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_convertible_v<T, std::string_view>;
template <class T>
struct is_tuple : std::false_type {};
template <class... T>
struct is_tuple<std::tuple<T...>> : std::true_type {};
template <class A, class B>
struct is_tuple<std::pair<A, B>> : std::true_type {};
template <class T, std::size_t n>
struct is_tuple<std::array<T, n>> : std::true_type {};
template <class T>
struct is_vector : std::false_type {};
template <class T>
struct is_vector<std::vector<T>> : std::true_type {};
template <class T>
struct is_map : std::false_type {};
template <class T>
struct is_map<std::map<std::string, T>> : std::true_type {};
template <class T>
struct is_optional : std::false_type {};
template <class T>
struct is_optional<std::optional<T>> : std::true_type {};

template <class T>
inline constexpr bool is_named = false;
template <class T>
inline constexpr bool is_named<WithName<T>> = true;

/// Calls `leaf(Tensor-or-Type&)` for each leaf in order, and writes the structure's text to `note`
/// when it is not null.
template <class Tree, class Leaf>
void visit(Tree& tree, Leaf&& leaf, std::string* note = nullptr) {
  using T = std::remove_const_t<Tree>;
  auto write = [note](std::string_view text) {
    if (note) note->append(text);
  };
  auto each = [&](auto&... parts) { ((visit(parts, leaf, note), write(",")), ...); };
  if constexpr (is_leaf<T>) {
    leaf(tree);
    write("*");
  } else if constexpr (std::is_enum_v<T>) {
    if (note) write(std::to_string(static_cast<long long>(tree)));
  } else if constexpr (std::is_arithmetic_v<T>) {
    if (note) {
      char text[40];
      write({text, static_cast<std::size_t>(std::to_chars(text, text + 40, +tree).ptr - text)});
    }
  } else if constexpr (is_static<T>) {
    if (note) {
      write(std::to_string(std::string_view(tree).size()));
      write(":");
      write(tree);
    }
  } else if constexpr (is_tuple<T>::value) {
    write("(");
    std::apply(each, tree);
    write(")");
  } else if constexpr (is_vector<T>::value) {
    write("[");
    if constexpr (std::is_same_v<T, std::vector<bool>>)
      for (const bool part : tree) each(part);
    else
      for (auto& part : tree) each(part);
    write("]");
  } else if constexpr (is_map<T>::value) {
    write("{");
    for (auto& [key, part] : tree) {
      write(std::to_string(key.size()));
      write(":");
      write(key);
      each(part);
    }
    write("}");
  } else if constexpr (is_optional<T>::value) {
    write("?(");
    if (tree) each(*tree);
    write(")");
  } else {
    static_assert(is_aggregate_container<T>,
                  "postern: not a container: only Tensor, tuple, pair, array, vector, map<string, "
                  "...>, optional and plain aggregates of them");
    write("{");
    with_fields(tree, each);
    write("}");
  }
}

/// Appends the path of each leaf: "[0].mean"; a leaf alone has the empty path.
template <class Tree>
void leaf_paths(const Tree& tree, const std::string& prefix, std::vector<std::string>& paths) {
  auto one = [&]<class Part>(const Part& part, std::size_t i) {
    leaf_paths(part, is_named<Part> ? prefix : prefix + "[" + std::to_string(i) + "]", paths);
  };
  auto indexed = [&](const auto&... parts) {
    std::size_t i = 0;
    (one(parts, i++), ...);
  };
  if constexpr (is_leaf<Tree>)
    paths.push_back(prefix);
  else if constexpr (is_static<Tree>)
    return;
  else if constexpr (is_tuple<Tree>::value)
    std::apply(indexed, tree);
  else if constexpr (is_vector<Tree>::value) {
    for (std::size_t i = 0; i < tree.size(); ++i) one(tree[i], i);
  } else if constexpr (is_map<Tree>::value) {
    for (const auto& [key, part] : tree) leaf_paths(part, prefix + "." + key, paths);
  } else if constexpr (is_optional<Tree>::value) {
    if (tree) leaf_paths(*tree, prefix, paths);
  } else if constexpr (is_named<Tree>) {
    leaf_paths(tree.value, prefix + "." + tree.name, paths);
  } else {
    with_fields(tree, [&](const auto&... parts) {
      std::size_t i = 0;
      (leaf_paths(parts, prefix + "." + std::string(field_names<Tree>()[i++]), paths), ...);
    });
  }
}

/// Returns whether the number and order of leaves follow from the C++ type alone, without static
/// values.
template <class T>
constexpr bool fixed_structure() {
  if constexpr (is_leaf<T>)
    return true;
  else if constexpr (is_static<T> || is_vector<T>::value || is_map<T>::value ||
                     is_optional<T>::value)
    return false;
  else if constexpr (is_tuple<T>::value) {
    return []<std::size_t... i>(std::index_sequence<i...>) {
      return (fixed_structure<std::tuple_element_t<i, T>>() && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<T>>{});
  } else
    return false;
}

/// The container of tensors that a template of types stands for: Type and numbers become Tensor.
template <class T>
struct tensors_of {
  using type = T;
};
template <>
struct tensors_of<Type> {
  using type = Tensor;
};
template <class T>
requires std::is_arithmetic_v<T>
struct tensors_of<T> {
  using type = Tensor;
};
template <class... T>
struct tensors_of<std::tuple<T...>> {
  using type = std::tuple<typename tensors_of<T>::type...>;
};
template <class A, class B>
struct tensors_of<std::pair<A, B>> {
  using type = std::pair<typename tensors_of<A>::type, typename tensors_of<B>::type>;
};
template <class T, std::size_t n>
struct tensors_of<std::array<T, n>> {
  using type = std::array<typename tensors_of<T>::type, n>;
};
template <class T>
struct tensors_of<std::vector<T>> {
  using type = std::vector<typename tensors_of<T>::type>;
};
template <class T>
struct tensors_of<std::map<std::string, T>> {
  using type = std::map<std::string, typename tensors_of<T>::type>;
};
template <class T>
struct tensors_of<std::optional<T>> {
  using type = std::optional<typename tensors_of<T>::type>;
};

/// Returns `like` with its types and numbers turned into abstract tensors.
template <class T>
typename tensors_of<T>::type abstract_tree(const T& like) {
  if constexpr (std::is_same_v<T, Type>)
    return abstract(like);
  else if constexpr (std::is_arithmetic_v<T>)
    return abstract(make_type(dtype_v<T>, {}));
  else if constexpr (std::is_same_v<typename tensors_of<T>::type, T>)
    return like;
  else if constexpr (is_tuple<T>::value)
    return std::apply(
        [](const auto&... parts) { return typename tensors_of<T>::type{abstract_tree(parts)...}; },
        like);
  else if constexpr (is_vector<T>::value) {
    typename tensors_of<T>::type out;
    for (const auto& part : like) out.push_back(abstract_tree(part));
    return out;
  } else if constexpr (is_map<T>::value) {
    typename tensors_of<T>::type out;
    for (const auto& [key, part] : like) out.emplace(key, abstract_tree(part));
    return out;
  } else {
    typename tensors_of<T>::type out;
    if (like) out = abstract_tree(*like);
    return out;
  }
}

/// Appends all leaves of a container of tensors, in order.
template <class Tree>
void append_leaves(const Tree& tree, std::vector<Tensor>& leaves) {
  visit(tree, [&](const Tensor& leaf) { leaves.push_back(leaf); });
}
template <class... Trees>
std::vector<Tensor> leaves_of(const Trees&... trees) {
  std::vector<Tensor> leaves;
  (append_leaves(trees, leaves), ...);
  return leaves;
}

/// Returns `tree` with its leaves replaced, in order, starting at `next`, which is moved on.
template <class Tree>
Tree with_leaves(Tree tree, const Tensor*& next) {
  visit(tree, [&](Tensor& leaf) { leaf = *next++; });
  return tree;
}
template <class Tree>
Tree with_leaves(Tree tree, const std::vector<Tensor>& leaves) {
  const Tensor* next = leaves.data();
  return with_leaves(std::move(tree), next);
}

/// Returns the structure as text: "(*,[*,*,],)"; equal texts mean equal structure and static
/// values.
template <class Tree>
std::string structure_of(const Tree& tree) {
  std::string text;
  visit(
      tree, [](const auto&) {}, &text);
  return text;
}

/// Throws TypeError unless both texts of a structure agree.
POSTERN_API void require_structure(const char* what, const std::string& required,
                                   const std::string& got, const Place& place);

template <class F, class Tree, class... Trees>
Tree map_leaves_at(const Place& place, F& f, Tree tree, const Trees&... others) {
  const std::string structure = structure_of(tree);
  (require_structure("map_leaves: a container", structure, structure_of(others), place), ...);
  const std::array rest{leaves_of(others)...};
  std::size_t i = 0;
  visit(tree, [&](Tensor& leaf) {
    leaf = std::apply([&](const auto&... r) { return f(std::as_const(leaf), r[i]...); }, rest);
    ++i;
  });
  return tree;
}

}  // namespace detail

/// Returns the leaves of a container, in order. Throws nothing.
template <class Tree>
[[nodiscard]] std::vector<Tensor> leaves(const Tree& tree) {
  return detail::leaves_of(tree);
}

/// Returns the same container with `f(leaf)` in place of each leaf. Throws what `f` throws.
///
///   const std::pair parameters{pn::tensor<float>({1, 2}), pn::tensor<float>({3})};
///   const auto halved = pn::map_leaves([](pn::Tensor p) { return 0.5f * p; }, parameters);
///   const pn::Tensor y = halved.first;  // [0.5 1]
template <class F, class Tree>
Tree map_leaves(F&& f, Tree tree) {
  detail::visit(tree, [&](Tensor& leaf) { leaf = f(std::as_const(leaf)); });
  return tree;
}

/// Returns the first container with `f(leaf, other...)` in place of each leaf, of containers that
/// have one structure, as parameters and their gradients have. Throws TypeError where their
/// structures or static values differ, and what `f` throws.
///
///   const std::pair p{pn::tensor<float>({1, 2}), pn::Tensor(3.0f)};
///   const std::pair g{pn::tensor<float>({10, 20}), pn::Tensor(30.0f)};
///   const auto next = pn::map_leaves([](pn::Tensor p, pn::Tensor g) { return p - 0.1f * g; }, p,
///   g); const pn::Tensor y = next.first;  // [0 0]
template <class F, class Tree, class Other>
Tree map_leaves(F&& f, const Tree& tree, const Other& other, Place place = Place::current()) {
  return detail::map_leaves_at(place, f, tree, other);
}
template <class F, class Tree, class Other, class Third>
Tree map_leaves(F&& f, const Tree& tree, const Other& other, const Third& third,
                Place place = Place::current()) {
  return detail::map_leaves_at(place, f, tree, other, third);
}
template <class F, class Tree, class Other, class Third, class Fourth>
Tree map_leaves(F&& f, const Tree& tree, const Other& other, const Third& third,
                const Fourth& fourth, Place place = Place::current()) {
  return detail::map_leaves_at(place, f, tree, other, third, fourth);
}

/// Returns a part of a tuple, pair, array or vector that has a name there: what shows paths shows
/// `train.loss` in place of `train[0]`. The name is static, the part is `.value`. Throws nothing.
///
///   auto f = pn::jit([](pn::Tensor x) {
///     const pn::Tensor loss = pn::mean(x * x);
///     pn::tap({.name = "train"}, std::tuple{pn::named("loss", loss), pn::named("x", x)},
///             [](const pn::TapInfo& info, std::span<const pn::AnyView> leaves) {
///               std::cout << info.paths[0] << "\n";  // .loss
///             });
///     return loss;
///   });
///   const pn::Tensor y = f(pn::tensor<float>({1, 3}));  // 5
template <class T>
[[nodiscard]] WithName<T> named(std::string name, T part) {
  return {std::move(name), std::move(part)};
}
/// Takes a number, which is a leaf. Throws nothing.
template <class T>
requires std::is_arithmetic_v<T>
[[nodiscard]] WithName<Tensor> named(std::string name, T number) {
  return {std::move(name), Tensor(number)};
}

}  // namespace postern
