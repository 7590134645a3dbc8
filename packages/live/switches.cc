// What clients ask for: strict JSON, a fixed list of listeners, and a lease for each client.
#include "switches.h"

#include <fmt/format.h>
#include <postern/checkpoint.h>
#include <postern/listen.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "spi.h"
#include "written_file.h"

namespace postern::internal::live {

namespace {

using Json = nlohmann::json;

constexpr std::size_t most_hooks = 1000;

/// The whole number under a name, which must fit; `otherwise` when there is none.
std::int64_t number(const Json& asked, const char* name, std::int64_t otherwise) {
  if (!asked.contains(name)) return otherwise;
  const Json& n = asked[name];
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  check(n.is_number_integer() && !(n.is_number_unsigned() && n.get<std::uint64_t>() > most),
        "'{}' must be a whole number", name);
  return n.get<std::int64_t>();
}
std::uint64_t id(const Json& asked, const char* name) {
  const std::int64_t n = number(asked, name, 0);
  check(n > 0, "'{}' must be a number from 1", name);
  return static_cast<std::uint64_t>(n);
}

/// What requests call the options.
constexpr std::pair<const char*, std::int64_t LiveOptions::*> numbers[] = {
    {"every", &LiveOptions::every},
    {"until", &LiveOptions::until},
    {"keep_last", &LiveOptions::keep_last}};

/// With `out` for what the request does not say. The mode follows from how many are kept.
LiveOptions options_asked(const Json& asked, LiveOptions out) {
  const bool kept = out.keep_last != 0;
  for (const auto& [name, member] : numbers) out.*member = number(asked, name, out.*member);
  if (out.keep_last != 0)
    out.mode = TapMode::async;
  else if (kept)
    out.mode = TapMode::sync;
  return out;
}

using Names = std::vector<std::string_view>;

Names with_options(Names known) {
  for (const auto& [name, member] : numbers) known.push_back(name);
  return known;
}

void check_names(const Json& asked, const Names& known) {
  for (const auto& [name, value] : asked.items())
    check(std::ranges::find(known, name) != known.end(), "'{}' is not known here",
          name.substr(0, 64));
}

/// Where a file of this name goes. From elsewhere only new ones, and none but in the folder.
std::filesystem::path place_of(const Switches::Files& files, const Json& asked, bool fresh) {
  check(asked.contains("file") && asked["file"].is_string(), "'file' must be a name");
  const std::string name = asked["file"];
  if (files.anywhere) {
    check(name.starts_with('/') && name.find('\0') == std::string::npos,
          "'file' must be a whole path");
    return name;
  }
  if (files.folder.empty())
    throw Error(ErrorCode::permission_denied,
                "this process lets nobody make files (ServeOptions::folder)");
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-';
  };
  check(
      !name.empty() && name.size() <= 100 && name[0] != '.' && std::ranges::all_of(name, is_plain),
      "'file' must be a name of letters, digits, '.', '_' and '-'");
  const auto path = std::filesystem::path(files.folder) / name;
  if (fresh && std::filesystem::exists(std::filesystem::symlink_status(path)))
    throw Error(ErrorCode::already_exists, fmt::format("there is a file '{}'", name));
  return path;
}

Callee printing() {
  return Callee([](const TapInfo& info, std::span<const AnyView> leaves) {
    for (std::size_t i = 0; i < leaves.size(); ++i)
      lines::add_kept("hook",
                      fmt::format("{} = {}", host::leaf_label(info.name, host::path_of(info, i)),
                                  host::text_of(leaves[i], "", {})));
  });
}

/// Says so, and lets the program go on.
Callee telling_non_finite() {
  return Callee(
      [first = listen::first_non_finite()](const TapInfo& info, std::span<const AnyView> leaves) {
        try {
          first(info, leaves);
        } catch (const std::runtime_error& e) {
          lines::add_kept("hook", e.what());
        }
      });
}

/// A record that lets the program go on where it cannot be written. It goes before the word that
/// its file is whole.
class Recorded {
 public:
  explicit Recorded(std::shared_ptr<WrittenFile> file)
      : file_(std::move(file)), record_(listen::record(file_->path)) {}
  Recorded(const Recorded&) = delete;
  ~Recorded() {
    try {
      record_.close();
    } catch (const std::exception& e) {
      failed(e.what());
    }
  }
  void see(const TapInfo& info, std::span<const AnyView> leaves) {
    try {
      record_(info, leaves);
    } catch (const std::exception& e) {
      failed(e.what());
    }
  }

 private:
  void failed(const char* why) noexcept try {
    if (file_->end->fail(why)) log(LogLevel::warning, "{}; the program goes on", why);
  } catch (const std::exception&) {  // no memory to say so
  }

