// report: one page of HTML with what listeners saw and where the time went.
#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <functional>
#include <map>
#include <string_view>

#include "merged.h"
#include "png.h"
#include "shown.h"
#include "spi.h"
#include "summary.h"

namespace postern {
using namespace internal;

namespace {

constexpr const char* style = R"(
:root {
  color-scheme: light dark; --ink: #1d2733; --soft: #6b7a8c; --line: #2864b4; --band: #2864b430;
  --paper: #fff; --rule: #dde3ea; --bad: #c8332b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6ebf1; --soft: #94a3b5; --line: #6ea8f5; --band: #6ea8f540; --paper: #14181d;
    --rule: #2c343d; --bad: #ff6b62;
  }
}
body {
  font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1180px; margin: 2em auto; padding: 0 1.5em;
}
h1 { font-size: 1.6em; margin-bottom: 0; }
h1, h3, p, pre { overflow-wrap: anywhere; } td, th { white-space: nowrap; }
h2 { font-size: 1.2em; margin-top: 2em; }
h3 { font-size: 1em; margin: 1.2em 0 .2em; }
figure h3 { margin: 0; }
.grid2 {
  display: grid; gap: 1.2em;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 340px), 1fr));
}
figure { margin: 0; border: 1px solid var(--rule); border-radius: 6px; padding: .7em .9em; }
.soft, figure p { color: var(--soft); font-size: .87em; margin: 0; }
svg { width: 100%; display: block; } svg text { font-size: 14px; fill: var(--soft); }
pre { white-space: pre-wrap; font-size: .87em; } img { image-rendering: pixelated; min-width: 6em; }
figure img { max-width: 100%; } .wide { overflow-x: auto; }
.grid { stroke: var(--rule); }
.line { fill: none; stroke: var(--line); stroke-width: 1.6; }
.band { fill: var(--band); }
.bin { fill: var(--line); }
.bad { stroke: var(--bad); opacity: .6; } svg.bar { height: .8em; width: 12em; }
table { margin: .5em 0; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2em .8em; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.bad, span.bad { color: var(--bad); opacity: 1; }
@media (max-width: 600px) {
  body { margin: 1em auto; padding: 0 .8em; } th, td { padding: .2em .5em; }
}
)";

std::string cell(double x) { return fmt::format("<td>{:.5g}</td>", x); }
std::string count_cell(std::int64_t n) {
  return fmt::format("<td{}>{}</td>", n > 0 ? " class=\"bad\"" : "", n);
}

std::string heading(const std::string& name, const std::string& path, const Place& place) {
  return fmt::format("<h3>{}</h3><p>{}", host::html_text(host::leaf_label(name, path)),
                     host::html_text(to_string(place)));
}

std::string curves(const std::vector<listen::Series>& all) {
  if (all.empty()) return "";
  std::string out = "<h2>Values</h2><div class=\"grid2\">\n";
  for (const listen::Series& s : all)
    out += fmt::format("<figure>{}{}, {} firings, mean and range</p>{}</figure>\n",
                       heading(s.name, s.path, s.place),
                       s.transforms.empty() ? "" : ", " + host::html_text(s.transforms), s.firings,
                       host::curve_svg(s));
  out +=
      "</div>\n<h2>Table</h2><div class=\"wide\"><table><tr><th>tap</th><th>firings</th>"
      "<th>elements</th><th>min</th><th>mean</th><th>max</th><th>rms</th><th>nan</th><th>inf</th>"
      "<th>last mean</th><th>last norm</th></tr>\n";
  for (const listen::Series& s : all)
    out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td>{}{}{}{}{}{}{}{}</tr>\n",
                       host::html_text(host::leaf_label(s.name, s.path)), s.firings, s.all.count,
                       cell(s.all.min), cell(s.all.mean), cell(s.all.max), cell(s.all.rms),
                       count_cell(s.all.nan), count_cell(s.all.inf), cell(s.last.mean),
                       cell(s.last.norm()));
  return out + "</table></div>\n";
}

std::string histograms(const std::vector<host::Histogrammed>& all) {
  if (all.empty()) return "";
  std::string out = "<h2>Histograms</h2><div class=\"grid2\">\n";
  for (const auto& h : all)
    out += fmt::format(
        "<figure>{}{}</p>{}</figure>\n", heading(h.name, h.path, h.place),
        h.nan + h.inf ? fmt::format(", <span class=\"bad\">{} nan, {} inf</span>", h.nan, h.inf)
                      : "",
        host::histogram_svg(h));
  return out + "</div>\n";
}

std::string images() {
  std::string out;
  host::each_image([&](host::EntryOf, const host::Pictured& p) {
    out += fmt::format("<figure>{}, step {}</p>", heading(p.name, p.path, p.place), p.firings - 1);
    for (const std::string& url : host::image_urls(*p.last))
      out += fmt::format("<img src=\"{}\" alt=\"\"> ", url);
    out += "</figure>\n";
  });
  if (out.empty()) return out;
  return "<h2>Images</h2><div class=\"grid2\">\n" + out + "</div>\n";
}

std::string shown() {
  std::string out;
  for (const host::ShownText& t : host::shown_texts())
    out += fmt::format("<h3>{}</h3><pre>{}</pre>\n", host::html_text(t.name),
                       host::html_lines(t.text));
  if (out.empty()) return out;
  return "<h2>Texts</h2>\n" + out;
}

