// How any callable becomes a Callee: its parameters are read off its type, once, and its entry is
// one function pointer.
#pragma once
#include <postern/detail/api.h>
#include <postern/detail/function.h>
#include <postern/detail/small_vector.h>
#include <postern/host.h>
#include <postern/tensor.h>

#include <array>
#include <concepts>
#include <tuple>
#include <type_traits>

namespace postern {

namespace detail {

template <class F>
struct Signature : Signature<decltype(&F::operator())> {};
template <class R, class... A>
struct Signature<R (*)(A...)> {
  using Result = R;
  using Parameters = std::tuple<A...>;
};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...)> : Signature<R (*)(A...)> {};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) const> : Signature<R (*)(A...)> {};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) noexcept> : Signature<R (*)(A...)> {};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) const noexcept> : Signature<R (*)(A...)> {};
template <class R, class... A>
struct Signature<R (*)(A...) noexcept> : Signature<R (*)(A...)> {};

template <class F>
concept HasSignature = std::is_function_v<std::remove_pointer_t<std::decay_t<F>>> || requires {
  &std::decay_t<F>::operator();
};

// Checks results by value. Each is checked against the declared leaf; all before the first byte is
// written.
POSTERN_API void check_result_count(const Firing& firing, std::size_t got,
                                    const std::string& structure);
POSTERN_API void check_result(const Firing& firing, std::size_t leaf, DType dtype,
                              std::span<const std::int64_t> dims);
POSTERN_API void check_result(const Firing& firing, std::size_t leaf, const Tensor& value);
POSTERN_API void write_result(const Firing& firing, std::size_t leaf, const void* data);
POSTERN_API void write_result(const Firing& firing, std::size_t leaf, const Tensor& value);

template <class R>
struct Returned;
template <Element R>
struct Returned<R> {
  static void check(const Firing& f, std::size_t leaf, const R&) {
    check_result(f, leaf, dtype_v<R>, {});
  }
  static void write(const Firing& f, std::size_t leaf, const R& r) { write_result(f, leaf, &r); }
};
template <Element T>
struct Returned<Array<T>> {
  static void check(const Firing& f, std::size_t leaf, const Array<T>& r) {
    std::int64_t size = 1;
    for (std::int64_t d : r.dims) size *= d;
    const std::int64_t count[] = {static_cast<std::int64_t>(r.data.size())};
    if (size != count[0]) check_result(f, leaf, dtype_v<T>, count);
    check_result(f, leaf, dtype_v<T>, r.dims);
  }
  static void write(const Firing& f, std::size_t leaf, const Array<T>& r) {
    Returned<std::vector<T>>::write(f, leaf, r.data);
  }
};
template <Element T>
struct Returned<std::vector<T>> {
  static void check(const Firing& f, std::size_t leaf, const std::vector<T>& r) {
    const std::int64_t dims[] = {static_cast<std::int64_t>(r.size())};
    check_result(f, leaf, dtype_v<T>, dims);
  }
  static void write(const Firing& f, std::size_t leaf, const std::vector<T>& r) {
    if constexpr (std::is_same_v<T, bool>)
      std::copy(r.begin(), r.end(), static_cast<bool*>(f.data[f.operands + leaf]));
    else
      write_result(f, leaf, r.data());
  }
};
template <Element T, std::size_t n>
struct Returned<std::array<T, n>> {
  static void check(const Firing& f, std::size_t leaf, const std::array<T, n>&) {
    const std::int64_t dims[] = {static_cast<std::int64_t>(n)};
    check_result(f, leaf, dtype_v<T>, dims);
  }
  static void write(const Firing& f, std::size_t leaf, const std::array<T, n>& r) {
    write_result(f, leaf, r.data());
  }
};
template <class T>
struct Returned<View<T>> {
  static void check(const Firing& f, std::size_t leaf, const View<T>& r) {
    check_result(f, leaf, dtype_v<std::remove_const_t<T>>, r.dims());
  }
  static void write(const Firing& f, std::size_t leaf, const View<T>& r) {
    write_result(f, leaf, r.data());
  }
};
template <>
struct Returned<Tensor> {
  static void check(const Firing& f, std::size_t leaf, const Tensor& r) {
    check_result(f, leaf, r);
  }
  static void write(const Firing& f, std::size_t leaf, const Tensor& r) {
    write_result(f, leaf, r);
  }
};

