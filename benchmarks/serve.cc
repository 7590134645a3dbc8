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

#include "bare.h"
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

namespace {

/// A loop that shows its carry to a hook, or does not.
enum class Shown : std::uint8_t { nothing, asleep, awake };
Side loop_of(std::int64_t steps, Shown shown) {
  const auto loop = pn::jit([=](pn::Tensor x) {
    return pn::fori_loop(
        0, steps,
        [=](pn::Tensor, pn::Tensor v) {
          const pn::Tensor next = v * 1.0001f;
          return pn::hook(pn::TapOptions{.name = "carry", .live = shown != Shown::nothing}, next);
        },
        x);
  });
  const pn::Tensor x = pn::tensor<float>({1, 2, 3, 4});
  loop(x).block_until_ready();
  if (shown == Shown::awake)
    for (const pn::LiveHook& hook : pn::live_hooks())
      if (hook.listeners() == 0 && hook.name() == "carry")
        hook.turn_on([](const pn::TapInfo&, std::span<const pn::AnyView>) {}).keep();
  return [loop, x](std::int64_t n) {
    while (n-- > 0) loop(x).block_until_ready();
  };
}

}  // namespace

void live(Report& report) {
  constexpr std::int64_t steps = 1'000'000;
  Bare bare(identity_loop(steps));
  const float numbers[4] = {1, 2, 3, 4};
  bare.set_argument(pn::DType::f32, std::vector<std::int64_t>{4}, numbers);
  const Side awake = loop_of(steps, Shown::awake), asleep = loop_of(steps, Shown::asleep),
             nothing = loop_of(steps, Shown::nothing);
  const auto ns = race({asleep, [&](std::int64_t n) { bare.run(n); }, awake, nothing});
  const double per = static_cast<double>(steps);
  report.add({"live/asleep", ns[0] / per, "ns", "ffi", ns[1] / per,
              "a live hook of f32[4] in a compiled loop at which nobody listens; the bare handler "
              "copies the same bytes in the same loop; at most 20 ns more is the aim"});
  report.add({"live/awake", ns[2] / per, "ns", "asleep", ns[0] / per,
              "the same with a listener that does nothing"});
  report.add({"live/nothing", ns[3] / per, "ns", "asleep", ns[0] / per, "the loop without a hook"});
}

}  // namespace bench
