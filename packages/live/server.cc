// Sockets that never block, and one poll for all of them.
#include "server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <vector>

#include "attach_address.h"
#include "page.h"
#include "spi.h"

namespace postern::internal::live {

namespace {

using namespace std::chrono_literals;

std::string random_word() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw Error(ErrorCode::unavailable, "serve: the system gave no random numbers for the token");
  std::string out;
  for (const unsigned char b : bytes) out += fmt::format("{:02x}", b);
  return out;
}

/// In a time that does not depend on where they differ.
bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

[[noreturn]] void refuse(const ServeOptions& options, int reason) {
  ErrorCode code = ErrorCode::unavailable;
  std::string cure = "choose another address or port";
  if (reason == EADDRINUSE) cure = "another process listens there; choose another port, or 0";
  if (reason == EADDRNOTAVAIL) cure = "this machine has no such address";
  if (reason == EACCES) {
    code = ErrorCode::permission_denied;
    cure = "ports below 1024 take the administrator's rights; choose a higher one";
  }
  throw Error(code, fmt::format("serve: cannot listen at {}:{}: {}; {}", options.address,
                                options.port, std::strerror(reason), cure));
}

/// An update as server-sent events have it.
std::string event(const char* name, std::string_view data) {
  return fmt::format("event: {}\ndata: {}\n\n", name, data.empty() ? "{}" : data);
}

/// An update takes so long at least.
Clock::duration interval_of(const ServeOptions& options) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(1 / options.per_second));
}

}  // namespace

Server::Server(const ServeOptions& options)
    : options_(options), interval_(interval_of(options)), switches_({options.folder, false}) {
  listen();
  nonce_ = random_word();
  served_.token = random_word();
  const std::string& host = options.address == "0.0.0.0" ? "127.0.0.1" : options.address;
  served_.url = fmt::format("http://{}:{}/?token={}", host, served_.port, served_.token);
  start();
}

Server::Server(ForAttach) : for_attach_(true), interval_(interval_of({})), switches_({"/", true}) {
  listen_for_attach();
  start();
}

void Server::start() {
  for (Open& socket : open_) socket = -1;
  wake_ = Handle(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake_.get() < 0) refuse(options_, errno);
  lines::watch(true);
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& e) {
    lines::watch(false);
    throw Error(ErrorCode::resource_exhausted,
                fmt::format("serve: the system gave no thread: {}", e.what()));
  }
}

Server::~Server() {
  stop_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
  lines::watch(false);
  if (timeline_) host::timeline::watch(false);
}

Handle::~Handle() {
  if (fd_ >= 0) ::close(fd_);
}

void Server::let_go_in_child() {
  ::close(listening_.get());
  for (const Open& socket : open_)
    if (socket >= 0) ::close(socket);
}

void Server::listen() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(options_.port));
  check(::inet_pton(AF_INET, options_.address.c_str(), &address.sin_addr) == 1,
        "serve: the address must be one of IPv4 in numbers, such as 127.0.0.1, got '{}'",
        options_.address);
  Handle socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  if (socket.get() < 0 || ::bind(socket.get(), generic, size) != 0 ||
      ::listen(socket.get(), backlog) != 0 || ::getsockname(socket.get(), generic, &size) != 0)
    refuse(options_, errno);
  served_.port = ntohs(address.sin_port);
  listening_ = std::move(socket);
}

void Server::listen_for_attach() {
  Handle socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  const socklen_t size = attach_address(::getpid(), address);
  if (socket.get() < 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(socket.get(), backlog) != 0)
    throw Error(ErrorCode::unavailable,
                fmt::format("attach: cannot listen: {}", std::strerror(errno)));
  listening_ = std::move(socket);
}

