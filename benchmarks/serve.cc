// What a page that is open costs the program.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <postern/postern.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

#include "harness.h"

namespace bench {

namespace pn = postern;

namespace {

/// A page that takes all that it is sent, while it lives.
class Page {
 public:
  explicit Page(const pn::Served& served) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(served.port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const std::string request =
        "GET /events?token=" + served.token + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 ||
        ::send(socket_, request.data(), request.size(), 0) < 0)
      throw std::runtime_error("serve: the page cannot be opened");
    reader_ = std::thread([this] {
      char part[1 << 16];
      for (ssize_t n; (n = ::recv(socket_, part, sizeof part, 0)) > 0;) bytes_ += n;
    });
  }
  ~Page() {
    ::shutdown(socket_, SHUT_RDWR);
    reader_.join();
    ::close(socket_);
  }
  Page(const Page&) = delete;
  std::int64_t bytes() const { return bytes_; }

 private:
  const int socket_;
  std::atomic<std::int64_t> bytes_{0};
  std::thread reader_;
};

}  // namespace

void serve(Report& report) {
  const auto stats = pn::listen::stats();
  const auto histogram = pn::listen::histogram();
  const auto step = pn::jit([&](pn::Tensor w) {
    return pn::fori_loop(
        0, 20,
        [&](pn::Tensor, pn::Tensor v) {
          const pn::Tensor next = pn::tanh(pn::dot(v, v) * 0.01f + 0.1f);
          pn::tap({.name = "loss"}, pn::mean(next), stats);
          pn::tap({.name = "weights"}, next, stats);
          return pn::hook(pn::TapOptions{.name = "row"}, next, histogram);
        },
        w);
  });
  const pn::Tensor w = pn::sin(pn::reshape(pn::iota<float>(256 * 256), {256, 256}));
  const auto work = [&](std::int64_t n) {
    while (n-- > 0) step(w).block_until_ready();
  };
  work(1);
  const pn::Served served = pn::serve({.port = 0, .announce = false});
  std::int64_t bytes = 0;
  const auto watched = [&](std::int64_t n) {
    const Page page(served);
    work(n);
    bytes += page.bytes();
  };
  const auto ns = race({watched, work}, 9, 1000);
  pn::stop_serving();
  if (bytes == 0) throw std::runtime_error("serve: the page was told nothing");
  report.add({"serve", ns[0] / 1e6, "ms", "nobody looks", ns[1] / 1e6,
              "20 steps of a loop with statistics and a histogram of 256 KiB, while a page is "
              "open; at most 1.01 is the aim"});
}

}  // namespace bench
