// The client's side of the live page's server, in as much of HTTP as that speaks.
#include "http_client.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>

#include "commands.h"

namespace command {

using Json = nlohmann::json;

namespace {

constexpr int most_silent = 150;  // tenths of a second; a sign of life comes every five seconds

/// Whether something can be read within so many milliseconds.
bool readable(int socket, int milliseconds) {
  pollfd polled{socket, POLLIN, 0};
  return ::poll(&polled, 1, milliseconds) > 0;
}

void send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) throw Problem(failed, "the process does not listen any more");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

int status_of(std::string_view answer) {
  int status = 0;
  if (answer.starts_with("HTTP/1.1 ") && answer.size() > 12)
    std::from_chars(answer.data() + 9, answer.data() + 12, status);
  return status;
}

std::string random_name() {
  unsigned char bytes[8] = {};
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw Problem(failed, "the system gave no random numbers");
  std::string out;
  for (const unsigned char b : bytes) out += fmt::format("{:02x}", b);
  return out;
}

struct Closing {
  int fd;
  ~Closing() { ::close(fd); }
};

}  // namespace

Served::Served(const std::string& where) : client_(random_name()) {
  const char* const end = where.data() + where.size();
  if (const auto [at, error] = std::from_chars(where.data(), end, process_);
      error != std::errc() || at != end || process_ <= 0) {
    process_ = 0;
    constexpr std::string_view scheme = "http://";
    const std::size_t path = where.find('/', scheme.size());
    if (!where.starts_with(scheme))
      throw Problem(usage,
                    fmt::format("'{}' is neither a number of a process nor the http URL of a "
                                "live page",
                                where));
    host_ = where.substr(scheme.size(), path - scheme.size());
    if (const std::size_t colon = host_.find(':'); colon != std::string::npos) {
      port_ = std::atoi(host_.c_str() + colon + 1);
      host_.resize(colon);
    }
    if (const std::size_t token = where.find("token="); token != std::string::npos)
      token_ = where.substr(token + 6, where.find('&', token) - token - 6);
  }
}

Served::~Served() {
  if (stream_ >= 0) ::close(stream_);
}

int Served::connect() const {
  if (process_ > 0) return postern::detail::attach_socket(process_);
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  const std::string port = std::to_string(port_);
  if (const int error = ::getaddrinfo(host_.c_str(), port.c_str(), &hints, &found); error != 0)
    throw Problem(usage, fmt::format("there is no '{}': {}", host_, ::gai_strerror(error)));
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{5, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const bool connected = socket >= 0 && ::connect(socket, found->ai_addr, found->ai_addrlen) == 0;
  const int error = errno;
  ::freeaddrinfo(found);
  if (connected) return socket;
  if (socket >= 0) ::close(socket);
  throw Problem(bad_file,
                fmt::format("nothing listens at {}:{}: {}", host_, port_, std::strerror(error)));
}

std::string Served::head(const char* method, const std::string& path) const {
  const std::string host = process_ > 0 ? "localhost" : fmt::format("{}:{}", host_, port_);
  return fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n{}", method, path, host,
                     token_.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", token_));
}

void Served::begin() {
  if (stream_ >= 0) ::close(std::exchange(stream_, -1));
  buffer_.clear();
  begun_ = false;
  ended_ = true;  // where nobody listens any more
  silent_ = 0;
  stream_ = connect();
  ended_ = false;
  send_all(stream_, head("GET", "/events?client=" + client_) + "\r\n");
}

std::optional<Json> Served::news() {
  if (buffer_.find("\n\n") == std::string::npos || !begun_) {
    silent_ = readable(stream_, 100) ? 0 : silent_ + 1;
    if (silent_ > most_silent) throw Problem(failed, "the process does not answer");
    if (silent_ == 0) {
      char part[1 << 16];
      const ssize_t n = ::recv(stream_, part, sizeof part, 0);
      ended_ = n <= 0;
      buffer_.append(part, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    }
  }
  if (const std::size_t at = begun_ ? std::string::npos : buffer_.find("\r\n\r\n");
      at != std::string::npos) {
    if (const int status = status_of(buffer_); status == 403)
      throw Problem(usage, "the URL needs the token that the program printed");
    else if (status != 200)
      throw Problem(failed, fmt::format("the process answered {}", buffer_.substr(9, 3)));
    buffer_.erase(0, at + 4);
    begun_ = true;
  }
  const std::size_t at = begun_ ? buffer_.find("\n\n") : std::string::npos;
  if (at == std::string::npos) return {};
  const std::string event = buffer_.substr(0, at);
  buffer_.erase(0, at + 2);
  const std::size_t data = event.find("data: ");
  if (data == std::string::npos) return {};
  ended_ = false;  // not before all that came was taken
  return Json::parse(event.substr(data + 6));
}

Json Served::ask(const Json& request) {
  const Closing socket{connect()};
  const std::string body = request.dump();
  send_all(socket.fd,
           fmt::format("{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                       head("POST", "/switch?client=" + client_), body.size(), body));
  std::string answer;
  char part[4096];
  while (readable(socket.fd, 5000)) {
    const ssize_t n = ::recv(socket.fd, part, sizeof part, 0);
    if (n <= 0) break;
    answer.append(part, static_cast<std::size_t>(n));
  }
  const std::size_t at = answer.find("\r\n\r\n");
  const Json said =
      Json::parse(at == std::string::npos ? "" : answer.substr(at + 4), nullptr, false);
  if (!said.is_object()) throw Problem(usage, "the process does not answer");
  if (const int status = status_of(answer); status != 200)
    throw Refused(status, said.value("error", "it was refused"));
  return said;
}

}  // namespace command
