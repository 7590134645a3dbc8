// The live page: what it shows of the process beside values, and from before it was opened.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <optional>
#include <thread>

#include "host/timeline.h"
#include "live/serve_test.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using test::has, test::Page, test::Stream;
using namespace std::chrono_literals;
using Json = nlohmann::json;

/// A loop that shows so many values to a histogram, each greater than the one before.
void show_growing(std::int64_t steps, const listen::Histogram& histogram) {
  const auto loop = jit([&](Tensor x) {
    return fori_loop(
        0, steps,
        [&](Tensor, Tensor v) {
          tap({.name = "grown"}, v, histogram);
          return v + 1.0f;
        },
        x);
  });
  loop(Tensor(0.0f)).block_until_ready();
}

TEST(Serve, HistogramsHaveHistoryFromBeforeThePageWasOpened) {
  const auto histogram = listen::histogram({.bins = 16});
  show_growing(1000, histogram);
  const Page page;
  Stream stream(page.url);
  ASSERT_TRUE(stream.wait_for([](Stream& s) { return s.histograms.size() == 1; }));
  const auto counted = [](const Json& then) {
    std::uint64_t sum = 0;
    for (const Json& n : then[3]) sum += n.get<std::uint64_t>();
    return sum;
  };
  const auto expect_even = [&](std::uint64_t firings) {
    const Json& known = stream.histograms.begin()->second;
    EXPECT_EQ(known["firings"], firings);
    const Json& history = known["history"];
    EXPECT_GE(history.size(), 60u);
    EXPECT_LE(history.size(), 260u);
    std::uint64_t before = 0;
    double time = 1.7e9;
    for (const Json& then : history) {
      EXPECT_GT(then[0].get<std::uint64_t>(), before);
      EXPECT_LE(then[0].get<std::uint64_t>() - before, 32u);
      EXPECT_EQ(counted(then), then[0]);  // one element in each firing
      EXPECT_GE(then[2].get<double>(), then[0].get<double>() - 1) << "its range holds them";
      EXPECT_GE(then[4].get<double>(), time);
      before = then[0];
      time = then[4];
    }
    EXPECT_GT(before + 32, firings);
  };
  expect_even(1000);
  show_growing(1000, histogram);
  ASSERT_TRUE(
      stream.wait_for([](Stream& s) { return s.histograms.begin()->second["firings"] == 2000; }));
  EXPECT_EQ(histogram.counts().size(), 1u);
  const auto wide = listen::histogram({.bins = 1 << 16});  // of which little is kept
  show_growing(100, wide);
  Stream late(page.url);
  ASSERT_TRUE(late.wait_for([](Stream& s) { return s.histograms.size() == 2; }));
  for (const auto& [id, h] : late.histograms) {
    const bool is_wide = h["bins"].size() > 16;
    EXPECT_EQ(h["history"].size() <= 2, is_wide);
  }
}

TEST(Serve, WhatIsCompiledAndWhatIsGoneIsTold) {
  const Page page;
  Stream stream(page.url);
  const auto compiles = [](Stream& s) {
    return s.compiling.dump().find("of_long") != Json::string_t::npos;
  };
  {
    const host::timeline::Compiling compiling("of_long");
    ASSERT_TRUE(stream.wait_for(compiles));
    EXPECT_GE(stream.compiling[0]["seconds"].get<double>(), 0);
  }
  ASSERT_TRUE(stream.wait_for([](Stream& s) { return s.compiling.empty(); }));

  std::atomic<bool> seen = false, over = false;
  const char* const compiled = plugin_info().calls_back ? "soon_gone" : "stage";
  std::thread looks([&] {
    while (!seen && !over)
      host::timeline::each_compiling([&](const auto& c) { seen = seen || c.name == compiled; });
  });
  {
    const auto f = jit(
        [](Tensor x) {
          for (int i = 0; i < 50; ++i) x = sin(x) * cos(x + static_cast<float>(i));
          tap({.name = "in_it"}, x, [](float) {});
          return x;
        },
        {.name = "soon_gone"});
    f(Tensor(1.0f)).block_until_ready();
    over = true;
    looks.join();
    EXPECT_TRUE(seen);
    ASSERT_TRUE(stream.wait_for([](Stream& s) { return s.programs.contains("soon_gone"); }));
    const Json number = stream.programs["soon_gone"]["number"];
    EXPECT_FALSE(stream.gone.dump().find(number.dump()) != std::string::npos);
  }
  const auto is_gone = [](Stream& s) {
    if (!s.programs.contains("soon_gone")) return false;
    for (const Json& number : s.gone)
      if (number == s.programs["soon_gone"]["number"]) return true;
    return false;
  };
  EXPECT_TRUE(stream.wait_for(is_gone));
  Stream late(page.url);  // of who comes when it is gone
  ASSERT_TRUE(late.wait_for(is_gone));
  EXPECT_GT(late.programs["soon_gone"]["operations"], 100);
  EXPECT_EQ(late.programs["soon_gone"]["sites"][0]["name"], "in_it");
}

TEST(Serve, AForkedProcessHoldsNoConnection) {
  std::optional<Page> page(std::in_place);
  test::Socket socket(page->port);
  ASSERT_TRUE(
      socket.send("GET " + page->target("/events") + " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  ASSERT_TRUE(has(socket.receive("event: whole"), "event: whole"));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(120);
    ::pause();
    ::_exit(0);
  }
  ASSERT_GT(child, 0);
  page.reset();
  const auto begin = std::chrono::steady_clock::now();
  socket.receive("", 60s);  // until the end of the connection
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 50s);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(Serve, ProcessImagesAndTextsAreTold) {
  const Page page;
  Stream stream(page.url);
  const auto images = listen::images();
  tap({.name = "seen"}, reshape(tensor<float>({0, 1, 0.5f, 1}), {2, 2}), images);
  tap({.name = "batch"}, zeros(type<std::uint8_t>({3, 4, 5, 3})), images);
  listen::show_text("config", "rate: 0.1\n<b>wide</b>");
  listen::show_text("other", "soon gone");
  ASSERT_TRUE(stream.wait_for([](Stream& s) {
    return s.images.size() == 2 && s.texts.size() == 2 && !s.process.is_null();
  }));
  EXPECT_EQ(stream.texts[0], (Json{{"name", "config"}, {"text", "rate: 0.1\n<b>wide</b>"}}));
  EXPECT_EQ(stream.images["seen"]["urls"].size(), 1u);
  EXPECT_EQ(stream.images["batch"]["urls"].size(), 3u);
  const std::string url = stream.images["seen"]["urls"][0];
  EXPECT_TRUE(url.starts_with("data:image/png;base64,iVBORw0KGgo")) << url;
  listen::show_text("other", "");
  ASSERT_TRUE(stream.wait_for([](Stream& s) { return s.texts.size() == 1; }));
  listen::show_text("config", "");
  ASSERT_TRUE(stream.wait_for([](Stream& s) { return s.texts.empty(); }));
  EXPECT_TRUE(has(stream.process["program"].get<std::string>(), "postern_")) << stream.process;
  EXPECT_FALSE(stream.process["host"].get<std::string>().empty());
  EXPECT_FALSE(stream.process["version"].get<std::string>().empty());
  EXPECT_THROW(tap({.name = "none"}, Tensor(1.0f), images), CallbackError);
}

}  // namespace
}  // namespace postern
