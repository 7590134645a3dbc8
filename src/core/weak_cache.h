// WeakCache: the one thing of a key that lives, such as who writes to a folder.
#pragma once
#include <map>
#include <memory>

#include "core/mutex.h"

namespace postern::internal {

template <class Key, class T>
class WeakCache {
 public:
  /// Returns what lives under the key, or what `make` gives. It lives as long as somebody holds it.
  template <class Make>
  std::shared_ptr<T> of(const Key& key, Make make) {
    const std::scoped_lock lock(guard_);
    std::erase_if(all_, [](const auto& entry) { return entry.second.expired(); });
    if (auto found = all_[key].lock()) return found;
    std::shared_ptr<T> made = make();
    all_[key] = made;
    return made;
  }

 private:
  Mutex guard_;
  std::map<Key, std::weak_ptr<T>> all_;
};

}  // namespace postern::internal
