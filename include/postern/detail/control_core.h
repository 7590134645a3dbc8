// The part of control flow that does not depend on types, and how bodies take their carry.
#pragma once
#include <postern/detail/api.h>
#include <postern/detail/transform_tree.h>

namespace postern {

struct ScanOptions;
struct WhileOptions;

namespace detail {

/// Binds branches: `index` (integer or pred) chooses; out of range it is clamped. All branches take
/// all operands.
POSTERN_API Tensors cond(const char* what, const Tensor& index,
                         const std::vector<TensorFunction>& branches, const Tensors& operands,
                         const Place& place);
/// Binds a loop; `paths` name the leaves of the carry in errors.
POSTERN_API Tensors while_loop(const TensorFunction& condition, const TensorFunction& body,
                               const Tensors& init, const std::vector<std::string>& paths,
                               const WhileOptions& options, const Place& place);
/// Loops with body(i, carry) -> carry.
POSTERN_API Tensors fori_loop(const Tensor& lower, const Tensor& upper, const TensorFunction& body,
                              const Tensors& init, const std::vector<std::string>& paths,
                              int unroll, const Place& place);
/// Scans with f(carry, x) -> carry, y. Returns the last carry, then the stacked y.
POSTERN_API Tensors scan(const char* what, const TensorFunction& f, const Tensors& init,
                         const std::vector<std::string>& paths, const Tensors& xs,
                         const ScanOptions& options, const Place& place);

/// Returns what a carry, an operand or a scanned value is held as: numbers, also those in tuples
/// and vectors, become weakly typed scalars.
template <class T>
typename tensors_of<T>::type held(const T& value) {
  using Out = typename tensors_of<T>::type;
  if constexpr (std::is_arithmetic_v<T>)
    return Operand(value).tensor();
  else if constexpr (std::is_same_v<Out, T>)
    return value;
  else if constexpr (is_tuple<T>::value)
    return std::apply([](const auto&... parts) { return Out{held(parts)...}; }, value);
  else {
    Out out;
    if constexpr (is_vector<T>::value)
      for (const auto& part : value) out.push_back(held(part));
    else if constexpr (is_map<T>::value)
      for (const auto& [key, part] : value) out.emplace(key, held(part));
    else if (value)
      out = held(*value);
    return out;
  }
}

/// Returns what f returns, with its numbers held; void functions give an empty tuple.
template <class F, class... A>
auto call_held(F& f, A&... arguments) {
  if constexpr (std::is_void_v<decltype(f(arguments...))>) {
    f(arguments...);
    return std::tuple<>();
  } else
    return held(f(arguments...));
}

/// Returns f(lead..., carry), or f(lead..., parts of carry...) when it is a tuple whose parts f
/// takes one by one.
template <class F, class Carry, class... Lead>
auto call_with_carry(F& f, Carry& carry, Lead&... lead) {
  if constexpr (std::is_invocable_v<F&, Lead&..., Carry&>)
    return call_held(f, lead..., carry);
  else if constexpr (is_tuple<Carry>::value)
    return std::apply([&](auto&... parts) { return call_held(f, lead..., parts...); }, carry);
  else
    static_assert(
        sizeof(F) == 0,
        "postern: the body of a loop must take the carry, or the parts of a tuple one by one");
}

template <class R>
inline constexpr bool is_std_pair = false;
template <class A, class B>
inline constexpr bool is_std_pair<std::pair<A, B>> = true;

/// Returns f(carry, x) with numbers among what it returns as tensors.
template <class F, class Carry, class X>
auto call_scanned(F& f, Carry& carry, X& x) {
  auto result = f(carry, x);
  static_assert(
      is_std_pair<decltype(result)>,
      "postern: the function of a scan returns std::pair{carry, y}; y may be std::tuple<>()");
  return std::pair{held(result.first), held(result.second)};
}

/// Returns a body as a function of leaves: (lead..., carry) -> result, whose structure it checks
/// against the carry's.
template <class F, class Carry, class... Lead>
TensorFunction flat_body(F f, const Carry& carry, const char* what, const Place& place,
                         bool same_structure, const Lead&... lead) {
  return [f = Shared<F>(std::move(f)),
          like = std::tuple<Lead..., Carry>(emptied(lead)..., emptied(carry)), what, place,
          same_structure](std::span<const Tensor> leaves) {
    const Tensor* next = leaves.data();
    auto arguments = with_leaves(like, next);
    const auto result = [&]<std::size_t... i>(std::index_sequence<i...>) {
      return call_with_carry(*f, std::get<sizeof...(Lead)>(arguments), std::get<i>(arguments)...);
    }
    (std::index_sequence_for<Lead...>());
    if (same_structure)
      require_structure(what, structure_of(std::get<sizeof...(Lead)>(like)), structure_of(result),
                        place);
    return leaves_of(result);
  };
}

template <class F, class... B>
using branch_result = decltype(call_held(std::declval<const F&>(), std::declval<B&>()...));

/// Branches as functions of leaves that return one structure.
template <class R, class... B>
struct Branches {
  std::vector<TensorFunction> functions;
  std::shared_ptr<std::optional<R>> like = std::make_shared<std::optional<R>>();

