// What lives as long as the process, its statics' destructors included.
#pragma once

namespace postern::internal {

/// Returns the one T of the process, made when it is first asked for. Nothing destroys it: threads,
/// runs and listeners may outlive main.
template <class T>
T& never_destroyed() {
  static T* const one = new T;
  return *one;
}

}  // namespace postern::internal
