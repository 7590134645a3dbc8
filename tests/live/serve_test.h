// A client of the live page that speaks by a socket alone, so that it can say what no browser does.
#pragma once
#include <postern/postern.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace postern::test {

class Socket {
 public:
  explicit Socket(int port);
  ~Socket();
  Socket(const Socket&) = delete;
  /// Whether all of it went out.
  bool send(std::string_view bytes);
  /// What comes until the other side closes, the limit passes, or `enough` is in it.
  std::string receive(std::string_view enough = "",
                      std::chrono::milliseconds limit = std::chrono::seconds(10));
  int handle() const { return fd_; }

 private:
  int fd_;
  std::string kept_;  // of a stream: what came behind what was enough
};

/// The answer to a whole request; without a Host line it gets one.
std::string ask(int port, const std::string& request);
/// The same for GET of a target, with further header lines.
std::string get(int port, const std::string& target, const std::string& headers = "");
/// 200 of "HTTP/1.1 200 OK...".
int status_of(const std::string& answer);
std::string body_of(const std::string& answer);

/// A page that is open: what it has been told, put together as a page does.
class Stream {
 public:
  explicit Stream(const std::string& url);
  /// Takes updates until `seen` says so of what there is by now, or the limit passes.
  template <class Seen>
  bool wait_for(Seen seen, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!seen(*this))
      if (std::chrono::steady_clock::now() > end || !take()) return false;
    return true;
  }

  /// The series of a leaf: its last message, with the points of all messages.
  nlohmann::json series(const std::string& name) const;
  std::map<std::string, nlohmann::json> all_series, histograms, progress, programs;
  nlohmann::json hook(const std::string& name) const;
  nlohmann::json hooks = nlohmann::json::array(), lines = hooks, events = hooks, devices;
  nlohmann::json process, compiling = hooks, gone = hooks, texts = hooks;
  std::map<std::string, nlohmann::json> images;  // by name
  int updates = 0;

 private:
  bool take();
  Socket socket_;
};

/// Serves while it lives.
struct Page : Served {
  explicit Page(ServeOptions options = {}) : Served(start(std::move(options))) {}
  ~Page() { stop_serving(); }
  Page(const Page&) = delete;
  static Served start(ServeOptions options) {
    options.port = 0;
    options.announce = false;
    return serve(options);
  }
  std::string target(const std::string& path) const { return path + "?token=" + token; }
};

}  // namespace postern::test
