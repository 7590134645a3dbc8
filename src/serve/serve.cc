// The one server of the process.
#include "serve/serve.h"

#include <pthread.h>

#include <charconv>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "core/check.h"
#include "core/fork.h"
#include "core/log.h"
#include "serve/server.h"

namespace postern {

namespace {

/// Never destroyed: programs may still run after main.
struct Current {
  std::mutex guard;
  std::unique_ptr<live::Server> server;
  bool registered = false;
};
Current& current() {
  static Current* const c = new Current;
  return *c;
}

void watch_forks_of_server() {
  pthread_atfork([] { current().guard.lock(); }, [] { current().guard.unlock(); },
                 [] {
                   if (auto* const server = current().server.release()) server->let_go_in_child();
                   current().guard.unlock();
                 });
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

Served serve(const ServeOptions& options) {
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
  if (!c.registered) {
    std::atexit(stop_serving);
    watch_forks_of_server();
    c.registered = true;
  }
  if (options.announce) log_line(fmt::format("live page: {}", c.server->served().url));
  return c.server->served();
}

void stop_serving() {
  std::unique_ptr<live::Server> server;
  {
    std::scoped_lock lock(current().guard);
    server = std::move(current().server);
  }
}

void live::start_from_environment() noexcept {
  const char* const wish = std::getenv("POSTERN_SERVE");
  if (!wish || !*wish) return;
  try {
    postern::serve(options_from(wish));
  } catch (const Error& e) {
    if (e.code() != ErrorCode::already_exists) log(LogLevel::warning, "{}", e.what());
  }
}

}  // namespace postern
