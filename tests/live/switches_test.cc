// What is turned on from outside: who may, what, and that it ends with its client.
#include "live/switches.h"

#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "full_disk.h"
#include "host/live_test.h"
#include "live/serve_test.h"

namespace postern {
using namespace internal;
namespace {

using test::counting, test::has, test::Socket, test::status_of, test::Steps, test::Stream;
using namespace std::chrono_literals;
using Json = nlohmann::json;
namespace fs = std::filesystem;

struct Switchboard : Served {
  explicit Switchboard(const std::string& folder = "")
      : Served(serve({.port = 0, .announce = false, .folder = folder})) {}
  ~Switchboard() { stop_serving(); }
  Switchboard(const Switchboard&) = delete;

  std::string client(const std::string& id) const { return url + "&client=" + id; }
  std::string post(const std::string& body, const std::string& headers,
                   const std::string& path = "/switch?client=a") const {
    return test::ask(port, "POST " + path + " HTTP/1.1\r\n" +
                               (has(headers, "Host:") ? "" : "Host: localhost\r\n") + headers +
                               "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                               body);
  }
  std::string allowed() const {
    return "Authorization: Bearer " + token + "\r\nContent-Type: application/json\r\n";
  }
  /// The answer, and "status".
  Json ask(const Json& request, const std::string& client = "a") const {
    const std::string answer = post(request.dump(), allowed(), "/switch?client=" + client);
    Json out = Json::parse(test::body_of(answer));
    out["status"] = status_of(answer);
    return out;
  }
};

LiveHook hook_named(const std::string& name) { return test::only(live_hooks(), name); }

TEST(Switches, OnlyWhoMayIsHeard) {
  Steps steps;
  steps.finish();
  const auto f = counting(steps, 2);
  f(Tensor(0.0f)).block_until_ready();
  const Switchboard page;
  Stream stream(page.client("a"));
  ASSERT_TRUE(stream.wait_for([](Stream& s) { return !s.hooks.empty(); }));
  const std::string bearer = "Authorization: Bearer " + page.token + "\r\n",
                    json = "Content-Type: application/json\r\n", body = R"({"off":1})";
  const struct {
    std::string headers, path;
    int status;
  } table[] = {
      {bearer + json, "/switch?client=a", 404},  // heard: there is no listener 1
      {json, "/switch?client=a", 403},
      {json, "/switch?client=a&token=" + page.token, 403},  // a page of another site could do that
      {"Authorization: Bearer 0\r\n" + json, "/switch?client=a", 403},
      {bearer + json + "Origin: http://evil.example\r\n", "/switch?client=a", 403},
      {bearer + json + "Origin: null\r\n", "/switch?client=a", 403},
      {bearer + json + "Origin: http://localhost\r\n", "/switch?client=a", 404},
      {bearer + json + "Host: evil.example\r\n", "/switch?client=a", 421},
      {bearer, "/switch?client=a", 415},
      {bearer + json, "/switch?client=b", 409},
      {bearer + json, "/switch", 409},
      {bearer + json, "/", 405},
      {bearer + json, "/events", 405},
      {bearer + json, "/nothing", 405},
  };
  for (const auto& row : table)
    EXPECT_EQ(status_of(page.post(body, row.headers, row.path)), row.status)
        << row.path << " " << row.headers;
  EXPECT_EQ(status_of(test::get(page.port, "/switch?client=a&token=" + page.token)), 405);
}

TEST(Switches, TurnsOnChangesAndTurnsOff) {
  Steps steps;
  const auto run = counting(steps, 1000).start(Tensor(0.0f));
  ASSERT_TRUE(steps.go_to(10));
  const Switchboard page;
  Stream stream(page.client("a"));
  ASSERT_TRUE(stream.wait_for([](Stream& s) { return s.hook("value").contains("number"); }));
  const Json told = stream.hook("value");
  EXPECT_EQ(told["leaves"], Json::parse(R"([["","f32[]"]])"));
  EXPECT_EQ(told["own"], Json());
  EXPECT_EQ(told["program"], "main");
  const Json on = page.ask({{"on", told["number"]}, {"listener", "stats"}, {"every", 2}});
  ASSERT_EQ(on["status"], 200) << on;
  const Json printed = page.ask({{"on", told["number"]}, {"listener", "print"}, {"until", 3}});
  ASSERT_EQ(printed["status"], 200) << printed;
  ASSERT_TRUE(stream.wait_for([](Stream& s) { return s.hook("value")["listeners"].size() == 2; }));
  ASSERT_TRUE(steps.go_to(20));
  ASSERT_TRUE(
      stream.wait_for([](Stream& s) { return s.series("value").value("firings", 0) == 5; }));
  const Json series = stream.series("value");
  EXPECT_TRUE(has(series["id"].get<std::string>(), std::to_string(on["series"].get<int>()) + "."));
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(series["points"][static_cast<std::size_t>(i)][1], 11 + 2 * i);
  ASSERT_TRUE(stream.wait_for([](Stream& s) { return s.lines.size() >= 3; }));
  EXPECT_EQ(stream.lines.back()["text"], "value = 13");
  ASSERT_TRUE(stream.wait_for([](Stream& s) { return s.hook("value")["listeners"].size() == 1; }));
  EXPECT_EQ(page.ask({{"change", on["number"]}, {"until", 1000}})["status"], 200);
  EXPECT_EQ(page.ask({{"change", on["number"]}, {"every", 5}, {"keep_last", 100}})["status"], 200);
  ASSERT_TRUE(stream.wait_for([](Stream& s) {
    const Json now = s.hook("value")["listeners"][0];
    return now["every"] == 5 && now["until"] == 1000;  // which was not mentioned
  }));
  ASSERT_TRUE(stream.wait_for([](Stream& s) {
    const Json l = s.hook("value")["listeners"][0];
    return l["every"] == 5 && l["keep_last"] == 100 && l["async"] == true;
  }));
  ASSERT_TRUE(steps.go_to(40));
  ASSERT_TRUE(
      stream.wait_for([](Stream& s) { return s.series("value").value("firings", 0) == 9; }));
  EXPECT_EQ(page.ask({{"off", on["number"]}})["status"], 200);
  EXPECT_EQ(hook_named("value").listeners(), 0u);
  EXPECT_EQ(page.ask({{"off", on["number"]}})["status"], 404);
  EXPECT_EQ(page.ask({{"on", told["number"]}, {"listener", "end"}})["status"], 200);
  steps.finish();
  EXPECT_EQ(run.wait(), RunStatus::stopped);
}

TEST(Switches, WhatWaitsInAQueueIsPending) {
  const auto f = jit([](Tensor x) { return hook("queued", x, {.live = true}); });
  f(Tensor(1.0f)).block_until_ready();
  const LiveHook hook = hook_named("queued");
  std::promise<void> goes_on;
  const auto held = hook.turn_on(
      [may = goes_on.get_future().share()](const TapInfo&, float) { may.wait_for(60s); },
      {.mode = TapMode::async});
  const Switchboard page;
  Stream stream(page.client("a"));
  ASSERT_TRUE(stream.wait_for([](Stream& s) { return s.updates > 0; }));
  const Json on =
      page.ask({{"on", hook.number()}, {"listener", "print"}, {"until", 1}, {"keep_last", 8}});
  ASSERT_EQ(on["status"], 200) << on;
  const auto is_pending = [&] { return page.ask({{"pending", on["number"]}})["pending"] == true; };
  EXPECT_TRUE(is_pending());  // nothing has passed
  f(Tensor(2.0f)).block_until_ready();
  EXPECT_EQ(hook.listeners(), 1u);  // it has had all that it wants
  EXPECT_TRUE(is_pending());
  goes_on.set_value();
  EXPECT_TRUE(test::wait_until([&] { return !is_pending(); }));
  EXPECT_TRUE(stream.wait_for([](Stream& s) { return !s.lines.empty(); }));
  EXPECT_EQ(page.ask({{"pending", 1 << 30}})["status"], 404);
}

TEST(Switches, WhatIsOnEndsWithItsClient) {
  Steps steps;
  steps.finish();
  const auto f = counting(steps, 2);
  f(Tensor(0.0f)).block_until_ready();
  const LiveHook hook = hook_named("value");
  const Switchboard page;
  std::optional<Stream> first(std::in_place, page.client("first"));
  Stream second(page.client("second"));
  ASSERT_TRUE(first->wait_for([](Stream& s) { return s.updates > 0; }));
  ASSERT_TRUE(second.wait_for([](Stream& s) { return s.updates > 0; }));
  for (const char* client : {"first", "second"})
    ASSERT_EQ(page.ask({{"on", hook.number()}, {"listener", "stats"}}, client)["status"], 200);
  EXPECT_EQ(hook.listeners(), 2u);
  first.emplace(page.client("first"));  // as a page that asks for another stream
  std::this_thread::sleep_for(live::Switches::grace + 500ms);
  EXPECT_EQ(hook.listeners(), 2u);
  first.reset();
  ASSERT_TRUE(test::wait_until([&] { return hook.listeners() == 1; }, 10s));
  stop_serving();
  EXPECT_EQ(hook.listeners(), 0u);
}

TEST(Switches, WhatIsNoRequestIsRefused) {
  Steps steps;
  steps.finish();
  const auto f = counting(steps, 2);
  f(Tensor(0.0f)).block_until_ready();
  const std::string hook = std::to_string(hook_named("value").number());
  live::Switches switches({"", false});
  const struct {
    std::string text;
    int status;
    const char* error;
  } table[] = {
      {"", 400, "no JSON"},
      {"[]", 400, "must be an object"},
      {"{}", 400, "'own' must be a number from 1"},
      {R"({"on":)" + hook + "}", 400, "'listener' must be a name"},
      {R"({"on":)" + hook + R"(,"listener":"shell"})", 400, "there is no listener 'shell'"},
      {R"({"on":)" + hook + R"(,"listener":"stats","else":1})", 400, "'else' is not known here"},
      {R"({"on":)" + hook + R"(,"listener":"stats","every":0})", 400, "every must be positive"},
      {R"({"on":)" + hook + R"(,"listener":"stats","every":1.5})", 400, "must be a whole number"},
      {R"({"on":)" + hook + R"(,"listener":"stats","every":18446744073709551615})", 400, "number"},
      {R"({"on":)" + hook + R"(,"listener":"stats","keep_last":-1})", 400, "must not be negative"},
      {R"({"on":999999,"listener":"stats"})", 404, "no such hook"},
      {R"({"on":-1,"listener":"stats"})", 400, "number from 1"},
      {R"({"on":)" + hook + R"(,"listener":"record","file":"x.npy"})", 403,
       "lets nobody make files"},
      {R"({"change":1})", 404, "nobody has turned on"},
      {R"({"own":)" + hook + R"(,"every":2})", 409, "no listener of its own"},
  };
  for (const auto& row : table) {
    const auto answer = switches.act("a", row.text);
    EXPECT_EQ(answer.status, row.status) << row.text;
    EXPECT_TRUE(has(answer.json, row.error)) << answer.json;
  }
}

TEST(Switches, FilesAreNewAndInTheFolder) {
  const fs::path folder = fs::temp_directory_path() / "postern_switches";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const auto f = jit([](Tensor x) {
    return fori_loop(
        0, 5, [](Tensor, Tensor v) { return hook("kept", v + 1.0f, {.live = true}); }, x);
  });
  f(Tensor(0.0f)).block_until_ready();
  const std::uint64_t number = hook_named("kept").number();
  live::Switches switches({folder.string(), false});
  const auto record = [&](const std::string& file, const char* kind = "record") {
    return switches.act("a", Json{{"on", number}, {"listener", kind}, {"file", file}}.dump());
  };
  for (const char* wrong :
       {"", "../x.npy", "/tmp/x.npy", ".x.npy", "a/b.npy", "x-{step}.npz", "x.txt"})
    EXPECT_EQ(record(wrong).status, 400) << wrong;
  const auto on = record("x.npy");
  ASSERT_EQ(on.status, 200) << on.json;
  ASSERT_EQ(record("point", "checkpoint").status, 200);
  f(Tensor(0.0f)).block_until_ready();
  switches.act("a", Json{{"off", Json::parse(on.json)["number"]}}.dump());
  EXPECT_EQ(read_npy(folder / "x.npy").to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5}));
  EXPECT_EQ(record("x.npy").status, 409);
  barrier();
  EXPECT_EQ(resume<Tensor>(folder / "point")->item<float>(), 1);
  fs::remove_all(folder);
}

/// A hook "large" that is passed so often by 4 MiB.
auto large(int n) {
  return jit([n](Tensor x) {
    return fori_loop(
        0, n,
        [](Tensor, Tensor v) {
          hook("large", broadcast_to(v, {1 << 20}), {.live = true});
          return v + 1.0f;
        },
        x);
  });
}

std::int64_t rows_in(const fs::path& file) {
  const auto arrays = read_npz(file);
  return arrays.empty() ? 0 : arrays[0].second.type().dims[0];
}

TEST(Switches, AFileIsWholeWhenItsListenerIsOff) {
  const test::TemporaryFolder folder;
  const auto f = large(10);
  f(Tensor(0.0f)).block_until_ready();
  const std::uint64_t number = hook_named("large").number();
  {
    const Switchboard page(folder.path());
    Stream stream(page.client("a"));
    ASSERT_TRUE(stream.wait_for([](Stream& s) { return s.updates > 0; }));
    const auto record = [&](const char* file, int until) {
      return page.ask({{"on", number}, {"listener", "record"}, {"file", file}, {"until", until}});
    };
    const Json off = record("off.npz", 0), spent = record("spent.npz", 3);
    ASSERT_EQ(off["status"], 200) << off;
    ASSERT_EQ(spent["status"], 200) << spent;
    f(Tensor(0.0f)).block_until_ready();
    // What has seen all that it wants is let go of without a word of its client's.
    EXPECT_TRUE(test::wait_until([&] { return fs::exists(folder.path() + "/spent.npz"); }));
    for (const Json& one : {off, spent})
      EXPECT_EQ(page.ask({{"off", one["number"]}})["status"], 200);
    EXPECT_EQ(rows_in(folder.path() + "/off.npz"), 10);
    EXPECT_EQ(rows_in(folder.path() + "/spent.npz"), 3);
    EXPECT_EQ(page.ask({{"off", spent["number"]}})["status"], 404);
  }
  live::Switches switches({folder.path(), false});
  const auto on =
      switches.act("a", Json{{"on", number}, {"listener", "record"}, {"file", "exit.npz"}}.dump());
  f(Tensor(0.0f)).block_until_ready();
  switches.act("a", Json{{"off", Json::parse(on.json)["number"]}}.dump());
  barrier();  // as the end of the process
  EXPECT_EQ(rows_in(folder.path() + "/exit.npz"), 10);
}

TEST(Switches, AFileThatCannotBeWrittenIsTold) {
  const test::TemporaryFolder folder;
  const auto f = large(2);
  f(Tensor(0.0f)).block_until_ready();
  live::Switches switches({folder.path(), false});
  const auto ask = [&](const Json& request) {
    return Json::parse(switches.act("a", request.dump()).json);
  };
  const std::uint64_t hook = hook_named("large").number();
  const Json on = ask({{"on", hook}, {"listener", "record"}, {"file", "full.npz"}});
  ASSERT_TRUE(on.contains("number")) << on;
  f(Tensor(0.0f)).block_until_ready();
  EXPECT_EQ(ask({{"pending", on["number"]}}), Json({{"pending", true}, {"finishes", true}}));
  const test::FullDisk full(100'000);
  ask({{"off", on["number"]}});
  Json said;
  EXPECT_TRUE(test::wait_until([&] {
    said = ask({{"pending", on["number"]}});
    return said.value("finishes", true) == false;
  })) << said;
  EXPECT_TRUE(has(said.value("failed", ""), "File too large")) << said;
}

TEST(Switches, AFileHasOneListener) {
  const test::TemporaryFolder folder;
  const auto f = jit([](Tensor x) {
    return hook("first", x, {.live = true}) + hook("second", x * 2.0f, {.live = true});
  });
  f(Tensor(1.0f)).block_until_ready();
  live::Switches page({folder.path(), false}), attached({"/", true});
  const auto record = [](live::Switches& to, const char* hook, const std::string& file) {
    return to.act(
        "a",
        Json{{"on", hook_named(hook).number()}, {"listener", "record"}, {"file", file}}.dump());
  };
  const auto on = record(page, "first", "same.npz");
  ASSERT_EQ(on.status, 200) << on.json;
  const auto second = record(page, "second", "same.npz");
  EXPECT_EQ(second.status, 409);
  EXPECT_TRUE(has(second.json, "another listener writes to")) << second.json;
  EXPECT_EQ(record(attached, "second", folder.path() + "/./same.npz").status, 409);
  f(Tensor(1.0f)).block_until_ready();
  page.act("a", Json{{"off", Json::parse(on.json)["number"]}}.dump());
  barrier();
  EXPECT_EQ(record(page, "second", "same.npz").status, 409);  // the file is there
  EXPECT_EQ(read_npz(folder.path() + "/same.npz").at(0).first, "first");
  EXPECT_EQ(record(attached, "second", folder.path() + "/same.npz").status, 200);
}

TEST(Switches, APlaceThatCannotBeWrittenToIsRefused) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() + "/file") << "no folder";
  const auto f = jit([](Tensor x) { return hook("kept", x, {.live = true}); });
  f(Tensor(0.0f)).block_until_ready();
  live::Switches switches({"/", true});
  const struct {
    const char* listener;
    std::string file, error;
  } table[] = {
      {"record", "/no/such/folder/x.npz", "No such file or directory"},
      {"record", "/no/such/folder/x.npy", "No such file or directory"},
      {"record", "/no/such/folder/{step}.npz", "No such file or directory"},
      {"checkpoint", folder.path() + "/file/x", "Not a directory"},
      {"checkpoint", "/proc/nowhere", "/proc/nowhere"},
  };
  for (const auto& row : table) {
    const auto answer = switches.act(
        "a",
        Json{{"on", hook_named("kept").number()}, {"listener", row.listener}, {"file", row.file}}
            .dump());
    EXPECT_EQ(answer.status, 409) << row.file;
    EXPECT_TRUE(has(answer.json, row.error)) << answer.json;
  }
  EXPECT_EQ(hook_named("kept").listeners(), 0u);
}

