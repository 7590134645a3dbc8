// Callables of any type behind one type. A program has a type for each lambda, so what is made once
// for each of them is what its compile time consists of: std::shared_ptr<F> makes some forty
// functions for each F, std::function<R(A...)> fifteen, these two or three.
#pragma once
#include <memory>
#include <type_traits>
#include <utility>

namespace postern::detail {

/// Keeps `value` on the heap, for as long as somebody holds it.
template <class T>
std::shared_ptr<void> hold(T value) {
  void (*const drop)(void*) = [](void* held) { delete static_cast<T*>(held); };
  return {static_cast<void*>(new T(std::move(value))), drop};
}

/// An F that copies share.
template <class F>
class Shared {
 public:
  explicit Shared(F f) : held_(hold<F>(std::move(f))) {}
  F& operator*() const { return *static_cast<F*>(held_.get()); }

 private:
  std::shared_ptr<void> held_;
};

template <class>
class Function;
/// Any callable as R(A...); copies share it. Made of nothing, it is false and must not be called.
template <class R, class... A>
class Function<R(A...)> {
 public:
  Function() = default;
  template <class F>
  requires(!std::is_same_v<F, Function>) Function(F f)
      : held_(hold<F>(std::move(f))), call_([](void* held, A... a) -> R {
          return (*static_cast<F*>(held))(std::forward<A>(a)...);
        }) {}
  R operator()(A... a) const { return call_(held_.get(), std::forward<A>(a)...); }
  explicit operator bool() const { return call_ != nullptr; }

 private:
  std::shared_ptr<void> held_;
  R (*call_)(void*, A...) = nullptr;
};

template <class>
class FunctionRef;
/// A reference to a callable that lives as long as the call that it is given to.
template <class R, class... A>
class FunctionRef<R(A...)> {
 public:
  template <class F>
  requires(!std::is_same_v<F, FunctionRef>) FunctionRef(const F& f)
      : object_(&f), call_([](const void* object, A... a) -> R {
          return (*static_cast<const F*>(object))(std::forward<A>(a)...);
        }) {}
  R operator()(A... a) const { return call_(object_, std::forward<A>(a)...); }

 private:
  const void* object_;
  R (*call_)(const void*, A...);
};

}  // namespace postern::detail
