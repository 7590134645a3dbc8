// Runs a program that calls back with a number of the command line; "text" prints programs in place
// of running them, "twice" has two runs in their calls at one time.
#include <postern/postern.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <mutex>
#include <string>

namespace pn = postern;

namespace {

/// What two threads that run one program at a time get, the one's number after the other's.
int run_twice() {
  std::mutex mutex;
  std::condition_variable both;
  int inside = 0;
  const auto f = pn::jit([&](pn::Tensor x) {
    return 1 + pn::call(
                   x.type(),
                   [&](float in, pn::View<float> out) {
                     std::unique_lock lock(mutex);
                     ++inside;
                     both.notify_all();
                     both.wait_for(lock, std::chrono::seconds(20), [&] { return inside == 2; });
                     out[0] = 2 * in;
                   },
                   x);
  });
  auto other = std::async(std::launch::async,
                          [&] { return f(pn::tensor<float>({1.0f}, {})).item<float>(); });
  const float mine = f(pn::tensor<float>({10.0f}, {})).item<float>();
  std::printf("%d together: %g %g\n", inside, mine, other.get());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "run";
  const float add = argc > 2 ? std::strtof(argv[2], nullptr) : 1;
  auto f = pn::jit([=](pn::Tensor x) {
    pn::Tensor y = pn::call(
        {.name = "adder"}, x.type(),
        [=](pn::View<const float> in, pn::View<float> out) {
          for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] + add;
        },
        x * 2.0f);
    pn::call(
        {.name = "watcher", .effect = pn::Effect::ordered}, std::tuple<>(), [](float) {},
        pn::sum(y));
    return pn::sum(y);
  });
  if (how == "twice") return run_twice();
  if (how == "sharded") {  // over two devices, where XLA chooses how results lie
    const pn::Sharding s(pn::Mesh({{"d", 2}}), pn::P("d"));
    const auto g = pn::jit([=](pn::Tensor x) { return std::pair{pn::sum(f(x)), x * 2.0f}; });
    const auto [total, twice] = g(pn::device_put(pn::tensor<float>({1, 2, 3, 4}), s));
    std::printf("%g %s\n", total.item<float>(), to_string(*pn::sharding_of(twice)).c_str());
    return 0;
  }
  if (how == "text") {
    const auto lowered = f.lower(pn::abstract(pn::type<float>({3})));
    std::printf("%s\n%s\n", lowered.program().text().c_str(), lowered.stablehlo().c_str());
    return 0;
  }
  // Another shape is another program.
  const pn::Tensor x =
      how == "wider" ? pn::tensor<float>({1, 2, 3, 4}) : pn::tensor<float>({1, 2, 3});
  std::printf("%g\n", f(x).item<float>());
  return 0;
}
