// Short lists, and pieces of lists by number: indices are std::size_t, iterators count in
// std::ptrdiff_t.
#pragma once
#include <postern/detail/small_vector.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace postern::internal {

/// Converts a count or a place that is not negative to what lists have.
constexpr std::size_t size_of(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Returns the place of an element.
template <class List>
auto nth(List& list, std::size_t i) {
  return list.begin() + static_cast<std::ptrdiff_t>(i);
}

/// Returns elements [from, to), the first ones, and those behind: each as a list of its own.
template <class List>
auto between(const List& list, std::size_t from, std::size_t to) {
  return std::vector<std::remove_cv_t<typename List::value_type>>(nth(list, from), nth(list, to));
}
template <class List>
auto head(const List& list, std::size_t count) {
  return between(list, 0, count);
}
template <class List>
auto tail(const List& list, std::size_t from) {
  return between(list, from, list.size());
}

}  // namespace postern::internal
