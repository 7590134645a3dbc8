// A process that is attached to: its server's events, and what it is asked to switch.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "commands.h"

namespace command {

/// What the process says against a request. 404: there is no such thing, or not any more.
struct Refused : Problem {
  Refused(int code, const std::string& text) : Problem(usage, text), status(code) {}
  int status;
};

class Served {
 public:
  /// A number of a process of this machine, or the URL of a live page.
  explicit Served(const std::string& where);
  ~Served();
  Served(const Served&) = delete;

  /// Whether it is a process of this machine, which makes files by whole paths.
  bool is_local() const { return process_ > 0; }

  /// Begins the news, also once more: the first then tell all that there is. Throws Problem when
  /// nobody listens there.
  void begin();
  /// What is new, if anything comes within a tenth of a second. `ended()` when nothing more will
  /// come.
  std::optional<nlohmann::json> news();
  bool ended() const { return ended_; }

  /// The answer to a request to switch. Throws Refused, or Problem when none comes.
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
