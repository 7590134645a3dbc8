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

using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t interrupted = 0;  // how often

/// What a process may take to finish what was recorded.
constexpr std::chrono::minutes for_files{10};

/// All that there is to see by now, of a process that has not ended.
std::optional<Json> all_of(Served& served) {
  std::optional<Json> out;
  served.begin();
  while (!out && !served.ended() && !interrupted) out = served.news();
  return out;
}

/// Whether the process is just ending.
bool ends(Served& served) {
  const auto limit = Clock::now() + std::chrono::seconds(1);
  while (!served.ended() && Clock::now() < limit) served.news();
  return served.ended();
}

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
  /// `before`: all that there was to see when nothing was turned on yet.
  Followed(Served& served, const Attach& options, const Json& before)
      : served_(served), options_(options) {
    for (const Json& line : before.value("lines", Json::array()))
      last_line_ = line.at("number").get<std::uint64_t>();
  }

  void turn_on(const Json& hook, const std::string& kind, const std::string& file) {
    Json request{{"on", hook.at("number")}, {"listener", kind}, {"every", options_.every}};
    if (options_.until > 0) request["until"] = options_.until;
    if (options_.keep_last > 0) request["keep_last"] = options_.keep_last;
    if (!file.empty())
      request["file"] =
          served_.is_local() ? std::filesystem::absolute(file).lexically_normal().string() : file;
    const Json answer = served_.ask(request);
    numbers_.push_back(answer.at("number").get<std::uint64_t>());
    if (kind == "record") files_[numbers_.back()] = file;
    if (const auto series = answer.at("series").get<std::uint64_t>(); series > 0)
      (kind == "stats" ? stats_ : histograms_).insert(fmt::format("{}.", series));
    if (kind == "print" || kind.find("non-finite") != std::string::npos) lines_ = true;
  }

  /// False when nothing is on any more. The news must be of later than the last `turn_on`.
  bool take(const Json& news) {
    for (const Json& s : news.value("series", Json::array())) show_series(s);
    for (const Json& h : news.value("histograms", Json::array())) show_histogram(h);
    for (const Json& line : news.value("lines", Json::array())) show_line(line);
    std::cout.flush();
    if (!news.contains("hooks")) return true;
    for (const Json& h : news["hooks"])
      for (const Json& l : h.at("listeners"))
        if (std::ranges::find(numbers_, l.at("number").get<std::uint64_t>()) != numbers_.end())
          return true;
    return false;
  }

  /// Whether something that is over has yet to see what waits in a queue for it.
  bool awaits_more() {
    return std::ranges::any_of(numbers_,
                               [&](std::uint64_t n) { return said_of(n).value("pending", false); });
  }

  /// Also what has had all that it was to see: it may have a file to finish.
  void turn_off() {
    for (const std::uint64_t n : numbers_) {
      try {
        served_.ask({{"off", n}});
      } catch (const Refused& e) {
        if (e.status != 404) throw;
      }
    }
  }

  /// Waits until what was recorded is on disk, for a limited time or until the next interrupt;
  /// what went wrong.
  std::string finish_files() {
    const auto limit = Clock::now() + for_files;
    const auto before = interrupted;
    std::string out;
    while (!files_.empty()) {
      const auto& [number, file] = *files_.begin();
      const Json said = said_of(number);
      if (said.value("finishes", false)) {
        if (Clock::now() > limit || interrupted != before)
          return fmt::format("the process still writes '{}'", file);
        served_.news();  // who does not read is taken for gone
        continue;
      }
      if (out.empty()) out = said.value("failed", "");
      files_.erase(files_.begin());
    }
    return out;
  }
  bool has_files() const { return !files_.empty(); }

 private:
  /// What the process says of one; nothing where it is gone, or an older process knows no answer.
  Json said_of(std::uint64_t number) {
    try {
      return served_.ask({{"pending", number}});
    } catch (const Refused& e) {
      if (e.status != 404 && e.status != 400) throw;
      return Json::object();
    }
  }
  static bool is_of(const std::set<std::string>& ids, const std::string& id) {
    return std::ranges::any_of(ids, [&](const std::string& s) { return id.starts_with(s); });
  }
  void show_series(const Json& s) {
    const std::string id = s.at("id");
    if (s.contains("name"))
      labels_[id] = s.at("name").get<std::string>() + s.at("path").get<std::string>();
    if (!is_of(stats_, id)) return;
    const Json& last = s.at("last");
    if (options_.json)
      return show("series", s,
                  Json{{"hook", labels_[id]}, {"firings", s.at("firings")}, {"last", last}}.dump());
    std::string text =
        fmt::format("{}: firing {}  mean {}  min {}  max {}", labels_[id],
                    s.at("firings").get<std::uint64_t>() - 1, number(last.at("mean")),
                    number(last.at("min")), number(last.at("max")));
    if (last.at("nan") != 0 || last.at("inf") != 0)
      text += fmt::format("  nan {}  inf {}", last.at("nan").get<std::int64_t>(),
                          last.at("inf").get<std::int64_t>());
    show("series", s, text);
  }
  void show_histogram(const Json& h) {
    if (!is_of(histograms_, h.at("id"))) return;
    show("histogram", h,
         options_.json ? h.dump()
                       : fmt::format("{}{}: [{}, {}] |{}|", h.at("name").get<std::string>(),
                                     h.at("path").get<std::string>(), number(h.at("from")),
                                     number(h.at("to")), bars(h.at("bins"))));
  }
  /// What is told again, as all is at a beginning, is not shown again. Series and histograms each
  /// have ids of their own.
  void show(const char* kind, const Json& entry, const std::string& text) {
    const auto firings = entry.at("firings").get<std::uint64_t>();
    if (std::exchange(shown_[{kind, entry.at("id").get<std::string>()}], firings) != firings)
      std::cout << text << '\n';
  }
  void show_line(const Json& line) {
    const auto number = line.at("number").get<std::uint64_t>();
    if (number <= last_line_) return;  // told again
    const std::uint64_t lost = number - std::exchange(last_line_, number) - 1;
    if (!lines_) return;
    if (lost > 0)
      std::cerr << fmt::format("postern: {} lines came too fast and were left out\n", lost);
    if (line.at("from") != "hook") return;
    const std::string text = line.at("text");
    std::cout << (options_.json ? Json{{"line", text}}.dump() : text) << '\n';
  }

  Served& served_;
  const Attach& options_;
  std::vector<std::uint64_t> numbers_;          // of what was turned on
  std::map<std::uint64_t, std::string> files_;  // of those that record, until they are finished
  std::set<std::string> stats_, histograms_;
  std::map<std::string, std::string> labels_;
  std::map<std::pair<std::string, std::string>, std::uint64_t> shown_;  // firings, by kind and id
  std::uint64_t last_line_ = 0;                                         // that the process has told
  bool lines_ = false;
};

}  // namespace

