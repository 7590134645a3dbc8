// The live page: what it is told equals what was tapped; who may ask; what it does not do to the
// program.
#include "live/serve_test.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <random>
#include <sstream>

#include "host/timeline.h"
#include "live/http.h"
#include "live/server.h"
#include "live/switches.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using test::body_of, test::Page, test::expect_error, test::get, test::has, test::Socket,
    test::status_of, test::Stream, test::wait_until;
using namespace std::chrono_literals;
using Json = nlohmann::json;

/// A loop that shows i / 7 to `listener`, and what it showed.
std::vector<double> show_sevenths(std::int64_t steps, const Callee& listener,
                                  const std::string& name = "seventh") {
  std::vector<double> shown;
  const auto loop = jit([&](Tensor x) {
    return fori_loop(
        0, steps,
        [&](Tensor i, Tensor v) {
          const Tensor seventh = convert(i, DType::f64) / 7.0;
          tap({.name = name}, seventh, listener);
          tap({.name = "truth"}, seventh, [&](double y) { shown.push_back(y); });
          return v;
        },
        x);
  });
  loop(Tensor(0.0f)).block_until_ready();
  return shown;
}

void expect_points(const Json& series, const std::vector<double>& truth) {
  ASSERT_EQ(series.at("points").size(), truth.size());
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const Json& p = series["points"][i];
    EXPECT_EQ(p[0], i);
    for (const int part : {1, 2, 3}) EXPECT_EQ(p[static_cast<std::size_t>(part)], truth[i]) << i;
    for (const int part : {4, 5})  // rms and norm of one element
      EXPECT_NEAR(p[static_cast<std::size_t>(part)].get<double>(), truth[i], 1e-12 * truth[i]);
    EXPECT_GE(p[6].get<double>(), i ? series["points"][i - 1][6].get<double>() : 1.7e9);
  }
}

TEST(Serve, ValuesAreThoseTapped) {
  const Page page;
  Stream stream(page.url);
  const auto stats = listen::stats();
  const auto truth = show_sevenths(1500, stats);
  const auto shown = [&](Stream& s) { return s.series("seventh").value("firings", 0) == 1500; };
  ASSERT_TRUE(stream.wait_for(shown));
  expect_points(stream.series("seventh"), truth);
  EXPECT_EQ(stream.series("seventh").at("last").at("mean"), truth.back());
  EXPECT_TRUE(has(stream.series("seventh").at("place").get<std::string>(), "serve_test.cc"));

  Stream late(page.url);  // gets all of it at once
  ASSERT_TRUE(late.wait_for(shown));
  EXPECT_EQ(late.updates, 1);
  expect_points(late.series("seventh"), truth);
}

TEST(Serve, ValuesOfHistogramsProgressPrintsAndPrograms) {
  const Page page;
  Stream stream(page.url);
  const auto histogram = listen::histogram({.bins = 8});
  std::ostringstream bar, out;
  const auto progress = listen::progress(100, {.label = "training", .stream = &bar});
  const auto f = jit(
      [&](Tensor x) {
        return fori_loop(
            0, 100,
            [&](Tensor i, Tensor v) {
              hook(TapOptions{.name = "weights"}, v, histogram);
              tap(TapOptions{.name = "step"}, i, progress);
              print({.stream = &out}, "step {} of \"100\"\xff", i);
              return v * 1.01f;
            },
            x);
      },
      {.name = "a_program"});
  f(sin(iota<float>(33))).block_until_ready();
  ASSERT_TRUE(stream.wait_for([](Stream& s) {
    return s.progress.contains("training") && s.progress["training"]["done"] == 100 &&
           s.lines.size() == 100 && s.programs.contains("a_program") && !s.devices.is_null() &&
           !s.histograms.empty();
  }));
  const auto counts = histogram.counts().at(0);
  const auto same = [&](Stream& s) { return s.histograms.begin()->second["bins"] == counts.bins; };
  EXPECT_TRUE(stream.wait_for(same));
  EXPECT_EQ(stream.histograms.begin()->second["from"], counts.from);
  EXPECT_EQ(stream.histograms.begin()->second["to"], counts.to);
  EXPECT_EQ(stream.lines[99]["text"], "step 99 of \"100\"\xef\xbf\xbd");
  EXPECT_EQ(stream.devices[0]["kind"], "cpu");
  const Json sites = stream.programs["a_program"]["sites"];
  ASSERT_EQ(sites.size(), 3U);
  EXPECT_EQ(sites[0]["kind"], "hook");
  EXPECT_EQ(sites[0]["name"], "weights");
  const std::string number = stream.programs["a_program"]["number"].dump();
  const std::string text = get(page.port, page.target("/program") + "&number=" + number);
  EXPECT_EQ(status_of(text), 200);
  EXPECT_TRUE(has(text, "multiply")) << text;
}

