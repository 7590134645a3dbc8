// What stands in the place of something else for a scope.
#pragma once
#include <utility>

namespace postern::internal {

/// Puts a value in the place of another one, a thread's variable mostly, while it lives.
template <class T>
class Scoped {
 public:
  Scoped(T& place, T value) : place_(place), before_(std::exchange(place, std::move(value))) {}
  ~Scoped() { place_ = std::move(before_); }
  Scoped(const Scoped&) = delete;

 protected:
  const T& before() const { return before_; }

 private:
  T& place_;
  T before_;
};

}  // namespace postern::internal
