// A process that is attached to: its server's events, and what it is asked to switch.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace command {

class Served {
 public:
  /// A number of a process of this machine, or the URL of a live page. Throws Problem when nobody
  /// listens there.
  explicit Served(const std::string& where);
  ~Served();
  Served(const Served&) = delete;

  /// Whether it is a process of this machine, which makes files by whole paths.
  bool is_local() const { return process_ > 0; }

  /// What is new, if anything comes within a tenth of a second. `ended()` when nothing more will
  /// come.
  std::optional<nlohmann::json> news();
  bool ended() const { return ended_; }

  /// The answer to a request to switch. Throws Problem with what the process says against it.
  nlohmann::json ask(const nlohmann::json& request);

 private:
  int connect() const;
  std::string head(const char* method, const std::string& path) const;

  long process_ = 0;
  std::string host_, token_, client_;
  int port_ = 80, stream_ = -1, silent_ = 0;
  std::string buffer_;
  bool begun_ = false, ended_ = false;
};

}  // namespace command