/// Of the socket for `postern attach`, whether who connected is of this user, or root.
bool Server::is_open_to(const Handle& socket) const {
  if (!for_attach_) return true;
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

void Server::work() {
  sigset_t all;  // signals are for the program's own threads
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  while (!stop_) {
    try {
      wait();
    } catch (const std::exception& e) {  // no memory: whom it was for has to come again
      clients_.clear();
      switches_.keep_only({});
      log(LogLevel::warning, "serve: all pages were disconnected: {}", e.what());
      std::this_thread::sleep_for(100ms);
    }
  }
  try {
    tell_streams();
    const auto until = Clock::now() + 250ms;
    const auto unsent = [](const Client& c) { return c.sent < c.out.size(); };
    while (std::ranges::any_of(clients_, unsent) && Clock::now() < until) {
      std::this_thread::sleep_for(1ms);
      for (Client& c : clients_) send(c);
    }
  } catch (const std::exception&) {  // the last news are lost
  }
  clients_.clear();
}

std::size_t Server::streams() const {
  return static_cast<std::size_t>(
      std::ranges::count(clients_, Client::State::streams, &Client::state));
}

void Server::wait() {
  const auto now = Clock::now();
  if (now >= next_accepts_) accepts_left_ = accepts_at_a_time;
  std::vector<pollfd> polled{{wake_.get(), POLLIN, 0},
                             {listening_.get(), accepts_left_ > 0 ? short{POLLIN} : short{0}, 0}};
  auto until = Clock::time_point::max();
  if (accepts_left_ == 0) until = next_accepts_;
  if (streams() > 0) until = std::min(until, next_update_);
  until = std::min(until, switches_.next_end());
  for (const Client& c : clients_) {
    const bool unsent = c.sent < c.out.size() && !c.waits();
    polled.push_back({c.socket.get(), static_cast<short>(POLLIN | (unsent ? POLLOUT : 0)), 0});
    until = std::min(until, c.until);
    if (c.waits()) until = std::min(until, now + 10ms);
  }
  int milliseconds = -1;
  if (until != Clock::time_point::max())
    milliseconds = static_cast<int>(std::max<std::int64_t>(
        std::chrono::ceil<std::chrono::milliseconds>(until - now).count(), 0));
  if (::poll(polled.data(), polled.size(), milliseconds) < 0 || stop_) return;
  auto found = polled.begin() + 2;
  for (Client& c : clients_) {
    if (found->revents & (POLLIN | POLLHUP | POLLERR)) read(c);
    if (found->revents & POLLOUT) send(c);
    ++found;
  }
  if (polled[1].revents & POLLIN) accept_some();
  if (streams() > 0 && Clock::now() >= next_update_) tell_streams();
  const auto end = Clock::now();
  std::erase_if(clients_,
                [&](const Client& c) { return c.state == Client::State::ends || c.until <= end; });
  watch_timeline();
  end_leases();
}

/// What clients have turned on ends with their streams.
void Server::end_leases() {
  std::vector<std::string> open;
  for (const Client& c : clients_)
    if (c.state == Client::State::streams && !c.id.empty()) open.push_back(c.id);
  switches_.keep_only(open);
}

void Server::accept_some() {
  while (accepts_left_ > 0) {
    Handle socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0 && errno == EAGAIN) return;
    // Failures and strangers count too: without descriptors who waits stays there to be polled.
    if (accepts_left_-- == accepts_at_a_time) next_accepts_ = Clock::now() + 100ms;
    if (socket.get() < 0 || !is_open_to(socket)) continue;
    if (clients_.size() >= most_clients) {  // the one that has asked for longest goes
      const auto oldest = std::ranges::find_if(
          clients_, [](const Client& c) { return c.state != Client::State::streams; });
      if (oldest != clients_.end()) clients_.erase(oldest);
    }
    clients_.emplace_back();
    clients_.back().socket = std::move(socket);
    const auto free = std::ranges::find_if(open_, [](const Open& o) { return o < 0; });
    if (free != open_.end()) {
      *free = clients_.back().socket.get();
      clients_.back().open = &*free;
    }
    clients_.back().until = Clock::now() + for_a_request;
  }
}

