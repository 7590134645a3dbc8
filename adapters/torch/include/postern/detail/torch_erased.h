// How any function or module of torch becomes one function of lists of tensors.
#pragma once
#include <ATen/core/Tensor.h>
#include <postern/detail/api.h>
#include <postern/place.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace postern::torch::detail {

using TorchTensors = std::vector<at::Tensor>;

/// A parameter of a module: the tensor that the module itself holds.
struct Parameter {
  std::string name;
  at::Tensor tensor;
};

struct Erased {
  std::function<TorchTensors(const TorchTensors&)> run;
  std::uint32_t counts = 0;  // bit k: it takes k tensors
  bool list = false;         // it takes any number
  bool fills = false;        // returns nothing: its last arguments are its results
  bool scripted = false;
  std::vector<Parameter> parameters = {};  // its first operands, put into the module for the time
  std::vector<std::shared_ptr<void>> locks = {};  // of the parameters
  bool takes(std::size_t count) const { return list || (count < 32 && (counts >> count & 1)); }
};

inline constexpr std::size_t most = 8;

inline void append(const at::Tensor& one, TorchTensors& all) { all.push_back(one); }
template <class T>
void append(const std::vector<T>& list, TorchTensors& all) {
  for (const T& one : list) append(one, all);
}
template <class... T>
void append(const std::tuple<T...>& tuple, TorchTensors& all);
template <class A, class B>
void append(const std::pair<A, B>& pair, TorchTensors& all) {
  append(pair.first, all);
  append(pair.second, all);
}
template <class T, std::size_t n>
void append(const std::array<T, n>& list, TorchTensors& all) {
  for (const T& one : list) append(one, all);
}
template <class... T>
void append(const std::tuple<T...>& tuple, TorchTensors& all) {
  std::apply([&](const auto&... part) { (append(part, all), ...); }, tuple);
}

/// Enters what points to a module, a callable, or a module that is no callable. (Torch's holders of
/// modules are callable too, but in a way that cannot be asked for.)
template <class F>
concept Points = requires(F& f) {
  f.operator->();
};
template <class F>
concept HasSignature = std::is_pointer_v<F> || requires {
  &F::operator();
};
template <class F, class... T>
constexpr bool enters() {
  if constexpr (Points<F>) return requires(F & f, const T&... x) {
      f->forward(x...);
    };
  else if constexpr (requires(F & f, const T&... x) { f.forward(x...); })
    return true;
  else if constexpr (sizeof...(T) == 0 && !HasSignature<F>)
    return false;  // many a generic function takes one or more
  else
    return std::is_invocable_v<F&, const T&...>;
}
template <class F, class... T>
decltype(auto) enter(F& f, const T&... x) {
  if constexpr (Points<F>)
    return f->forward(x...);
  else if constexpr (requires { f.forward(x...); })
    return f.forward(x...);
  else
    return f(x...);
}
template <class F, class... T>
TorchTensors listed(F& f, const T&... x) {
  TorchTensors all;
  if constexpr (std::is_void_v<decltype(enter(f, x...))>)
    enter(f, x...);
  else
    append(enter(f, x...), all);
  return all;
}

/// The only parameter of a callable with one signature; void: it has others.
template <class F>
struct OnlyParameter {
  using type = void;
};
template <class F>
struct Member;
template <class C, class R, class... A>
struct Member<R (C::*)(A...)> {
  using type = void;
};
template <class C, class R, class A>
struct Member<R (C::*)(A)> {
  using type = std::decay_t<A>;
};
template <class C, class R, class A>
struct Member<R (C::*)(A) const> {
  using type = std::decay_t<A>;
};
template <class C, class R, class... A>
struct Member<R (C::*)(A...) const> {
  using type = void;
};
template <class F>
requires requires { &F::operator(); }
struct OnlyParameter<F> : Member<decltype(&F::operator())> {};
template <class R, class A>
struct OnlyParameter<R (*)(A)> {
  using type = std::decay_t<A>;
};

template <class F>
constexpr bool takes_list() {
  using Only = typename OnlyParameter<F>::type;
  if constexpr (std::is_void_v<Only> || std::is_same_v<Only, at::Tensor>)
    return false;
  else
    return std::is_constructible_v<Only, const TorchTensors&>;
}

const at::Tensor& any_tensor(std::size_t);  // never defined

template <class F, std::size_t... i>
constexpr bool enters_with(std::index_sequence<i...>) {
  return enters<F, decltype((static_cast<void>(i), at::Tensor()))...>();
}
template <class F, std::size_t... i>
void add_count(Erased& erased, std::array<TorchTensors (*)(F&, const TorchTensors&), most + 1>& by,
               std::index_sequence<i...>) {
  if constexpr (enters_with<F>(std::index_sequence<i...>())) {
    erased.counts |= std::uint32_t{1} << sizeof...(i);
    if constexpr (std::is_void_v<decltype(enter(std::declval<F&>(), any_tensor(i)...))>)
      erased.fills = true;
    by[sizeof...(i)] = [](F& f, const TorchTensors& x) { return listed(f, x[i]...); };
  }
}

template <class G>
std::shared_ptr<const Erased> erase(G&& g) {
  using F = std::decay_t<G>;
  auto erased = std::make_shared<Erased>();
  auto f = std::make_shared<F>(std::forward<G>(g));
  if constexpr (takes_list<F>()) {
    erased->list = true;
    erased->run = [f](const TorchTensors& x) { return listed(*f, x); };
  } else {
    std::array<TorchTensors (*)(F&, const TorchTensors&), most + 1> by{};
    [&]<std::size_t... n>(std::index_sequence<n...>) {
      static_assert((enters_with<F>(std::make_index_sequence<n>()) || ...),
                    "postern: a function of torch takes at::Tensors, at most eight, or one list of "
                    "them; a module has a forward that does");
      (add_count<F>(*erased, by, std::make_index_sequence<n>()), ...);
    }
    (std::make_index_sequence<most + 1>());
    erased->run = [f, by](const TorchTensors& x) { return by[x.size()](*f, x); };
  }
  return erased;
}

}  // namespace postern::torch::detail
