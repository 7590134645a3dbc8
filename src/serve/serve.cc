// The one server of the process.
#include "serve/serve.h"

#include <pthread.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/mutex.h"
#include "serve/attach_address.h"
#include "serve/server.h"

namespace postern {
using namespace internal;

namespace {

/// Never destroyed: programs may still run after main.
struct Current {
  Mutex guard;
  std::unique_ptr<live::Server> server, for_attach;
  bool registered = false, keeps_attach = false;
};
Current& current() {
  static Current* const c = new Current;
  return *c;
}

void watch_forks_of_server() {
  pthread_atfork([] { current().guard.lock(); }, [] { current().guard.unlock(); },
                 [] {
                   for (auto* one : {&current().server, &current().for_attach})
                     if (auto* const server = one->release()) server->let_go_in_child();
                   current().guard.unlock();
                 });
}

/// Ends the page and, unless the environment asked for it, the socket for `postern attach`.
void stop(bool at_end) {
  std::unique_ptr<live::Server> server, for_attach;  // go after the lock
  std::scoped_lock lock(current().guard);
  server = std::move(current().server);
  if (at_end || !current().keeps_attach) for_attach = std::move(current().for_attach);
}

/// Under the guard.
void register_end(Current& c) {
  if (c.registered) return;
  std::atexit([] { stop(true); });
  watch_forks_of_server();
  c.registered = true;
}

/// POSTERN_ATTACH: 1 asks for it, 0 forbids it.
bool wishes_attach(const char* wish) {
  const char* const set = std::getenv("POSTERN_ATTACH");
  return set && std::string_view(set) == wish;
}

/// Under the guard: what keeps the process from listening for `postern attach` is no error.
void listen_for_attach(Current& c) {
  if (c.for_attach || wishes_attach("0")) return;
  try {
    c.for_attach = std::make_unique<live::Server>(live::Server::ForAttach());
    register_end(c);
  } catch (const std::exception& e) {
    log(LogLevel::warning, "{}", e.what());
  }
}

/// "7373", "0.0.0.0:7373".
ServeOptions options_from(const std::string& wish) {
  ServeOptions options;
  const std::size_t colon = wish.rfind(':');
  const std::string port = colon == std::string::npos ? wish : wish.substr(colon + 1);
  if (colon != std::string::npos) options.address = wish.substr(0, colon);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), options.port);
  check(error == std::errc() && end == port.data() + port.size(),
        "POSTERN_SERVE must be a port or address:port, got '{}'", wish);
  return options;
}

}  // namespace

Served serve(const ServeOptions& options, Place place) {
  PlaceScope at(place);
  refuse_forked();
  check(options.port >= 0 && options.port <= 65535, "serve: port must be from 0 to 65535, got {}",
        options.port);
  check(options.per_second >= 0.1 && options.per_second <= 10,
        "serve: per_second must be from 0.1 to 10, got {}", options.per_second);
  Current& c = current();
  std::scoped_lock lock(c.guard);
  if (c.server)
    throw Error(ErrorCode::already_exists,
                fmt::format("serve: this process serves already, at {}; stop_serving() ends it",
                            c.server->served().url));
  c.server = std::make_unique<live::Server>(options);
  register_end(c);
  listen_for_attach(c);
  if (options.announce) log_line(fmt::format("live page: {}", c.server->served().url));
  return c.server->served();
}

void stop_serving() { stop(false); }

int detail::attach_socket(long process) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  const socklen_t size = live::attach_address(process, address);
  const timeval limit{5, 0};  // of a process that is stopped
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  ucred peer{};
  socklen_t peer_size = sizeof peer;
  const bool connected =
      socket >= 0 && ::connect(socket, reinterpret_cast<const sockaddr*>(&address), size) == 0;
  const bool known =
      connected && ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) == 0;
  // The name may have been taken by somebody else.
  const bool own = known && peer.pid == process && (::geteuid() == 0 || peer.uid == ::geteuid());
  if (own) return socket;
  if (socket >= 0) ::close(socket);
  if (connected)
    throw Error(ErrorCode::permission_denied,
                fmt::format("attach: process {} is another user's", process));
  throw Error(ErrorCode::not_found,
              fmt::format("attach: process {} does not listen; it must have a live page, or run "
                          "programs with POSTERN_ATTACH=1",
                          process));
}

namespace internal {

void live::start_from_environment() noexcept {
  if (wishes_attach("1")) {
    Current& c = current();
    std::scoped_lock lock(c.guard);
    c.keeps_attach = true;
    listen_for_attach(c);
  }
  const char* const wish = std::getenv("POSTERN_SERVE");
  if (!wish || !*wish) return;
  try {
    postern::serve(options_from(wish));
  } catch (const Error& e) {
    if (e.code() != ErrorCode::already_exists) log(LogLevel::warning, "{}", e.what());
  }
}

}  // namespace internal

}  // namespace postern