  template <class F>
  void add(F f, const char* what, const Place& place, const B&... operands) {
    static_assert(std::is_same_v<branch_result<F, B...>, R>,
                  "postern: all branches must return the same type of container");
    auto held_f = [f = std::move(f)](B&... arguments) { return call_held(f, arguments...); };
    functions.push_back([flat = Flat<decltype(held_f), B...>(
                             Shared<decltype(held_f)>(std::move(held_f)), operands...),
                         first = like, what, place](std::span<const Tensor> leaves) {
      Tensors out = flat(leaves);
      if (*first)
        require_structure(what, structure_of(**first), structure_of(flat.like()), place);
      else
        *first = flat.like();
      return out;
    });
  }
};

template <class Functions, class Use>
void each_branch(const Functions& branches, Use&& use) {
  if constexpr (is_tuple<Functions>::value)
    std::apply([&](const auto&... f) { (use(f), ...); }, branches);
  else
    for (const auto& f : branches) use(f);
}
template <class Functions, class... B>
struct SwitchResult : SwitchResult<std::tuple<typename Functions::value_type>, B...> {};
template <class First, class... Rest, class... B>
struct SwitchResult<std::tuple<First, Rest...>, B...> {
  using type = branch_result<First, B...>;
};
template <class Functions, class... B>
using switch_result = typename SwitchResult<Functions, B...>::type;

/// Returns pair{last carry, stacked y}.
template <class F, class Carry, class Xs>
auto scan_over(F f, const Carry& start, const Xs& over, const ScanOptions& options,
               const Place& place, const char* what = "scan") {
  const auto init = held(start);
  const auto xs = held(over);
  using C = std::decay_t<decltype(init)>;
  using X = std::decay_t<decltype(xs)>;
  using R = decltype(call_scanned(f, std::declval<C&>(), std::declval<X&>()));
  static_assert(
      is_std_pair<R>,
      "postern: the function of a scan returns std::pair{carry, y}; y may be std::tuple<>()");
  using Y = typename R::second_type;
  auto like = std::make_shared<std::optional<Y>>();
  auto flat = [f = Shared<F>(std::move(f)), c = emptied(init), x = emptied(xs), like,
               place](std::span<const Tensor> leaves) {
    const Tensor* next = leaves.data();
    C carry = with_leaves(c, next);
    X part = with_leaves(x, next);
    R result = call_scanned(*f, carry, part);
    require_structure("scan: the carry", structure_of(c), structure_of(result.first), place);
    Tensors out = leaves_of(result.first, result.second);
    *like = emptied(std::move(result.second));
    return out;
  };
  const Tensors leaves =
      detail::scan(what, flat, leaves_of(init), paths_of(init), leaves_of(xs), options, place);
  const Tensor* next = leaves.data();
  C last = with_leaves(init, next);
  return std::pair{std::move(last), with_leaves(**like, next)};
}

}  // namespace detail
}  // namespace postern