TEST(Switches, ListenersThatAreOverDoNotCount) {
  Steps steps;
  steps.finish();
  const auto f = counting(steps, 2);
  f(Tensor(0.0f)).block_until_ready();
  const std::uint64_t hook = hook_named("value").number();
  live::Switches switches({"", false});
  for (std::size_t i = 0; i < 2 * live::Switches::most_listeners; i += 32) {
    for (int k = 0; k < 32; ++k) {
      const auto on =
          switches.act("a", Json{{"on", hook}, {"listener", "stats"}, {"until", 1}}.dump());
      ASSERT_EQ(on.status, 200) << on.json;
    }
    f(Tensor(0.0f)).block_until_ready();
  }
  EXPECT_EQ(hook_named("value").listeners(), 0u);
}

TEST(Switches, NonFiniteIsToldOrEndsTheRun) {
  const auto f = jit([](Tensor x) {
    return fori_loop(
        0, 4, [](Tensor, Tensor v) { return hook("logs", log(v), {.live = true}); }, x);
  });
  const Tensor x = tensor<float>({3, 5});
  f(x).block_until_ready();
  const Switchboard page;
  Stream stream(page.client("a"));
  ASSERT_TRUE(stream.wait_for([](Stream& s) { return s.updates > 0; }));
  const std::uint64_t number = hook_named("logs").number();
  const Json on = page.ask({{"on", number}, {"listener", "non-finite"}});
  ASSERT_EQ(on["status"], 200);
  f(x).block_until_ready();
  ASSERT_TRUE(stream.wait_for([](Stream& s) {
    return std::ranges::any_of(s.lines, [](const Json& line) {
      return has(line["text"].get<std::string>(), "logs at [0] is nan in firing 3");
    });
  })) << stream.lines;
  ASSERT_EQ(page.ask({{"on", number}, {"listener", "stop at non-finite"}})["status"], 200);
  test::expect_error<CallbackError>([&] { f(x).block_until_ready(); }, {"hook 'logs'", "is nan"});
}