TEST(Serve, TimelineIsRecordedWhileSomebodyLooks) {
  const Page page;
  EXPECT_FALSE(host::timeline::on());
  {
    Stream stream(page.url);  // asks for it
    ASSERT_TRUE(wait_until([] { return host::timeline::on(); }));
    show_sevenths(3, listen::stats());
    ASSERT_TRUE(stream.wait_for([](Stream& s) {
      return std::ranges::any_of(s.events, [](const Json& e) { return e[1] == "seventh"; });
    }));
  }
  EXPECT_TRUE(wait_until([] { return !host::timeline::on(); }));
}

TEST(Serve, MetricsAreOpenMetrics) {
  const Page page;
  const auto stats = listen::stats();
  const auto truth = show_sevenths(12, stats, "with \"quotes\"\n");
  const std::string answer =
      get(page.port, "/metrics", "Authorization: Bearer " + page.token + "\r\n");
  ASSERT_EQ(status_of(answer), 200);
  EXPECT_TRUE(has(answer, "application/openmetrics-text; version=1.0.0"));
  const std::string text = body_of(answer);
  EXPECT_TRUE(text.ends_with("# EOF\n"));
  const std::string name = "name=\"with \\\"quotes\\\"\\n\"";
  std::istringstream lines(text);
  int found = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!has(line, name)) continue;
    const double value = std::stod(line.substr(line.rfind(' ') + 1));
    if (line.starts_with("postern_firings_total{")) found += value == 12;
    if (line.starts_with("postern_mean{")) found += value == truth.back();
  }
  EXPECT_EQ(found, 2) << text;
}

TEST(Serve, OnlyWhoHasTheTokenIsAnswered) {
  const Page page;
  const std::string whole = page.target("/");
  const struct {
    std::string target, headers;
    int status;
  } table[] = {
      {whole, "", 200},
      {"/", "Authorization: Bearer " + page.token + "\r\n", 200},
      {"/", "", 403},
      {"/events", "", 403},
      {"/metrics", "", 403},
      {"/program?number=1", "", 403},
      {"/?token=", "", 403},
      {"/?token=" + page.token.substr(1), "", 403},
      {"/?token=" + page.token + "0", "", 403},
      {"/", "Authorization: Bearer\r\n", 403},
      {whole, "Host: 127.0.0.1:" + std::to_string(page.port) + "\r\n", 200},
      {whole, "Host: localhost:9999\r\n", 200},  // through a tunnel
      {whole, "Host: evil.example\r\n", 421},
      {whole, "Host: 127.0.0.1.evil.example\r\n", 421},
      {whole, "Origin: http://localhost\r\n", 200},
      {whole, "Origin: http://evil.example\r\n", 403},
      {whole, "Origin: null\r\n", 403},
      {page.target("/etc/passwd"), "", 404},
      {page.target("/../../etc/passwd"), "", 404},
      {page.target("/%2e%2e/etc/passwd"), "", 404},
      {page.target("/program") + "&number=999999", "", 404},
      {page.target("/program") + "&number=-1", "", 404},
  };
  for (const auto& row : table)
    EXPECT_EQ(status_of(get(page.port, row.target, row.headers)), row.status)
        << row.target << " " << row.headers;
  const std::string answer = get(page.port, whole);
  EXPECT_TRUE(has(answer, "Content-Security-Policy: default-src 'none'"));
  EXPECT_FALSE(has(answer, "NONCE"));
  EXPECT_FALSE(has(body_of(answer), "http://"));  // it fetches nothing
}

TEST(Serve, NamesCanBeAllowed) {
  const Page page({.hosts = {"training.example"}});
  EXPECT_EQ(status_of(get(page.port, page.target("/"), "Host: training.example:80\r\n")), 200);
  EXPECT_EQ(status_of(get(page.port, page.target("/"), "Host: other.example\r\n")), 421);
}

