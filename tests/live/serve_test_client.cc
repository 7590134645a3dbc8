// The client.
#include "live/serve_test.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace postern::test {

using Clock = std::chrono::steady_clock;

Socket::Socket(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
    throw std::runtime_error("cannot connect");
}
Socket::~Socket() { ::close(fd_); }

bool Socket::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

std::string Socket::receive(std::string_view enough, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (true) {
    if (const auto at = enough.empty() ? std::string::npos : kept_.find(enough);
        at != std::string::npos) {
      std::string out = kept_.substr(0, at + enough.size());
      kept_.erase(0, out.size());
      return out;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd polled{fd_, POLLIN, 0};
    char part[1 << 16];
    if (left <= 0 || ::poll(&polled, 1, static_cast<int>(left)) <= 0) break;
    const ssize_t n = ::recv(fd_, part, sizeof part, 0);
    if (n <= 0) break;
    kept_.append(part, static_cast<std::size_t>(n));
  }
  return std::exchange(kept_, {});
}

std::string ask(int port, const std::string& request) {
  Socket socket(port);
  socket.send(request);
  return socket.receive();
}

std::string get(int port, const std::string& target, const std::string& headers) {
  const bool named = headers.find("Host:") != std::string::npos;
  return ask(port, "GET " + target + " HTTP/1.1\r\n" + (named ? "" : "Host: localhost\r\n") +
                       headers + "\r\n");
}

int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
}

std::string body_of(const std::string& answer) {
  const std::size_t at = answer.find("\r\n\r\n");
  return at == std::string::npos ? "" : answer.substr(at + 4);
}

namespace {
int port_of(const std::string& url) { return std::stoi(url.substr(url.find(':', 7) + 1)); }
}  // namespace

Stream::Stream(const std::string& url) : socket_(port_of(url)) {
  const std::string query = url.substr(url.find('?'));
  socket_.send("GET /events" + query + "&timeline=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(status_of(socket_.receive("\r\n\r\n")), 200);
}

bool Stream::take() {
  const std::string event = socket_.receive("\n\n");
  const std::size_t data = event.find("data: ");
  if (!event.ends_with("\n\n")) return false;
  if (data == std::string::npos) return true;  // a sign of life
  ++updates;
  const auto news = nlohmann::json::parse(event.substr(data + 6));
  const auto part = [&](const char* name) { return news.value(name, nlohmann::json::array()); };
  for (const auto& s : part("series")) {
    auto& known = all_series.try_emplace(s.at("id"), nlohmann::json::object()).first->second;
    auto points = known.value("points", nlohmann::json::array());
    for (const auto& p : s.at("points"))
      if (points.empty() || p[0] > points.back()[0]) points.push_back(p);
    known.update(s);
    known["points"] = std::move(points);
  }
  for (const auto& h : part("histograms")) {
    auto& known = histograms.try_emplace(h.at("id"), nlohmann::json::object()).first->second;
    auto history = known.value("history", nlohmann::json::array());
    for (const auto& then : h.at("history")) history.push_back(then);
    known = h;
    known["history"] = std::move(history);
  }
  for (const auto& i : part("images")) images[i.at("name")] = i;
  for (const auto& p : part("progress")) progress[p.at("label")] = p;
  for (const auto& p : part("programs")) programs[p.at("name")] = p;
  for (const auto& line : part("lines"))
    if (lines.empty() || line.at("number") > lines.back().at("number")) lines.push_back(line);
  for (const auto& e : part("events")) events.push_back(e);
  if (news.contains("devices")) devices = news["devices"];
  const std::pair<const char*, nlohmann::json*> wholes[] = {{"hooks", &hooks},
                                                            {"process", &process},
                                                            {"compiling", &compiling},
                                                            {"gone", &gone},
                                                            {"texts", &texts}};
  for (const auto& [name, to] : wholes)
    if (news.contains(name)) *to = news[name];
  return true;
}

nlohmann::json Stream::hook(const std::string& name) const {
  for (const auto& h : hooks)
    if (h.at("name") == name) return h;
  return nlohmann::json::object();
}

nlohmann::json Stream::series(const std::string& name) const {
  for (const auto& [id, s] : all_series)
    if (s.value("name", "") == name) return s;
  return nlohmann::json::object();
}

}  // namespace postern::test