  const std::shared_ptr<WrittenFile> file_;
  const listen::Record record_;
};

struct Wanted {
  Callee fn;
  std::uint64_t series = 0;  // by which it is found among what there is to see
  std::int64_t until = 0;
  std::shared_ptr<WrittenFile> file = {};
};

/// Firings that can't be written let the program go on; a place that can't be written to from the
/// beginning is an Error for who asked.
Wanted wanted(const std::string& kind, const Json& asked, const Switches::Files& files) {
  if (kind == "stats") {
    const auto stats = listen::stats();
    return {Callee(stats), stats.number()};
  }
  if (kind == "histogram") {
    const auto histogram = listen::histogram();
    return {Callee(histogram), histogram.number()};
  }
  if (kind == "print") return {printing()};
  if (kind == "non-finite") return {telling_non_finite()};
  if (kind == "stop at non-finite") return {Callee(listen::first_non_finite())};
  if (kind == "end")
    return {Callee([](const TapInfo& info, std::span<const AnyView>) { info.end_run(); }), 0, 1};
  if (kind == "record") {
    const auto path = place_of(files, asked, true).lexically_normal().string();
    check(path.ends_with(".npy") || path.ends_with(".npz"), "'file' must end in .npy or .npz");
    auto file = written_file(path);
    const host::NewFile probe("record", path);
    const auto record = std::make_shared<Recorded>(file);
    return {Callee([record](const TapInfo& info, std::span<const AnyView> leaves) {
              record->see(info, leaves);
            }),
            0, 0, file};
  }
  check(kind == "checkpoint", "there is no listener '{}'", kind.substr(0, 64));
  const auto folder = place_of(files, asked, false);
  const auto probe = listen::checkpoint(folder, {.keep = 0});
  return {Callee(listen::checkpoint(folder, {.keep = 0, .on_error = listen::OnError::go_on})), 0,
          1};
}

Json options_json(const LiveOptions& o) {
  Json out{{"async", o.mode == TapMode::async}};
  for (const auto& [name, member] : numbers) out[name] = o.*member;
  return out;
}

int status_for(ErrorCode code) {
  switch (code) {
    case ErrorCode::not_found: return 404;
    case ErrorCode::permission_denied: return 403;
    case ErrorCode::invalid_argument: return 400;
    default: return 409;
  }
}

Switches::Answer refused(int status, std::string_view why) {
  return {status, Json{{"error", why}}.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

}  // namespace

Switches::~Switches() {
  for (const auto& [client, held] : held_)
    for (const One& one : held.listeners) turn_off(one);
}

/// Of one that was shown all that it wants, firings may still be in a queue.
void Switches::turn_off(const One& one) {
  if (one.listening && host::is_on(*one.listening)) host::turn_off(*one.listening, false);
}

Switches::One& Switches::find(std::uint64_t number, bool also_off) {
  for (auto& [client, held] : held_)
    for (One& one : held.listeners)
      if (one.number == number && (also_off || !one.off)) return one;
  throw Error(ErrorCode::not_found, fmt::format("nobody has turned on listener {}", number));
}

std::weak_ptr<const WrittenFile> Switches::drop(std::uint64_t number) {
  One& one = find(number);
  turn_off(one);
  let_go(one);
  one.off = true;
  const auto file = one.file;
  if (one.end) return file;
  for (auto& [client, held] : held_)
    std::erase_if(held.listeners, [&](const One& l) { return l.number == number; });
  return file;
}

/// Its function may have a file to finish, which takes a while.
void Switches::let_go(One& one) {
  if (!one.listening) return;
  if (const auto file = one.file.lock()) file->let_go = true;
  try {
    host::run_on_host_thread([gone = std::move(one.listening)]() mutable { gone.reset(); });
  } catch (const std::exception&) {  // no thread: here and now then
    one.listening = nullptr;
  }
}

bool Switches::is_over(const One& one) { return !one.listening || !host::is_on(*one.listening); }

/// Also what it was shown and is not at its function yet, which whoever brings it holds.
bool Switches::is_pending(const One& one) {
  return one.listening && (!is_over(one) || one.listening->function.use_count() > 1);
}

/// Their numbers are known for a while longer, for who turns them off to wait for their files; so
/// are the curves of those without a file, for who has yet to read them.
void Switches::let_go_of_spent(Held& held) {
  std::size_t over = 0;
  for (One& one : held.listeners) {
    if (!is_over(one)) continue;
    ++over;
    if (!one.file.expired()) let_go(one);
  }
  for (; over > most_listeners; --over) {
    const auto oldest = std::ranges::find_if(held.listeners, is_over);
    let_go(*oldest);
    held.listeners.erase(oldest);
  }
}

Switches::Answer Switches::act(const std::string& client, std::string_view text) try {
  const Json asked = Json::parse(text);
  check(asked.is_object(), "a request must be an object");
  Json answer = Json::object();
  if (asked.contains("on")) {
    check_names(asked, with_options({"on", "listener", "file"}));
    check(asked.contains("listener") && asked["listener"].is_string(), "'listener' must be a name");
    const auto hook = host::live_hook(id(asked, "on"));
    if (!hook) return refused(404, "there is no such hook any more");
    std::size_t count = 0;
    for (auto& [name, held] : held_) {
      let_go_of_spent(held);
      count += held.listeners.size() -
               static_cast<std::size_t>(std::ranges::count_if(held.listeners, is_over));
    }
    if (count >= most_listeners) return refused(409, "too many listeners are on");
    const std::string kind = asked["listener"];
    const Wanted w = wanted(kind, asked, files_);
    auto on =
        host::turn_on(*hook->internal(), w.fn, options_asked(asked, {.until = w.until}), kind);
    answer = {{"number", on->number}, {"series", w.series}};
    held_[client].listeners.push_back({on->number, on, w.file, w.file ? w.file->end : nullptr});
  } else if (asked.contains("off")) {
    check_names(asked, {"off"});
    return {200, answer.dump(), drop(id(asked, "off"))};
  } else if (asked.contains("pending")) {
    check_names(asked, {"pending"});
    const One& one = find(id(asked, "pending"), true);
    answer = {{"pending", is_pending(one)}, {"finishes", !one.file.expired()}};
    if (const std::string why = one.end ? one.end->failure() : ""; !why.empty())
      answer["failed"] = why;
    return {200, answer.dump(-1, ' ', false, Json::error_handler_t::replace), {}, false};
  } else if (asked.contains("change")) {
    check_names(asked, with_options({"change"}));
    if (const auto& on = find(id(asked, "change")).listening)
      host::change(*on, options_asked(asked, host::options_of(*on)));
  } else {
    check_names(asked, with_options({"own"}));
    const auto hook = host::live_hook(id(asked, "own"));
    if (!hook) return refused(404, "there is no such hook any more");
    hook->change(options_asked(asked, host::own_settings(*hook).value_or(LiveOptions())));
  }
  return {200, answer.dump()};
} catch (const Json::exception&) {
  return refused(400, "the request is no JSON");
} catch (const TypeError& e) {
  return refused(400, e.what());
} catch (const Error& e) {
  return refused(status_for(e.code()), e.what());
} catch (const std::filesystem::filesystem_error& e) {
  return refused(409, e.what());
}

void Switches::keep_only(const std::vector<std::string>& clients) {
  if (held_.empty()) return;
  const auto now = Clock::now();
  for (auto& [client, held] : held_) {
    if (std::ranges::find(clients, client) != clients.end())
      held.ends = Clock::time_point::max();
    else if (held.ends == Clock::time_point::max())
      held.ends = now + grace;
  }
  for (auto& [client, held] : held_) {
    if (held.ends <= now) std::ranges::for_each(held.listeners, turn_off);
    let_go_of_spent(held);
  }
  std::erase_if(held_, [&](const auto& entry) { return entry.second.ends <= now; });
}

Switches::Clock::time_point Switches::next_end() const {
  auto out = Clock::time_point::max();
  for (const auto& [client, held] : held_) out = std::min(out, held.ends);
  return out;
}

Json live_hooks_json() {
  Json out = Json::array();
  for (const LiveHook& hook : live_hooks()) {
    if (out.size() == most_hooks) break;
    Json leaves = Json::array(), listeners = Json::array();
    for (std::size_t i = 0; i < hook.types().size(); ++i)
      leaves.push_back(
          {i < hook.paths().size() ? hook.paths()[i] : "", to_string(hook.types()[i])});
    for (const host::ListenerNow& l : host::listeners_of(hook)) {
      Json one = options_json(l.options);
      one["number"] = l.number;
      one["what"] = l.what;
      listeners.push_back(std::move(one));
    }
    const auto own = host::own_settings(hook);
    out.push_back({{"number", hook.number()},
                   {"name", hook.name()},
                   {"program", hook.program()},
                   {"place", to_string(hook.place())},
                   {"transforms", postern::to_string(hook.transforms())},
                   {"leaves", std::move(leaves)},
                   {"own", own ? options_json(*own) : Json()},
                   {"listeners", std::move(listeners)}});
  }
  return out;
}

}  // namespace postern::internal::live