int parsed_status(const std::string& bytes) { return live::parse_request(bytes).status; }

TEST(Serve, WhatIsNoRequestIsRefused) {
  const std::string host = "Host: a\r\n";
  const auto post = [&](const std::string& headers, const std::string& body) {
    return "POST / HTTP/1.1\r\n" + host + "Content-Type: application/json\r\n" + headers + "\r\n" +
           body;
  };
  const std::pair<std::string, int> table[] = {
      {"", 0},
      {"GET / HTTP/1.1\r\n", 0},
      {"GET / HTTP/1.1\r\n" + host + "\r\n", 200},
      {"GET /?a=%41&b HTTP/1.1\r\n" + host + "\r\n", 200},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + host + "\r\n", 400},
      {"GET  / HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET / HTTP/1.1\n" + host + "\r\n\r\n", 505},
      {"GET / HTTP/2.0\r\n" + host + "\r\n", 505},
      {"GET / FTP/1.0\r\n" + host + "\r\n", 400},
      {"GET http://a/ HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /?a=%4 HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /?a=%zz HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /?a=1&a=2 HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /\x80 HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + " folded\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "a b: c\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "a: \x01\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "Content-Length: 1\r\n\r\nx", 413},
      {"GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", 413},
      {"PUT / HTTP/1.1\r\n" + host + "\r\n", 405},
      {"POST / HTTP/1.1\r\n" + host + "\r\n", 411},
      {post("Content-Length: 2\r\n", "{}"), 200},
      {post("Content-Length: 2\r\n", "{"), 0},
      {post("Content-Length: 2\r\n", "{}{}"), 400},
      {post("Content-Length: 0\r\n", ""), 200},
      {post("Content-Length: 2x\r\n", "{}"), 400},
      {post("Content-Length: -2\r\n", "{}"), 400},
      {post("Content-Length: 4097\r\n", "{}"), 413},
      {post("Content-Length: 99999999999999999999\r\n", "{}"), 413},
      {post("Content-Length: 2\r\nContent-Length: 2\r\n", "{}"), 400},
      {post("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "{}"), 411},
      {post("Content-Length: 2\r\nExpect: 100-continue\r\n", "{}"), 417},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 2\r\n\r\n{}", 415},
      {"POST / HTTP/1.1\r\n" + host +
           "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 2\r\n\r\n{}",
       415},
      {"\r\n\r\n", 400},
      {"GET /" + std::string(3000, 'a') + " HTTP/1.1\r\n" + host + "\r\n", 414},
      {std::string(live::longest_request, 'a'), 431},
      {"GET / HTTP/1.1\r\n" + host + "a: " + std::string(9000, 'b') + "\r\n\r\n", 431},
  };
  for (const auto& [bytes, status] : table) EXPECT_EQ(parsed_status(bytes), status) << bytes;
}

/// A request of which some bytes are others, missing, or there twice.
std::string damaged(std::mt19937& random, std::string text) {
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  for (std::size_t changes = 1 + below(6); changes > 0 && !text.empty(); --changes) {
    const std::size_t at = below(text.size()), size = 1 + below(12);
    switch (below(4)) {
      case 0: text[at] = static_cast<char>(below(256)); break;
      case 1: text.erase(at, size); break;
      case 2: text.insert(at, text.substr(at, size)); break;
      case 3: text.insert(at, std::string(size, "\r\n:%?&= \0"[below(9)])); break;
    }
  }
  return text;
}

TEST(Serve, DamagedRequestsDoNoHarm) {
  const Page page;
  const std::string wholes[] = {
      "GET /metrics?token=" + page.token +
          " HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
          "Accept: text/html\r\nUser-Agent: x\r\n\r\n",
      "POST /switch?client=0123456789abcdef HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " +
          page.token +
          "\r\nContent-Type: application/json\r\nContent-Length: 51\r\n\r\n"
          R"({"on":1,"listener":"stats","every":10,"keep_last":0})"};
  std::mt19937 random(23);
  int ok = 0;
  for (int i = 0; i < 100'000; ++i) {
    const live::Parsed parsed = live::parse_request(damaged(random, wholes[i % 2]));
    EXPECT_STRNE(live::reason(parsed.status == 0 ? 400 : parsed.status), "Error");
    ok += parsed.status == 200;
  }
  EXPECT_GT(ok, 1000);  // what is damaged where it does not count
  EXPECT_LT(ok, 99'000);
  std::deque<Socket> open;  // those that wait for an end that does not come
  const char* const times =
      std::getenv("POSTERN_DAMAGED_REQUESTS");  // a hundred thousand take long
  for (int i = 0; i < (times ? std::atoi(times) : 200); ++i) {
    Socket& s = open.emplace_back(page.port);
    s.send(damaged(random, wholes[i % 2]));
    if (open.size() > 20) open.pop_front();
  }
  open.clear();
  EXPECT_EQ(status_of(get(page.port, page.target("/"))), 200);
}

TEST(Serve, DamagedSwitchesDoNoHarm) {
  const auto f = jit([](Tensor x) { return hook("damaged", x + 1.0f, {.live = true}); });
  f(Tensor(0.0f)).block_until_ready();
  std::string number;
  for (const LiveHook& h : live_hooks())
    if (h.name() == "damaged") number = std::to_string(h.number());
  const std::string whole =
      R"({"on":)" + number + R"(,"listener":"stats","every":10,"until":0,"keep_last":3})";
  std::mt19937 random(29);
  live::Switches switches({"", false});
  std::map<int, int> statuses;
  for (int i = 0; i < 100'000; ++i)
    ++statuses[switches.act("client", damaged(random, whole)).status];
  EXPECT_GT(statuses[400], 50'000);
  EXPECT_GT(statuses[200], 0);
  for (const auto& [status, times] : statuses)
    EXPECT_TRUE(status == 200 || status == 400 || status == 404 || status == 409) << status;
  switches.keep_only({});
  for (const std::string& deep : {std::string(4096, '['), std::string(2048, '{')})
    EXPECT_EQ(switches.act("client", deep).status, 400);
}

TEST(Serve, SlowAndIdleClientsHoldUpNobody) {
  const Page page;
  const auto stats = listen::stats();
  const std::string events =
      "GET " + page.target("/events") + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  std::deque<Socket> never_read, idle;
  Stream good(page.url);
  for (std::size_t i = 1; i < live::Server::most_streams; ++i)
    ASSERT_TRUE(never_read.emplace_back(page.port).send(events));
  ASSERT_TRUE(wait_until([&] { return status_of(get(page.port, page.target("/events"))) == 503; }));
  for (int i = 0; i < 80; ++i) idle.emplace_back(page.port).send("GET /");
  const auto truth = show_sevenths(2000, stats);
  EXPECT_EQ(truth.size(), 2000U);
  EXPECT_TRUE(
      good.wait_for([](Stream& s) { return s.series("seventh").value("firings", 0) == 2000; }));
  EXPECT_EQ(status_of(get(page.port, page.target("/"))), 200);  // an idle one had to go
}

/// Processor time of this process, in seconds.
double processor_time() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

TEST(Serve, WithoutDescriptorsItWaits) {
  const Page page;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);  // the last one that there is
  const rlimit none{static_cast<rlim_t>(fd) + 1, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(page.port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int connected = ::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to);
  const double before = processor_time();
  std::this_thread::sleep_for(1s);
  const double used = processor_time() - before;
  setrlimit(RLIMIT_NOFILE, &limit);
  ::close(fd);
  EXPECT_EQ(connected, 0);
  EXPECT_LT(used, 0.2);
  EXPECT_EQ(status_of(get(page.port, page.target("/"))), 200);
}

TEST(Serve, TheLastNewsComeBeforeTheEnd) {
  std::optional<Page> page(std::in_place);
  Stream stream(page->url);
  ASSERT_TRUE(stream.wait_for([](Stream& s) { return s.updates > 0; }));
  const auto stats = listen::stats();
  show_sevenths(20, stats);
  page.reset();
  EXPECT_TRUE(
      stream.wait_for([](Stream& s) { return s.series("seventh").value("firings", 0) == 20; }));
  EXPECT_FALSE(stream.wait_for([](Stream&) { return false; }));  // closed
}

TEST(Serve, ErrorsSayTheCure) {
  const Page page;
  expect_error<Error>([] { serve(); }, {"serves already, at http://127.0.0.1:", "stop_serving"},
                      ErrorCode::already_exists);
  stop_serving();
  const int taken = Page::start({}).port;
  expect_error<TypeError>([] { live::Server({.port = 0, .address = "localhost"}); },
                          {"one of IPv4 in numbers", "got 'localhost'"});
  expect_error<Error>([&] { live::Server({.port = taken}); },
                      {"cannot listen at 127.0.0.1:" + std::to_string(taken), "another port"},
                      ErrorCode::unavailable);
  expect_error<Error>([] { live::Server({.port = 0, .address = "192.0.2.1"}); },
                      {"no such address"}, ErrorCode::unavailable);
  stop_serving();
  expect_error<TypeError>([] { serve({.port = 65536}); }, {"from 0 to 65535", "65536"});
  expect_error<TypeError>([] { serve({.port = 0, .per_second = 11}); }, {"0.1 to 10", "11"});
  stop_serving();  // harmless
}

TEST(Serve, EnvironmentSaysSo) {
  const auto served = test::run_program("tap_exit", {"return"}, {{"POSTERN_SERVE", "0"}});
  EXPECT_EQ(served.code, 7);
  EXPECT_TRUE(has(served.err, "live page: http://127.0.0.1:")) << served.err;
  const auto wrong = test::run_program("tap_exit", {"return"}, {{"POSTERN_SERVE", "many"}});
  EXPECT_EQ(wrong.code, 7);
  EXPECT_TRUE(has(wrong.err, "POSTERN_SERVE must be a port or address:port, got 'many'"))
      << wrong.err;
}

TEST(Serve, WhoNeedsThePackageIsToldWhatIsMissing) {
  const std::string lapack = POSTERN_TEST_LIBRARIES "/../../packages/lapack/libpostern_lapack.so";
  const std::pair<std::string, std::string> table[] = {
      {"/no/such/live.so", "load_library: /no/such/live.so: /no/such/live.so: cannot open "},
      {lapack, "there is no package live"}};
  for (const auto& [path, why] : table) {
    const auto serves = test::run_program("live_page", {"1", "0"}, {{"POSTERN_LIVE", path}});
    EXPECT_TRUE(has(serves.err, "PluginError") && has(serves.err, "serve: " + why)) << serves.err;
    for (const auto& [variable, value] :
         {std::pair{"POSTERN_SERVE", "0"}, {"POSTERN_ATTACH", "1"}}) {
      const auto asked =
          test::run_program("tap_exit", {"return"}, {{"POSTERN_LIVE", path}, {variable, value}});
      EXPECT_EQ(asked.code, 7);  // a warning, and the program goes on
      EXPECT_TRUE(has(asked.err, ": " + why)) << asked.err;
    }
  }
}

/// What Chromium makes of the page, or "" where there is no Chromium.
std::string seen_in_browser(const std::string& url) {
  const std::string command =
      "browser=${POSTERN_TEST_BROWSER:-$(command -v chromium || command -v google-chrome)} && "
      "[ -n \"$browser\" ] && folder=$(mktemp -d) && HOME=$folder timeout 100 \"$browser\" "
      "--headless --no-sandbox --disable-gpu --no-first-run --user-data-dir=$folder "
      "--virtual-time-budget=2000 --dump-dom '" +
      url + "' 2> $folder/log; rm -rf $folder";
  std::string out;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  char part[4096];
  for (std::size_t n; (n = std::fread(part, 1, sizeof part, pipe)) > 0;) out.append(part, n);
  ::pclose(pipe);
  return out;
}

TEST(Serve, ABrowserShowsTheValues) {
  const Page page;
  const auto stats = listen::stats();
  const auto truth = show_sevenths(51, stats, "<b>seventh");
  const std::string seen = seen_in_browser(page.url + "&updates=1");
  if (seen.empty()) GTEST_SKIP() << "no Chromium (or set POSTERN_TEST_BROWSER)";
  EXPECT_TRUE(has(seen, "data-mean=\"" + Json(truth.back()).dump() + "\"")) << seen;
  EXPECT_TRUE(has(seen, "<td>51</td>"));
  EXPECT_TRUE(has(seen, "&lt;b&gt;seventh"));  // a name is no HTML
  EXPECT_FALSE(has(seen, "<b>"));
}

}  // namespace
}  // namespace postern
