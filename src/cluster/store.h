// Texts by keys, the same for all processes: what plug-ins of several of them must tell each other
// before they can speak for themselves.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace postern::internal::clusters {

class Cluster;

/// Kept by process 0, which has a thread that answers the others until the process ends. Any thread
/// may use it.
class Store {
 public:
  /// Returns that of the cluster, which is joined.
  static Store& get();

  /// So long process 0 may take to answer. Tests set it, before they ask.
  static inline std::chrono::milliseconds answer_limit{10'000};
  /// Throws Error(unavailable) when it takes longer.
  void put(const std::string& key, const std::string& value);
  std::optional<std::string> try_get(const std::string& key);
  /// Waits for the key. Throws Error(deadline_exceeded) after `limit`.
  std::string get(const std::string& key, std::chrono::milliseconds limit);

 private:
  explicit Store(Cluster& cluster);
  struct Keeper;
  class Asking;
  Cluster& cluster_;
  std::shared_ptr<Keeper> keeper_;  // on process 0
  std::unique_ptr<Asking> asking_;  // on the others
};

}  // namespace postern::internal::clusters
