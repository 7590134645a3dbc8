// Texts by keys, the same for all processes: what plug-ins of several of them must tell each other
// before they can speak for themselves.
#pragma once
#include <postern/detail/api.h>

#include <chrono>
#include <optional>
#include <string>

namespace postern::internal::clusters {

/// Kept by process 0, which has a thread that answers the others until the process ends. Any thread
/// may use it.
class Store {
 public:
  /// Returns that of the cluster, which is joined.
  static Store& get();
  virtual ~Store() = default;

  /// Returns how long process 0 may take to answer. Tests set it, before they ask.
  POSTERN_API static std::chrono::milliseconds& answer_limit();
  /// Throws Error(unavailable) when it takes longer.
  virtual void put(const std::string& key, const std::string& value) = 0;
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  /// Waits for the key. Throws Error(deadline_exceeded) after `limit`.
  virtual std::string get(const std::string& key, std::chrono::milliseconds limit) = 0;
};

}  // namespace postern::internal::clusters
