// What a cluster knows of a run.
#pragma once
#include <string>

namespace postern::internal::clusters {

/// A run over processes, as the cluster sees it.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Notes that it has failed on another process.
  virtual void ended_elsewhere(const std::string& why) noexcept = 0;
  /// Returns the site that it is at; "" when it is at none.
  virtual std::string site_now() = 0;
};

}  // namespace postern::internal::clusters
