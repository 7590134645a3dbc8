// postern attach.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <iostream>
#include <map>
#include <set>

#include "commands.h"
#include "http_client.h"

namespace command {

using Json = nlohmann::json;

namespace {

volatile std::sig_atomic_t interrupted = 0;

std::string types_of(const Json& hook) {
  std::string out;
  for (const Json& leaf : hook.at("leaves"))
    out += fmt::format("{}{}{}{}", out.empty() ? "" : ", ", leaf[0].get<std::string>(),
                       leaf[0].get<std::string>().empty() ? "" : " ", leaf[1].get<std::string>());
  return out;
}

std::string listeners_of(const Json& hook) {
  std::string out = hook.at("own").is_null() ? "" : "its own";
  for (const Json& l : hook.at("listeners"))
    out += (out.empty() ? "" : ", ") + l.at("what").get<std::string>();
  return out.empty() ? "asleep" : out;
}

void list(const Json& hooks, bool json) {
  if (json) {
    std::cout << hooks.dump() << '\n';
    return;
  }
  if (hooks.empty()) std::cout << "The process has no live hooks.\n";
  for (const Json& h : hooks)
    std::cout << fmt::format("#{:<4} {:<24} {:<28} {}{}  {}\n", h.at("number").get<int>(),
                             h.at("name").get<std::string>(), types_of(h),
                             h.at("place").get<std::string>(),
                             h.at("transforms").get<std::string>().empty()
                                 ? ""
                                 : " (" + h.at("transforms").get<std::string>() + ")",
                             listeners_of(h));
}

/// The hooks of these names, or numbers after '#'; "all".
std::vector<Json> chosen(const Json& hooks, const std::vector<std::string>& names) {
  std::vector<Json> out;
  for (const std::string& name : names) {
    const std::size_t before = out.size();
    for (const Json& h : hooks)
      if (name == "all" || h.at("name") == name ||
          name == fmt::format("#{}", h.at("number").get<std::uint64_t>()))
        out.push_back(h);
    if (out.size() > before) continue;
    std::set<std::string> known;
    for (const Json& h : hooks) known.insert(h.at("name").get<std::string>());
    throw Problem(usage,
                  fmt::format("the process has no live hook '{}'; it has {}", name,
                              known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
  }
  return out;
}

/// Bars of eight heights.
std::string bars(const Json& bins) {
  constexpr const char* heights[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::uint64_t most = 1;
  for (const Json& n : bins) most = std::max(most, n.get<std::uint64_t>());
  std::string out;
  for (const Json& n : bins) {
    const auto count = n.get<std::uint64_t>();
    out += heights[count == 0 ? 0 : 1 + (count * 7) / most];
  }
  return out;
}

std::string number(const Json& n) {
  return n.is_null() ? "nan" : fmt::format("{:.6g}", n.get<double>());
}

/// What was turned on, and what has come of it.
class Followed {
 public:
  Followed(Served& served, const Attach& options) : served_(served), options_(options) {}

  void turn_on(const Json& hook, const std::string& kind, const std::string& file) {
    Json request{{"on", hook.at("number")}, {"listener", kind}, {"every", options_.every}};
    if (options_.until > 0) request["until"] = options_.until;
    if (options_.keep_last > 0) request["keep_last"] = options_.keep_last;
    if (!file.empty())
      request["file"] =
          served_.is_local() ? std::filesystem::absolute(file).lexically_normal().string() : file;
    const Json answer = served_.ask(request);
    on_.insert(answer.at("number").get<std::uint64_t>());
    if (const auto series = answer.at("series").get<std::uint64_t>(); series > 0)
      (kind == "stats" ? stats_ : histograms_).insert(fmt::format("{}.", series));
    if (kind == "print" || kind.find("non-finite") != std::string::npos) lines_ = true;
  }

  /// False when nothing is on any more.
  bool take(const Json& news) {
    for (const Json& s : news.value("series", Json::array())) show_series(s);
    for (const Json& h : news.value("histograms", Json::array())) show_histogram(h);
    for (const Json& line : news.value("lines", Json::array())) show_line(line);
    std::cout.flush();
    if (!news.contains("hooks")) return true;
    std::set<std::uint64_t> there;
    for (const Json& h : news["hooks"])
      for (const Json& l : h.at("listeners")) there.insert(l.at("number").get<std::uint64_t>());
    std::erase_if(on_, [&](std::uint64_t n) { return !there.contains(n); });
    return !on_.empty();
  }

  void turn_off() {
    for (const std::uint64_t n : on_) served_.ask({{"off", n}});
    on_.clear();
  }

 private:
  static bool is_of(const std::set<std::string>& ids, const std::string& id) {
    return std::ranges::any_of(ids, [&](const std::string& s) { return id.starts_with(s); });
  }
  void show_series(const Json& s) {
    const std::string id = s.at("id");
    if (s.contains("name"))
      labels_[id] = s.at("name").get<std::string>() + s.at("path").get<std::string>();
    if (!is_of(stats_, id)) return;
    if (options_.json) {
      std::cout << Json{{"hook", labels_[id]}, {"firings", s.at("firings")}, {"last", s.at("last")}}
                       .dump()
                << '\n';
      return;
    }
    const Json& last = s.at("last");
    std::cout << fmt::format("{}: firing {}  mean {}  min {}  max {}", labels_[id],
                             s.at("firings").get<std::uint64_t>() - 1, number(last.at("mean")),
                             number(last.at("min")), number(last.at("max")));
    if (last.at("nan") != 0 || last.at("inf") != 0)
      std::cout << fmt::format("  nan {}  inf {}", last.at("nan").get<std::int64_t>(),
                               last.at("inf").get<std::int64_t>());
    std::cout << '\n';
  }
  void show_histogram(const Json& h) {
    if (!is_of(histograms_, h.at("id"))) return;
    if (options_.json)
      std::cout << h.dump() << '\n';
    else
      std::cout << fmt::format("{}{}: [{}, {}] |{}|\n", h.at("name").get<std::string>(),
                               h.at("path").get<std::string>(), number(h.at("from")),
                               number(h.at("to")), bars(h.at("bins")));
  }
  void show_line(const Json& line) {
    if (!lines_ || line.at("from") != "hook") return;
    const std::string text = line.at("text");
    std::cout << (options_.json ? Json{{"line", text}}.dump() : text) << '\n';
  }

  Served& served_;
  const Attach& options_;
  std::set<std::uint64_t> on_;
  std::set<std::string> stats_, histograms_;
  std::map<std::string, std::string> labels_;
  bool lines_ = false;
};

}  // namespace

int attach(const Attach& options) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    std::signal(signal, [](int) { interrupted = 1; });
  Served served(options.process);
  std::optional<Json> whole;
  while (!whole && !served.ended() && !interrupted) whole = served.news();
  if (!whole) throw Problem(failed, "the process has ended");
  const Json hooks = whole->value("hooks", Json::array());
  if (options.listeners.empty()) {
    list(hooks, options.json);
    return ok;
  }
  const auto wanted = chosen(hooks, options.hooks);
  Followed followed(served, options);
  for (const Json& hook : wanted)
    for (const auto& [kind, file] : options.listeners) followed.turn_on(hook, kind, file);
  using Clock = std::chrono::steady_clock;
  const auto until = options.seconds > 0
                         ? Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                              std::chrono::duration<double>(options.seconds))
                         : Clock::time_point::max();
  bool goes_on = true;
  while (goes_on && !served.ended() && !interrupted && Clock::now() < until)
    if (const auto news = served.news()) goes_on = followed.take(*news);
  if (!served.ended()) followed.turn_off();
  return ok;
}

}  // namespace command