/// Which process this was, and when.
std::string origin() {
  const host::ThisProcess p = host::this_process();
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  ::gmtime_r(&now, &date);
  char text[32] = "";
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &date);
  return fmt::format("<p class=\"soft\">{}, {} on {}, Postern {}{}</p>\n", text,
                     host::html_text(p.program), host::html_text(p.host), p.version,
                     p.arguments.empty() ? "" : "<br>Arguments: " + host::html_text(p.arguments));
}

/// Where the time of a process went, in the order of `part_names`.
constexpr std::array part_names{"compiling",
                                "device",
                                "callbacks",
                                "collectives over processes",
                                "deliveries of asynchronous taps",
                                "waiting"};
using Parts = std::array<double, part_names.size()>;
Parts parts_of(const std::vector<host::timeline::Total>& totals) {
  using host::timeline::Kind;
  std::map<Kind, double> sum;
  for (const auto& t : totals) sum[t.kind] += t.seconds;
  const double callbacks = sum[Kind::call] + sum[Kind::tap];
  const double device = std::max(sum[Kind::execute] - callbacks - sum[Kind::meet], 0.0);
  return {sum[Kind::compile],  device,         callbacks, sum[Kind::meet],
          sum[Kind::delivery], sum[Kind::wait]};
}

/// The totals of all processes as one list, the longest first. Operations outside of programs, of
/// which each is one of its own, are put together.
std::vector<host::timeline::Total> added(const std::vector<host::Seen::Times>& times) {
  std::map<std::pair<host::timeline::Kind, std::string>, host::timeline::Total> by_name;
  for (const auto& [totals, seconds] : times)
    for (const auto& t : totals) {
      const bool at_once = t.name.starts_with(host::timeline::operation_prefix);
      const std::string name = at_once ? "operations at once" : t.name;
      auto& all =
          by_name.try_emplace({t.kind, name}, host::timeline::Total{t.kind, name}).first->second;
      all.count += t.count;
      all.seconds += t.seconds;
      all.longest = std::max(all.longest, t.longest);
    }
  std::vector<host::timeline::Total> out;
  for (auto& [name, total] : by_name) out.push_back(std::move(total));
  std::ranges::stable_sort(out, std::greater{}, &host::timeline::Total::seconds);
  return out;
}

std::string parts_table(const std::vector<host::Seen::Times>& times) {
  std::string out = "<div class=\"wide\"><table>";
  if (times.size() > 1) {
    out += "<tr><th>process</th>";
    for (std::size_t p = 0; p < times.size(); ++p) out += fmt::format("<th colspan=2>{}</th>", p);
    out += "</tr>\n";
  }
  std::vector<Parts> parts;
  for (const auto& [totals, seconds] : times) parts.push_back(parts_of(totals));
  for (std::size_t i = 0; i < part_names.size(); ++i) {
    double most = 0;
    std::string row = fmt::format("<tr><td>{}</td>", part_names[i]);
    for (std::size_t p = 0; p < times.size(); ++p) {
      const double took = parts[p][i], seconds = times[p].seconds;
      most = std::max(most, took);
      row += fmt::format("<td>{:.4g} s</td><td>{}</td>", took,
                         host::bar_svg(seconds > 0 ? took / seconds : 0));
    }
    const bool rare = part_names[i] == std::string_view("collectives over processes");
    if (!rare || most > 0) out += row + "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string time_spent(const std::vector<host::Seen::Times>& times) {
  const auto totals = added(times);
  if (totals.empty())
    return "<h2>Time</h2><p class=\"soft\">Nothing was recorded; record_timeline(true) or "
           "POSTERN_TIMELINE starts it.</p>\n";
  std::string out = fmt::format(
      "<h2>Time</h2><p class=\"soft\">{:.3g} s from the first event to the last. Device is "
      "executions without the callbacks in them; what "
      "happens at the same time counts on each line.</p>\n{}",
      std::ranges::max(times, {}, &host::Seen::Times::seconds).seconds, parts_table(times));
  out +=
      "<h3>By name</h3><div "
      "class=\"wide\"><table><tr><th>name</th><th>kind</th><th>count</th><th>total "
      "ms</th><th>mean us</th><th>longest "
      "ms</th></tr>\n";
  constexpr std::size_t most = 40;
  for (std::size_t i = 0; i < std::min(most, totals.size()); ++i) {
    const auto& t = totals[i];
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.3f}</td><td>{:.1f}</td><td>{:.3f}</td></tr>\n",
        host::html_text(t.name), to_string(t.kind), t.count, t.seconds * 1e3,
        t.seconds / static_cast<double>(t.count) * 1e6, t.longest * 1e3);
  }
  return out + "</table></div>\n";
}

}  // namespace

void report(const std::string& file, const ReportOptions& options) {
  host::Seen seen{host::current_series(),
                  host::current_histograms(),
                  {{host::timeline::totals(), host::timeline::seconds_recorded()}}};
  if (options.of_all_processes) {
    seen = host::of_all("report", seen, options.limit);
    if (clusters::rank_now() != 0) return;
  }
  const std::string title = host::html_text(options.title);
  const std::string whose =
      seen.times.size() > 1 ? fmt::format(", {} processes", seen.times.size()) : "";
  const std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">"
      "<title>{}</title><style>{}</style></head><body>\n<h1>{}</h1>\n{}<p class=\"soft\">{} "
      "series, {} histograms{}</p>\n{}{}{}{}{}</body></html>\n",
      title, style, title, origin(), seen.series.size(), seen.histograms.size(), whose, shown(),
      curves(seen.series), histograms(seen.histograms), images(), time_spent(seen.times));
  host::write_text_file("report", file, page);
}

}  // namespace postern
