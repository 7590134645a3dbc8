// Cache: what was made before, by a key, up to a limit.
#pragma once
#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/mutex.h"
#include "core/once.h"

namespace postern::internal {

/// The `limit` values that were asked for last. May be asked by any number of threads at once:
/// those that want the same value wait until one of them has made it, others do not.
template <class Value>
class Cache {
 public:
  explicit Cache(std::size_t limit) : limit_(limit) {}

  /// Returns the value of that key, else what `make` gives. What `make` throws is thrown here, and
  /// the next who asks makes it again.
  template <class Make>
  std::shared_ptr<Value> find(const std::string& key, const Make& make) {
    const std::shared_ptr<Slot> slot = slot_of(key);
    slot->once([&] { slot->value = make(); });
    return slot->value;
  }

 private:
  struct Slot {
    Once once;
    std::shared_ptr<Value> value;
  };
  using Order = std::list<std::pair<std::string, std::shared_ptr<Slot>>>;

  /// Returns the key's slot, now the one asked for last; a new one takes the place of the oldest.
  std::shared_ptr<Slot> slot_of(const std::string& key) {
    std::shared_ptr<Slot> gone;  // ends after the lock: what its value owns may be anything
    std::scoped_lock lock(guard_);
    if (const auto found = places_.find(key); found != places_.end()) {
      order_.splice(order_.begin(), order_, found->second);
    } else {
      order_.emplace_front(key, std::make_shared<Slot>());
      places_.emplace(order_.front().first, order_.begin());
      if (order_.size() > limit_) {
        places_.erase(order_.back().first);
        gone = std::move(order_.back().second);
        order_.pop_back();
      }
    }
    return order_.front().second;
  }

  const std::size_t limit_;
  Mutex guard_;
  Order order_;  // the one asked for last first
  std::unordered_map<std::string_view, typename Order::iterator> places_;
};

}  // namespace postern::internal
