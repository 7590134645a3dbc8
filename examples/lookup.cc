// A program that looks up what only this process knows, through a service that may be slow or fail:
// a limit of time for each call, typed errors that name the call, and a run after a failure that
// works as if nothing had happened.
#include <postern/postern.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

namespace pn = postern;
using namespace std::chrono_literals;

namespace {

/// Prices by article; `delay` is what the network makes of it.
struct Service {
  std::map<std::int32_t, float> prices = {{7, 1.5f}, {8, 20.0f}, {12, 0.25f}};
  std::atomic<std::chrono::milliseconds> delay{0ms};

  float price(std::int32_t article, const pn::StopToken& stop) const {
    for (auto waited = 0ms; waited < delay.load() && !stop.stop_requested(); waited += 5ms)
      std::this_thread::sleep_for(5ms);
    const auto found = prices.find(article);
    if (found == prices.end())
      throw std::out_of_range("there is no article " + std::to_string(article));
    return found->second;
  }
};

int failures = 0;
void expect(bool ok, const char* what) {
  std::printf("%s %s\n", ok ? "ok  " : "FAIL", what);
  failures += !ok;
}

}  // namespace

int main() {
  // Shared, not borrowed: a function that is late may still be at work when main has ended.
  const auto service = std::make_shared<Service>();
  const auto total = pn::jit([&](pn::Tensor articles, pn::Tensor counts) {
    const pn::Tensor prices = pn::call(
        {.name = "price", .timeout = 200ms}, pn::type<float>(articles.dims()),
        [service](const pn::CallInfo& info, pn::View<const std::int32_t> article,
                  pn::View<float> price) {
          for (std::int64_t i = 0; i < article.size(); ++i)
            price[i] = service->price(article[i], info.stop);
        },
        articles);
    return pn::sum(prices * counts);
  });
  const pn::Tensor counts = pn::tensor<float>({2, 1, 4});
  const auto order = [&](std::int32_t last) {
    return total(pn::tensor<std::int32_t>({7, 8, last}), counts).item<float>();
  };

  expect(order(12) == 24.0f, "an order is worth 24");
  try {
    order(99);
    expect(false, "an unknown article is an error");
  } catch (const pn::CallbackError& e) {
    std::printf("     %s\n", e.what());
    expect(e.site().name == "price" && e.code() == pn::ErrorCode::threw,
           "an unknown article is an error of the call 'price'");
    try {
      std::rethrow_exception(e.cause());
    } catch (const std::out_of_range&) {
      expect(true, "its cause is what the service threw");
    }
  }
  service->delay = 60s;
  try {
    order(12);
    expect(false, "a slow service is an error");
  } catch (const pn::TimeoutError& e) {
    std::printf("     %s\n", e.what());
    expect(true, "a slow service is a TimeoutError, after 0.2 s");
  }
  service->delay = 0ms;
  expect(order(12) == 24.0f, "the same program works again");
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