/// How many sockets of this process listen.
int listening_sockets() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0) count += listens;
  }
  return count;
}

TEST(Switches, UnaskedTheProcessOpensNoSocket) {
  Steps steps;
  steps.finish();
  const auto f = counting(steps, 2);
  f(Tensor(0.0f)).block_until_ready();
  ASSERT_FALSE(live_hooks().empty());
  EXPECT_EQ(listening_sockets(), 0);
  test::expect_error<Error>([] { detail::attach_socket(::getpid()); },
                            {"does not listen", "POSTERN_ATTACH=1"}, ErrorCode::not_found);
  {
    const Switchboard page;
    EXPECT_EQ(listening_sockets(), 2);  // for browsers and for `postern attach`
    ::close(detail::attach_socket(::getpid()));
  }
  EXPECT_EQ(listening_sockets(), 0);
}

TEST(Switches, AProcessCanBeAttachedTo) {
  Steps steps;
  steps.finish();
  const auto f = counting(steps, 2);
  f(Tensor(0.0f)).block_until_ready();
  const Switchboard page;
  const int fd = detail::attach_socket(::getpid());
  const std::string request = "GET /events?client=b HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_GT(::send(fd, request.data(), request.size(), 0), 0);
  std::string got;
  char part[4096];
  while (!has(got, "\"hooks\"")) {
    const ssize_t n = ::recv(fd, part, sizeof part, 0);
    ASSERT_GT(n, 0) << got;
    got.append(part, static_cast<std::size_t>(n));
  }
  EXPECT_TRUE(has(got, "event: whole"));
  ::close(fd);
  test::expect_error<Error>([] { detail::attach_socket(1); }, {"process 1 does not listen"},
                            ErrorCode::not_found);
}

}  // namespace
}  // namespace postern
