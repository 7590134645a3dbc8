// Instances: the objects of a kind that there are now, for who looks at all of them: the report,
// the live page.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/mutex.h"

namespace postern::internal {

/// Objects enter themselves and leave; while one is looked at it can't leave.
template <class T>
class Instances {
 public:
  static Instances& all() {
    static Instances* const one = new Instances;  // objects may live as long as the process
    return *one;
  }
  /// Enters it, and returns its number.
  std::uint64_t enter(T* object) {
    std::scoped_lock lock(guard_);
    entries_.push_back({object, ++entered_});
    return entered_;
  }
  void leave(T* object) {
    std::scoped_lock lock(guard_);
    std::erase_if(entries_, [&](const Entry& e) { return e.object == object; });
  }
  /// Calls f(object, number) for each, in the order in which they entered; no other object of the
  /// kind ever has that number.
  template <class F>
  void each(const F& f) {
    std::scoped_lock lock(guard_);
    for (const Entry& e : entries_) f(*e.object, e.number);
  }

 private:
  struct Entry {
    T* object;
    std::uint64_t number;
  };
  Mutex guard_;
  std::vector<Entry> entries_;
  std::uint64_t entered_ = 0;
};

}  // namespace postern::internal
