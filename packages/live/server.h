// Server: a thread that answers browsers. It never waits for one of them, and holds bounded memory
// for each: who reads slowly gets fewer updates, who sends what is no request is cut off.
#pragma once
#include <postern/serve.h>

#include <array>
#include <atomic>
#include <list>
#include <string>
#include <thread>
#include <utility>

#include "http.h"
#include "news.h"
#include "switches.h"

namespace postern::internal::live {

/// A file descriptor, closed when it goes.
class Handle {
 public:
  explicit Handle(int fd = -1) : fd_(fd) {}
  ~Handle();
  Handle(Handle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

class Server {
 public:
  /// Throws Error.
  explicit Server(const ServeOptions& options);
  /// For `postern attach PID`: a socket of this machine without a file, for processes of the same
  /// user and of root. They need no token.
  struct ForAttach {};
  explicit Server(ForAttach);
  /// Sends the last news, for at most a quarter of a second.
  ~Server();
  const Served& served() const { return served_; }
  /// Lets go in a process that was forked off, which has no thread to serve: the port and the
  /// connections are the other's. Calls nothing but close.
  void let_go_in_child();

  // What everybody together may take.
  static constexpr std::size_t most_clients = 64, most_streams = 16;
  static constexpr int accepts_at_a_time = 50;  // in a tenth of a second
  // Beyond it a client waits for its kernel's second try, a second later.
  static constexpr int backlog = 2 * accepts_at_a_time;
  static constexpr std::chrono::seconds for_a_request{5}, for_reading{30}, for_a_file{4};

 private:
  /// The number of a client's socket, -1 for none: a forked process may find the list of clients
  /// half changed.
  using Open = std::atomic<int>;
  struct Client {
    ~Client() {
      if (open) *open = -1;  // before the number is another file's
    }
    Handle socket;
    Open* open = nullptr;
    std::string in, out;
    std::size_t sent = 0;
    enum class State { asks, streams, answered, ends } state = State::asks;
    bool behind = true;                         // of a stream: gets all that there is next
    bool timeline = false;                      // it wants events
    std::string id;                             // by which it switches
    Clock::time_point until;                    // by when it must have got on
    std::weak_ptr<const WrittenFile> finishes;  // its answer waits for that, at most so long
    Clock::time_point answers{};
    bool waits() const { return !finishes.expired() && Clock::now() < answers; }
  };

  void start();
  void listen();
  void listen_for_attach();
  void work();
  void accept_some();
  void read(Client& client);
  void answer(Client& client);
  void answer(Client& client, const Request& request);
  void answer_switch(Client& client, const Request& request);
  void begin_stream(Client& client, const Request& request);
  void send(Client& client);
  void tell_streams();
  void watch_timeline();
  void wait();
  void end_leases();
  bool is_open_to(const Handle& socket) const;
  bool has_token(const Request& request) const;
  std::size_t streams() const;

  const ServeOptions options_;
  const bool for_attach_ = false;
  const Clock::duration interval_;
  Served served_;
  std::string nonce_;
  Handle listening_, wake_;
  std::array<Open, most_clients> open_;
  std::list<Client> clients_;
  Clock::time_point next_update_{}, next_accepts_{}, next_sign_{};
  int accepts_left_ = accepts_at_a_time;
  bool timeline_ = false;
  News news_;
  NewsMark mark_;
  Switches switches_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace postern::internal::live