template <class R>
concept OneResult = requires {
  &Returned<R>::write;
};
template <class R>
inline constexpr bool result_tuple = false;
template <class... R>
inline constexpr bool result_tuple<std::tuple<R...>> = (OneResult<std::decay_t<R>> && ...);
template <class A, class B>
inline constexpr bool result_tuple<std::pair<A, B>> = OneResult<A>&& OneResult<B>;

template <class R>
void give_back(const Firing& firing, const R& r) {
  if constexpr (OneResult<R>) {
    check_result_count(firing, 1, "*");
    Returned<R>::check(firing, 0, r);
    Returned<R>::write(firing, 0, r);
  } else {
    static_assert(result_tuple<R>,
                  "postern: a host function returns void, a number, std::vector, std::array, "
                  "Array, Tensor, or a tuple of these");
    std::string structure = "(";
    for (std::size_t i = 0; i < std::tuple_size_v<R>; ++i) structure += i ? ",*" : "*";
    check_result_count(firing, std::tuple_size_v<R>, structure + ")");
    std::apply(
        [&](const auto&... part) {
          std::size_t i = 0;
          (Returned<std::decay_t<decltype(part)>>::check(firing, i++, part), ...);
          i = 0;
          (Returned<std::decay_t<decltype(part)>>::write(firing, i++, part), ...);
        },
        r);
  }
}

// A parameter: what it takes, and how it is made from leaf `i` of a firing.
inline constexpr std::size_t inline_leaves = 16;
template <class P>
struct Taken {
  static_assert(sizeof(P) == 0,
                "postern: a host function takes View<const T>, View<T>, AnyView, AnyMutableView, "
                "numbers, or spans of the views");
};
template <class T>
struct Taken<View<T>> {
  static constexpr Parameter parameter{
      std::is_const_v<T> ? Parameter::Kind::view : Parameter::Kind::mutable_view,
      dtype_v<std::remove_const_t<T>>};
  static View<T> make(const Firing& f, std::size_t i) {
    const LeafLayout& leaf = f.leaves[i];
    return {static_cast<T*>(f.data[i]), leaf.dims, leaf.rank, leaf.size};
  }
};
template <class Byte>
struct Taken<BasicAnyView<Byte>> {
  static constexpr Parameter parameter{
      std::is_const_v<Byte> ? Parameter::Kind::any_view : Parameter::Kind::any_mutable_view,
      DType::token};
  static BasicAnyView<Byte> make(const Firing& f, std::size_t i) {
    const LeafLayout& leaf = f.leaves[i];
    return {leaf.dtype, static_cast<Byte*>(f.data[i]), leaf.dims, leaf.rank, leaf.size};
  }
};
template <Element T>
struct Taken<T> {
  static constexpr Parameter parameter{Parameter::Kind::number, dtype_v<T>};
  static T make(const Firing& f, std::size_t i) { return *static_cast<const T*>(f.data[i]); }
};
/// All operands or all results at once; up to `inline_leaves` views need no allocation.
template <class Byte>
class ViewList : public SmallVector<BasicAnyView<Byte>, inline_leaves> {
 public:
  ViewList(const Firing& f, std::size_t begin, std::size_t end)
      : SmallVector<BasicAnyView<Byte>, inline_leaves>(end - begin) {
    for (auto& view : *this) view = Taken<BasicAnyView<Byte>>::make(f, begin++);
  }
};
template <class Byte>
struct Taken<std::span<const BasicAnyView<Byte>>> {
  static constexpr bool operands = std::is_const_v<Byte>;
  static constexpr Parameter parameter{
      operands ? Parameter::Kind::all_operands : Parameter::Kind::all_results, DType::token};
  static ViewList<Byte> make(const Firing& f, std::size_t) {
    return operands ? ViewList<Byte>(f, 0, f.operands)
                    : ViewList<Byte>(f, f.operands, f.operands + f.results);
  }
};

template <class P, class... Rest>
constexpr bool leads_with(const std::tuple<Rest...>*, std::size_t at) {
  std::size_t i = 0;
  bool found = false;
  ((found |= (i++ == at && std::is_same_v<std::decay_t<Rest>, P>)), ...);
  return found;
}

/// Returns how many of the first parameters are context, not leaves.
template <class Parameters>
constexpr std::size_t context_count() {
  constexpr auto* none = static_cast<Parameters*>(nullptr);
  constexpr bool attributes = leads_with<Attributes>(none, 0);
  constexpr bool info =
      leads_with<CallInfo>(none, attributes) || leads_with<TapInfo>(none, attributes);
  return attributes + info;
}

