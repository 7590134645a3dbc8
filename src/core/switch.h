// Switch: who listens at a live hook now. Handlers look at it at every invocation; who turns
// listeners on and off is host/live.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/mutex.h"

namespace postern::internal {

namespace host {
struct Listening;
struct ListenerSite;
}  // namespace host

struct Switch {
  using Sites = std::vector<std::shared_ptr<const host::ListenerSite>>;

  /// Whether anything listens that is not the program's own.
  std::atomic<bool> on{false};
  const std::uint64_t number = next();  // of the process

  mutable Mutex guard;
  // Under it. What invocations go through is one list, so that they copy one pointer.
  std::vector<std::shared_ptr<host::Listening>> listeners;
  std::shared_ptr<const Sites> sites;
  std::shared_ptr<const host::ListenerSite> own;  // the program's listener with other settings

 private:
  static std::uint64_t next() {
    static std::atomic<std::uint64_t> count{0};
    return ++count;
  }
};

}  // namespace postern::internal
