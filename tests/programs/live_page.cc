// A program with a live page: a loop that shows curves, histograms, progress and prints, for so
// many steps; prints the page's URL, and what the last step showed.
#include <postern/postern.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

namespace pn = postern;

// live_page STEPS PAUSE FOLDER SLOW REPORT: with SLOW a live hook "slow" in every SLOW-th step.
// Without a page where FOLDER is "-". With REPORT a report in this file at the end.
int main(int argc, char** argv) {
  const std::int64_t steps = argc > 1 ? std::atoll(argv[1]) : 200;
  const auto pause = std::chrono::milliseconds(argc > 2 ? std::atoll(argv[2]) : 10);
  const auto stats = pn::listen::stats();
  const auto histogram = pn::listen::histogram();
  const auto images = pn::listen::images();
  const auto progress = pn::listen::progress(steps, {.label = "training"});
  const std::string folder = argc > 3 ? argv[3] : "";
  const int slow = argc > 4 ? std::atoi(argv[4]) : 0;
  const std::string report = argc > 5 ? argv[5] : "";
  if (!report.empty()) pn::record_timeline(true);
  pn::listen::show_text("settings", "rate  0.01\nbatch 256\nnoise <normal>");
  pn::Served page;
  if (folder != "-") page = pn::serve({.port = 0, .announce = false, .folder = folder});
  std::cout << page.url << std::endl;
  const auto train = pn::jit([&](pn::Tensor key, pn::Tensor scale) {
    return pn::fori_loop(
        0, steps,
        [&](pn::Tensor i, pn::Tensor loss) {
          const auto noise =
              pn::random::normal(pn::random::fold_in(key, i), pn::type<float>({256}));
          pn::hook("noise", noise, {.ordered = false, .live = true});
          if (slow > 0)
            pn::cond(
                i % slow == 0,
                [](pn::Tensor v) {
                  pn::hook("slow", v, {.live = true});
                  return v;
                },
                [](pn::Tensor v) { return v; }, loss);
          pn::hook(pn::TapOptions{.name = "gradient"}, noise * loss, histogram);
          pn::tap(pn::TapOptions{.name = "field", .every = 20},
                  0.5 + 0.25 * pn::reshape(noise, {16, 16}), images);
          pn::tap(pn::TapOptions{.name = "gradient norm"}, pn::sum(noise * noise) * loss, stats);
          const auto next = loss * 0.99 + 0.001 * pn::mean(noise);
          pn::tap(pn::TapOptions{.name = "step"}, i, progress);
          pn::tap(pn::TapOptions{.name = "pace"}, i,
                  [pause](pn::View<const std::int32_t>) { std::this_thread::sleep_for(pause); });
          pn::cond(
              i % 25 == 0,
              [&](pn::Tensor v) {
                pn::print("loss {}", v);
                return v;
              },
              [](pn::Tensor v) { return v; }, next);
          return pn::tap(pn::TapOptions{.name = "loss"}, next, stats);
        },
        scale);
  });
  for (const float scale : {1.0F, 0.7F}) {
    const auto last = train(pn::random::key(7), pn::Tensor(scale));
    std::printf("last %.9g\n", static_cast<double>(last.item<float>()));
  }
  if (!report.empty()) pn::report(report, {.title = "A training"});
  std::fflush(stdout);
  std::cin.get();  // until whoever looks has seen it
}
