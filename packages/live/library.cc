// The live page, and the socket for `postern attach`: one of each in the process.
#include <postern/library.h>

#include <pthread.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "attach_address.h"
#include "server.h"
#include "spi.h"

namespace postern::internal::live {

namespace {

/// Never destroyed: programs may still run after main.
struct Current {
  Mutex guard;
  std::unique_ptr<Server> server, for_attach;
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

/// Ends the page and, unless it was asked for by itself, the socket for `postern attach`.
void stop(bool at_end) {
  std::unique_ptr<Server> server, for_attach;  // go after the lock
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

/// Under the guard.
void listen_for_attach(Current& c) {
  if (c.for_attach) return;
  c.for_attach = std::make_unique<Server>(Server::ForAttach());
  register_end(c);
}

Served serve(const ServeOptions& options) {
  Current& c = current();
  std::scoped_lock lock(c.guard);
  if (c.server)
    throw Error(ErrorCode::already_exists,
                fmt::format("serve: this process serves already, at {}; stop_serving() ends it",
                            c.server->served().url));
  c.server = std::make_unique<Server>(options);
  register_end(c);
  const char* const attach = std::getenv("POSTERN_ATTACH");
  try {
    if (!attach || std::string_view(attach) != "0") listen_for_attach(c);
  } catch (const Error& e) {  // a page is there all the same
    log(LogLevel::warning, "{}", e.what());
  }
  if (options.announce) log_line(fmt::format("live page: {}", c.server->served().url));
  return c.server->served();
}

int attach_socket(long process) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  const socklen_t size = attach_address(process, address);
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

constexpr Page package{serve, [] { stop(false); },
                       [] {
                         Current& c = current();
                         std::scoped_lock lock(c.guard);
                         c.keeps_attach = true;
                         listen_for_attach(c);
                       },
                       attach_socket};

void load() { set_page(package); }

}  // namespace

}  // namespace postern::internal::live

POSTERN_LIBRARY("postern_live", "0.1", postern::internal::live::load)