void Server::read(Client& c) {
  char part[longest_request];
  const ssize_t n = ::recv(c.socket.get(), part, sizeof part, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // A stream has nothing more to ask; what comes after a request is let go of.
  if (n <= 0 || c.state == Client::State::streams) c.state = Client::State::ends;
  if (c.state != Client::State::asks) return;
  c.in.append(part, static_cast<std::size_t>(n));
  answer(c);
}

void Server::answer(Client& c) {
  const Parsed parsed = parse_request(c.in);
  if (parsed.status == 0) return;
  c.in.clear();
  c.in.shrink_to_fit();
  c.state = Client::State::answered;
  const auto refuse_with = [&](int status, std::string_view why) {
    c.out = response(status, "text/plain; charset=utf-8", fmt::format("{}\n", why));
  };
  const Request& r = parsed.request;
  if (parsed.status != 200)
    refuse_with(parsed.status, reason(parsed.status));
  else if (!is_own_host(r, options_.hosts))
    refuse_with(421, "This server is not known by that name; ServeOptions::hosts lists names.");
  else if (!is_own_origin(r))
    refuse_with(403, "Pages of other sites may not ask.");
  else if (!has_token(r))
    refuse_with(403, "The address needs the token that the program printed: /?token=...");
  else if (r.posts != (r.path == "/switch"))
    refuse_with(405, reason(405));
  else if (r.posts)
    answer_switch(c, r);
  else
    answer(c, r);
  send(c);
}

bool Server::has_token(const Request& request) const {
  constexpr std::string_view bearer = "Bearer ";
  const std::string& header = request.header("authorization");
  if (for_attach_) return true;
  // A header that no page of another site can make a browser send.
  if (request.posts)
    return header.starts_with(bearer) &&
           same_secret(std::string_view(header).substr(bearer.size()), served_.token);
  return same_secret(request.asked("token"), served_.token) ||
         (header.starts_with(bearer) &&
          same_secret(std::string_view(header).substr(bearer.size()), served_.token));
}

void Server::answer(Client& c, const Request& r) {
  if (r.path == "/events") return begin_stream(c, r);
  if (r.path == "/") {
    std::string text(page);
    for (std::size_t at = 0; (at = text.find("NONCE", at)) != std::string::npos;)
      text.replace(at, 5, nonce_);
    c.out = response(
        200, "text/html; charset=utf-8", text,
        fmt::format(
            "Content-Security-Policy: default-src 'none'; script-src 'nonce-{0}'; style-src "
            "'nonce-{0}'; connect-src 'self'; img-src data:; base-uri 'none'; form-action "
            "'none'; frame-ancestors 'none'\r\n",
            nonce_));
    return;
  }
  if (r.path == "/metrics") {
    c.out = response(200, "application/openmetrics-text; version=1.0.0; charset=utf-8",
                     news_.metrics());
    return;
  }
  std::optional<std::string> text;
  if (r.path == "/program")
    text = program_text(std::strtoull(r.asked("number").c_str(), nullptr, 10));
  c.out = response(text ? 200 : 404, "text/plain; charset=utf-8",
                   text.value_or("There is nothing here.\n"));
}

void Server::answer_switch(Client& c, const Request& r) {
  const std::string& id = r.asked("client");
  const bool streams = std::ranges::any_of(clients_, [&](const Client& other) {
    return other.state == Client::State::streams && !id.empty() && other.id == id;
  });
  Switches::Answer answer =
      streams ? switches_.act(id, r.body)
              : Switches::Answer{409, R"({"error":"no open page has this number"})"};
  c.out = response(answer.status, "application/json", answer.json);
  c.finishes = std::move(answer.finishes);
  c.answers = Clock::now() + for_a_file;
  if (c.waits()) c.until = c.answers + for_a_request;
  if (answer.changes) next_update_ = Clock::now();
}

void Server::begin_stream(Client& c, const Request& r) {
  if (streams() >= most_streams) {
    c.out = response(503, "text/plain; charset=utf-8", "Too many pages are open.\n");
    return;
  }
  c.state = Client::State::streams;
  c.timeline = r.asked("timeline") == "1";
  c.id = r.asked("client").substr(0, 32);
  c.until = Clock::now() + for_reading;
  c.out =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\nretry: 1000\n\n";
}

void Server::send(Client& c) {
  if (c.waits()) return;
  if (c.sent < c.out.size()) {
    const ssize_t n =
        ::send(c.socket.get(), c.out.data() + c.sent, c.out.size() - c.sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) c.state = Client::State::ends;
    if (n > 0) c.sent += static_cast<std::size_t>(n);
    if (n > 0)
      c.until = Clock::now() + (c.state == Client::State::streams ? for_reading : for_a_request);
  }
  if (c.sent < c.out.size()) return;
  c.out.clear();
  c.sent = 0;
  // Closed at once, what the client still sends would have the system take the answer back.
  if (c.state == Client::State::answered) {
    ::shutdown(c.socket.get(), SHUT_WR);
    c.until = std::min(c.until, Clock::now() + 1s);
  }
}

void Server::tell_streams() {
  const auto now = Clock::now();
  next_update_ = now + interval_;
  const bool sign = now >= next_sign_;  // of life, so that who is gone is noticed
  if (sign) next_sign_ = now + 5s;
  const auto is_on = [](const Client& c) { return c.state == Client::State::streams && !c.behind; };
  const auto starts = [](const Client& c) {
    return c.state == Client::State::streams && c.behind && c.out.empty();
  };
  const bool any_on = std::ranges::any_of(clients_, is_on);
  std::string news, whole;
  if (any_on) news = news_.since(mark_);
  if (std::ranges::any_of(clients_, starts)) {
    NewsMark fresh;
    whole = event("whole", news_.since(fresh));
    if (!any_on) mark_ = std::move(fresh);
  }
  if (!news.empty()) news = event("news", news);
  if (news.empty() && sign) news = ":\n\n";
  for (Client& c : clients_) {
    if (starts(c)) {
      c.out = whole;
      c.behind = false;
    } else if (is_on(c) && c.out.empty()) {
      c.out = news;
    } else if (is_on(c)) {
      c.behind = c.behind || !news.empty();
    }
    if (!c.out.empty()) send(c);
  }
}

void Server::watch_timeline() {
  const bool wanted = std::ranges::any_of(
      clients_, [](const Client& c) { return c.state == Client::State::streams && c.timeline; });
  if (wanted != timeline_) host::timeline::watch(wanted);
  timeline_ = wanted;
}

}  // namespace postern::internal::live