int attach(const Attach& options) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    std::signal(signal, [](int) { interrupted = interrupted + 1; });
  Served served(options.process);
  const std::optional<Json> before = all_of(served);
  if (!before) throw Problem(failed, "the process has ended");
  const Json hooks = before->value("hooks", Json::array());
  if (options.listeners.empty()) {
    list(hooks, options.json);
    return ok;
  }
  const auto wanted = chosen(hooks, options.hooks);
  Followed followed(served, options, *before);
  for (const Json& hook : wanted)
    for (const auto& [kind, file] : options.listeners) followed.turn_on(hook, kind, file);
  const auto until = options.seconds > 0
                         ? Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                              std::chrono::duration<double>(options.seconds))
                         : Clock::time_point::max();
  const auto goes_on = [&] {
    return std::cout.good() && !served.ended() && !interrupted && Clock::now() < until;
  };
  // Begun anew: what is on its way may be older than the answers, and lack what was turned on.
  auto news = all_of(served);
  while ((!news || followed.take(*news)) && goes_on()) news = served.news();
  std::string lost;
  try {
    while (goes_on() && followed.awaits_more())
      if (const auto more = served.news()) followed.take(*more);
    if (goes_on())  // what has come since
      if (const auto rest = all_of(served)) followed.take(*rest);
    if (!served.ended()) followed.turn_off();
    if (!served.ended()) lost = followed.finish_files();
  } catch (const Refused&) {
    throw;
  } catch (const std::exception&) {
    if (!ends(served)) throw;
  }
  if (!lost.empty()) throw Problem(bad_file, lost);
  if (followed.has_files())
    std::cerr << "postern: the process ended before it said whether what was recorded is whole\n";
  return ok;
}

}  // namespace command
