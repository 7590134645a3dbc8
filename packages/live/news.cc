// Reading what the process keeps, as JSON.
#include "news.h"

#include <fmt/format.h>
#include <postern/devices.h>
#include <postern/tap.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "listen/shown.h"
#include "process_now.h"
#include "spi.h"
#include "switches.h"

namespace postern::internal::live {

namespace {

using Json = nlohmann::json;

/// A client that comes late gets at most so many points of all series together, and of each at
/// least so many.
constexpr std::size_t most_points = 1 << 16, least_points = 64, most_entries = 1000;
/// And of all histograms together so many of what they had counted by when.
constexpr std::size_t most_columns = 4096;
constexpr std::size_t most_images = 32;

std::string id_of(const NewsMark::Entry& e) { return fmt::format("{}.{}", e.first, e.second); }

Json summary_json(const listen::Summary& s) {
  return {{"count", s.count}, {"nan", s.nan}, {"inf", s.inf}, {"min", s.min},
          {"mean", s.mean},   {"max", s.max}, {"rms", s.rms}, {"norm", s.norm()}};
}

/// A copy of what is new in one series: JSON is made when the listener may go on.
struct SeriesNews {
  NewsMark::Entry entry;
  listen::Series about;  // with the points that are new
  bool fresh;
};

std::vector<SeriesNews> series_news(NewsMark& mark) {
  std::vector<SeriesNews> out;
  host::each_series([&](host::EntryOf of, const listen::Series& s) {
    const NewsMark::Entry entry{of.listener, of.entry};
    const auto known = mark.series.find(entry);
    const bool fresh = known == mark.series.end();
    const std::uint64_t seen = fresh ? 0 : known->second;
    if ((!fresh && s.firings == seen) || out.size() == most_entries) return;
    SeriesNews news{entry, {}, fresh};
    if (fresh) {
      news.about.name = s.name;
      news.about.path = s.path;
      news.about.place = s.place;
      news.about.device = s.device;
      news.about.transforms = s.transforms;
    }
    news.about.firings = s.firings;
    if (fresh || known->second <= s.runs.back().firing) news.about.runs = s.runs;
    news.about.last = s.last;
    news.about.all = s.all;
    const auto first = std::ranges::lower_bound(s.points, seen, {}, &listen::Series::Point::firing);
    news.about.points.assign(first, s.points.end());
    mark.series[entry] = s.firings;
    out.push_back(std::move(news));
  });
  return out;
}

Json series_json(NewsMark& mark) {
  const std::vector<SeriesNews> news = series_news(mark);
  const std::size_t each =
      std::max(least_points, most_points / std::max<std::size_t>(news.size(), 1));
  Json out = Json::array();
  for (const SeriesNews& n : news) {
    const listen::Series& s = n.about;
    Json one{{"id", id_of(n.entry)},
             {"firings", s.firings},
             {"last", summary_json(s.last)},
             {"all", summary_json(s.all)}};
    if (n.fresh)
      one.update({{"name", s.name},
                  {"path", s.path},
                  {"place", to_string(s.place)},
                  {"device", s.device},
                  {"transforms", s.transforms}});
    if (!s.runs.empty()) {
      one["runs"] = Json::array();
      for (const auto& [firing, run] : s.runs) one["runs"].push_back({firing, run});
    }
    Json points = Json::array();
    const std::size_t stride = (s.points.size() + each - 1) / std::max<std::size_t>(each, 1);
    for (std::size_t i = 0; i < s.points.size(); i += std::max<std::size_t>(stride, 1)) {
      const auto& [firing, summary, time] = s.points[i];
      points.push_back(
          {firing, summary.mean, summary.min, summary.max, summary.rms, summary.norm(), time});
    }
    one["points"] = std::move(points);
    out.push_back(std::move(one));
  }
  return out;
}

/// What a histogram had counted by when, of firings after `seen`; the newest included.
Json history_json(const host::Histogrammed& c, std::uint64_t seen, std::size_t most) {
  Json out = Json::array();
  const std::size_t stride = c.history.size() / most + 1;
  for (std::size_t i = (c.history.size() + stride - 1) % stride; i < c.history.size(); i += stride)
    if (const auto& then = c.history[i]; then.firings > seen)
      out.push_back({then.firings, then.from, then.to, then.bins, then.time});
  return out;
}

Json histograms_json(NewsMark& mark) {
  Json out = Json::array();
  std::size_t count = 0;
  host::each_histogram([&](host::EntryOf, const host::Histogrammed&) { ++count; });
  const std::size_t each = std::max<std::size_t>(most_columns / std::max<std::size_t>(count, 1), 4);
  host::each_histogram([&](host::EntryOf of, const host::Histogrammed& c) {
    const NewsMark::Entry entry{of.listener, of.entry};
    const auto known = mark.histograms.find(entry);
    const std::uint64_t seen = known == mark.histograms.end() ? 0 : known->second;
    if (seen == c.firings || out.size() == most_entries) return;
    mark.histograms[entry] = c.firings;
    out.push_back({{"id", id_of(entry)},
                   {"name", c.name},
                   {"path", c.path},
                   {"place", to_string(c.place)},
                   {"device", c.device},
                   {"transforms", c.transforms},
                   {"firings", c.firings},
                   {"history", history_json(c, seen, each)},
                   {"from", c.from},
                   {"to", c.to},
                   {"bins", c.bins},
                   {"nan", c.nan},
                   {"inf", c.inf}});
  });
  return out;
}

/// At most once a second.
Json images_json(NewsMark& mark) {
  const auto now = Clock::now();
  if (now - mark.image < std::chrono::seconds(1)) return {};
  struct Fresh {
    std::uint64_t seen;
    NewsMark::Entry entry;
    host::Pictured p;
  };
  std::vector<Fresh> fresh;  // made when nobody waits
  host::each_image([&](host::EntryOf of, const host::Pictured& p) {
    const NewsMark::Entry entry{of.listener, of.entry};
    if (const std::uint64_t seen = mark.images[entry]; seen != p.firings)
      fresh.push_back({seen, entry, p});
  });
  // Those that were not sent for long, or never, come first.
  std::ranges::stable_sort(fresh, {}, &Fresh::seen);
  if (fresh.size() > most_images) fresh.erase(fresh.begin() + most_images, fresh.end());
  if (!fresh.empty()) mark.image = now;
  Json out = Json::array();
  for (const auto& [seen, entry, p] : fresh) {
    mark.images[entry] = p.firings;
    out.push_back({{"id", id_of(entry)},
                   {"name", p.name},
                   {"path", p.path},
                   {"place", to_string(p.place)},
                   {"firings", p.firings},
                   {"urls", host::image_urls(*p.last)}});
  }
  return out;
}

/// All of them, when one has changed.
Json texts_json(NewsMark& mark) {
  std::vector<std::uint64_t> changes;
  Json out = Json::array();
  for (const host::ShownText& t : host::shown_texts()) {
    changes.push_back(t.change);
    out.push_back({{"name", t.name}, {"text", t.text}});
  }
  return std::exchange(mark.texts, changes) == changes ? Json() : out;
}

Json progress_json(NewsMark& mark) {
  Json out = Json::array();
  host::each_progress([&](std::uint64_t listener, const host::ProgressNow& p) {
    auto& known = mark.progress[listener];
    const std::pair now{p.done, p.numbers};
    if (p.done == 0 || known == now) return;
    known = now;
    out.push_back({{"id", listener},
                   {"label", p.label},
                   {"numbers", p.numbers},
                   {"done", p.done},
                   {"total", p.total},
                   {"seconds", p.seconds},
                   {"left", p.left}});
  });
  return out;
}

Json lines_json(NewsMark& mark) {
  Json out = Json::array();
  for (const lines::Line& line : lines::after(mark.line)) {
    out.push_back({{"number", line.number}, {"from", line.from}, {"text", line.text}});
    mark.line = line.number;
  }
  return out;
}

Json events_json(NewsMark& mark, Clock::time_point begin) {
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  Json out = Json::array();
  for (const auto& e : host::timeline::recent(mark.event)) {
    out.push_back({to_string(e.kind), e.name, seconds(e.start - begin), seconds(e.end - e.start),
                   e.thread, e.device});
    mark.event = std::max(mark.event, e.end);
  }
  return out;
}

Json program_json(const KnownProgram& program) {
  Json sites = Json::array();
  for (const KnownProgram::Site& s : program.sites)
    if (sites.size() < most_entries)
      sites.push_back({{"kind", s.kind}, {"name", s.name}, {"place", to_string(s.place)}});
  return {{"number", program.number},
          {"name", program.name},
          {"operations", program.operations},
          {"sites", std::move(sites)}};
}

Json programs_json(NewsMark& mark) {
  Json out = Json::array();
  for (const KnownProgram& program : known_programs(mark.program)) {
    mark.program = program.number;
    out.push_back(program_json(program));
  }
  return out;
}

Json gone_json(NewsMark& mark) {
  std::vector<std::uint64_t> gone = gone_programs();
  return std::exchange(mark.gone, gone) == gone ? Json::array() : Json(gone);
}

/// Told as long as there is something, and once that there is nothing any more.
Json compiling_json(NewsMark& mark) {
  Json out = Json::array();
  host::timeline::each_compiling([&](const host::timeline::Compiling& c) {
    const std::chrono::duration<double> since = Clock::now() - c.start;
    out.push_back({{"name", c.name}, {"seconds", since.count()}});
  });
  return std::exchange(mark.compiling, !out.empty()) || !out.empty() ? out : Json();
}

Json devices_json(NewsMark& mark) {
  Json out = Json::array();
  std::vector<std::uint64_t> state;
  for (const DeviceInfo& d : devices_in_use()) {
    const TapQueueStats q = tap_queue_stats(d.ordinal);
    state.insert(state.end(), {q.delivered, q.dropped, q.pending, q.bytes});
    out.push_back({{"ordinal", d.ordinal},
                   {"kind", d.kind},
                   {"delivered", q.delivered},
                   {"dropped", q.dropped},
                   {"pending", q.pending},
                   {"bytes", q.bytes},
                   {"peak", q.peak_bytes},
                   {"limit", q.limit}});
  }
  if (state == mark.queues) return Json::array();
  mark.queues = std::move(state);
  return out;
}

/// At most once a second.
Json process_json(NewsMark& mark) {
  const auto now = Clock::now();
  if (now - mark.process < std::chrono::seconds(1)) return {};
  mark.process = now;
  const ProcessNow p = process_now();
  return {{"pid", p.pid},
          {"host", p.host},
          {"program", p.program},
          {"arguments", p.arguments},
          {"version", p.version},
          {"seconds", p.seconds},
          {"memory", p.memory},
          {"threads", p.threads},
          {"rank", clusters::rank_now()},
          {"ranks", clusters::size_now()}};
}

}  // namespace

std::vector<DeviceInfo> devices_in_use() {
  static Mutex guard;
  static auto& found = *new std::vector<DeviceInfo>;  // read until the process has ended
  std::scoped_lock lock(guard);
  if (found.empty() && !known_programs().empty()) found = devices();
  return found;
}

std::string News::since(NewsMark& mark) const {
  Json out;
  const auto add = [&](const char* name, Json part) {
    if (!part.empty()) out[name] = std::move(part);
  };
  // First: a listener that this list lacks has shown all that follows.
  const std::pair hooks{host::live_changes(), live_hooks().size()};
  if (std::exchange(mark.hooks, hooks) != hooks) out["hooks"] = live_hooks_json();
  add("series", series_json(mark));
  add("histograms", histograms_json(mark));
  add("progress", progress_json(mark));
  add("lines", lines_json(mark));
  add("events", events_json(mark, begin_));
  add("programs", programs_json(mark));
  add("gone", gone_json(mark));
  add("images", images_json(mark));
  if (Json now = texts_json(mark); !now.is_null()) out["texts"] = std::move(now);
  if (Json now = compiling_json(mark); !now.is_null()) out["compiling"] = std::move(now);
  add("devices", devices_json(mark));
  add("process", process_json(mark));
  if (out.empty()) return "";
  out["seconds"] = std::chrono::duration<double>(Clock::now() - begin_).count();
  // Texts are users': what is no UTF-8 is replaced.
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace postern::internal::live