template <class P>
decltype(auto) context_argument(const Firing& f) {
  if constexpr (std::is_same_v<std::decay_t<P>, Attributes>)
    return static_cast<const Attributes&>(*f.declared->attributes);
  else if constexpr (std::is_same_v<std::decay_t<P>, CallInfo>)
    return static_cast<const CallInfo&>(*f.info);
  else
    return static_cast<const TapInfo&>(*f.info);
}

/// Is the erased entry: makes the arguments and calls; leaf parameters follow the context ones. A
/// span stands for all leaves of its side.
template <class F, class Parameters, std::size_t... c, std::size_t... i>
decltype(auto) enter(F& f, const Firing& firing, std::index_sequence<c...>,
                     std::index_sequence<i...>) {
  constexpr std::size_t skip = sizeof...(c);
  [[maybe_unused]] constexpr auto leaf_of = [](std::size_t position,
                                               const Firing& g) -> std::size_t {
    constexpr bool spans[] = {
        false, (Taken<std::decay_t<std::tuple_element_t<skip + i, Parameters>>>::parameter.kind ==
                Parameter::Kind::all_operands)...};
    // Passes one span for all operands; the results' leaves follow.
    return (sizeof...(i) > 0 && spans[1] && position > 0) ? g.operands + position - 1 : position;
  };
  return f(context_argument<std::tuple_element_t<c, Parameters>>(firing)...,
           Taken<std::decay_t<std::tuple_element_t<skip + i, Parameters>>>::make(
               firing, leaf_of(i, firing))...);
}

/// Returns what there is to say of all host functions of one signature.
template <class Parameters, class Result>
std::shared_ptr<HostFunction> described() {
  constexpr std::size_t context = context_count<Parameters>();
  auto host = std::make_shared<HostFunction>();
  constexpr auto* none = static_cast<Parameters*>(nullptr);
  host->wants_attributes = leads_with<Attributes>(none, 0);
  host->wants_call_info = context > 0 && leads_with<CallInfo>(none, context - 1);
  host->wants_tap_info = context > 0 && leads_with<TapInfo>(none, context - 1);
  host->by_value = !std::is_void_v<Result>;
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    host->parameters = {
        Taken<std::decay_t<std::tuple_element_t<context + i, Parameters>>>::parameter...};
  }
  (std::make_index_sequence<std::tuple_size_v<Parameters> - context>{});
  return host;
}

template <class F>
std::shared_ptr<const HostFunction> erase(F&& f) {
  using Fn = std::decay_t<F>;
  using Parameters = typename Signature<Fn>::Parameters;
  using Result = std::decay_t<typename Signature<Fn>::Result>;
  auto host = described<Parameters, Result>();
  host->invoke = [](void* object, const Firing& firing) {
    Fn& fn = *static_cast<Fn*>(object);
    constexpr std::size_t context = context_count<Parameters>();
    constexpr auto c = std::make_index_sequence<context>{};
    constexpr auto l = std::make_index_sequence<std::tuple_size_v<Parameters> - context>{};
    if constexpr (std::is_void_v<Result>)
      enter<Fn, Parameters>(fn, firing, c, l);
    else if (firing.results == 0)
      static_cast<void>(enter<Fn, Parameters>(fn, firing, c, l));
    else
      give_back<Result>(firing, enter<Fn, Parameters>(fn, firing, c, l));
  };
  host->object = hold<Fn>(std::forward<F>(f));
  return host;
}

}  // namespace detail

class Callee {
 public:
  /// Takes a callable. A null function pointer or empty std::function is a TypeError.
  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, Callee> && !std::is_same_v<std::decay_t<F>, Named>)
      Callee(F&& f, Place place = Place::current())
      : place_(place) {
    static_assert(
        detail::HasSignature<F>,
        "postern: a host function must be callable, with parameters of stated types (no auto)");
    if constexpr (std::is_pointer_v<std::remove_cvref_t<F>> || requires { f.operator bool(); })
      check_callable(static_cast<bool>(f), place);
    function_ = detail::erase(std::forward<F>(f));
  }
  Callee(Named named, Place place = Place::current()) : named_(std::move(named)), place_(place) {}

  const std::shared_ptr<const detail::HostFunction>& function() const { return function_; }
  const Named& named() const { return named_; }  // name empty for a closure
  const Place& place() const { return place_; }

 private:
  POSTERN_API static void check_callable(bool callable, Place place);
  std::shared_ptr<const detail::HostFunction> function_;
  Named named_;
  Place place_;
};

}  // namespace postern
