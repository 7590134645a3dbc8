// Fields of plain aggregates, without a declaration by the user: their number, references to them,
// and their names.
#pragma once
#include <array>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace postern::detail {

struct AnyField {
  template <class T>
  operator T() const noexcept;  // never defined
};

template <class T, std::size_t... i>
constexpr bool has_fields(std::index_sequence<i...>) {
  return requires { T{((void)i, AnyField{})...}; };
}

template <class T, std::size_t n = 16>
constexpr std::size_t field_count() {
  if constexpr (has_fields<T>(std::make_index_sequence<n>{}))
    return n;
  else if constexpr (n == 0)
    return 0;
  else
    return field_count<T, n - 1>();
}

template <class T>
inline constexpr bool is_aggregate_container = std::is_class_v<T>&& std::is_aggregate_v<T>;

/// Returns f(field...) for the fields of an aggregate of at most 16, in the order of their
/// declaration, as references into `object`; returns what `f` does. A structured binding must spell
/// its names out, so there is one for each number of fields; C++ has no other way to take an
/// aggregate apart that does not ask its author for a list.
template <class T, class F>
constexpr decltype(auto) with_fields(T& object, F&& f) {
  constexpr std::size_t n = field_count<std::remove_const_t<T>>();
  if constexpr (n == 0) {
    return f();
  } else if constexpr (n == 1) {
    auto& [a] = object;
    return f(a);
  } else if constexpr (n == 2) {
    auto& [a, b] = object;
    return f(a, b);
  } else if constexpr (n == 3) {
    auto& [a, b, c] = object;
    return f(a, b, c);
  } else if constexpr (n == 4) {
    auto& [a, b, c, d] = object;
    return f(a, b, c, d);
  } else if constexpr (n == 5) {
    auto& [a, b, c, d, e] = object;
    return f(a, b, c, d, e);
  } else if constexpr (n == 6) {
    auto& [a, b, c, d, e, g] = object;
    return f(a, b, c, d, e, g);
  } else if constexpr (n == 7) {
    auto& [a, b, c, d, e, g, h] = object;
    return f(a, b, c, d, e, g, h);
  } else if constexpr (n == 8) {
    auto& [a, b, c, d, e, g, h, i] = object;
    return f(a, b, c, d, e, g, h, i);
  } else if constexpr (n == 9) {
    auto& [a, b, c, d, e, g, h, i, j] = object;
    return f(a, b, c, d, e, g, h, i, j);
  } else if constexpr (n == 10) {
    auto& [a, b, c, d, e, g, h, i, j, k] = object;
    return f(a, b, c, d, e, g, h, i, j, k);
  } else if constexpr (n == 11) {
    auto& [a, b, c, d, e, g, h, i, j, k, l] = object;
    return f(a, b, c, d, e, g, h, i, j, k, l);
  } else if constexpr (n == 12) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m] = object;
    return f(a, b, c, d, e, g, h, i, j, k, l, m);
  } else if constexpr (n == 13) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, o] = object;
    return f(a, b, c, d, e, g, h, i, j, k, l, m, o);
  } else if constexpr (n == 14) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, o, p] = object;
    return f(a, b, c, d, e, g, h, i, j, k, l, m, o, p);
  } else if constexpr (n == 15) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, o, p, q] = object;
    return f(a, b, c, d, e, g, h, i, j, k, l, m, o, p, q);
  } else {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r] = object;
    return f(a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r);
  }
}

// Names are read off the compiler's spelling of a pointer to the field of an object that is never
// defined.
template <class T>
struct Phantom {
  T value;
};
#ifdef __clang__  // which would like it to be defined where T is of an unnamed namespace
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-internal"
#endif
template <class T>
extern const Phantom<T> phantom;
#ifdef __clang__
#pragma clang diagnostic pop
#endif

template <auto pointer>
constexpr std::string_view field_name() {
  constexpr std::string_view text = __PRETTY_FUNCTION__;
  std::size_t end = text.find_first_of(
      ";]", text.rfind('.') == std::string_view::npos ? text.rfind("::") : text.rfind('.'));
  std::size_t begin = end;
  while (begin > 0) {
    const char c = text[begin - 1];
    const bool word =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (word) {
      --begin;
      continue;
    }
    if (end == begin) {
      --end;
      --begin;
      continue;
    }
    break;
  }
  return text.substr(begin, end - begin);
}

// clang before 18 takes a pointer to a field for an argument of a template within a struct alone.
template <class T>
struct PointerTo {
  const T* pointer;
};
template <class T>
PointerTo(const T*) -> PointerTo<T>;

#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#endif
template <class T>
constexpr auto field_pointers() {
  return with_fields(phantom<T>.value, [](const auto&... field) { return std::tuple{&field...}; });
}
#ifdef __clang__
#pragma clang diagnostic pop
#endif

template <class T>
constexpr auto field_names() {
  constexpr std::size_t n = field_count<T>();
  return []<std::size_t... i>(std::index_sequence<i...>) {
    return std::array<std::string_view, n>{
        field_name<PointerTo{std::get<i>(field_pointers<T>())}>()...};
  }
  (std::make_index_sequence<n>{});
}

}  // namespace postern::detail
