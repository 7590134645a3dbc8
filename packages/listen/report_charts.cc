// Curves, histograms and bars as SVG.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "report.h"
#include "spi.h"
#include "summary.h"

namespace postern::internal::host {

namespace {

constexpr double width = 420, height = 210, left = 70, bottom = 42, top = 10, right = 12;

/// Data coordinates to the picture's; an empty range gets some room. Halves are taken, since a
/// range may be larger than any double.
struct Scale {
  double from, to, at, size;
  Scale(double low, double high, double start, double extent)
      : from(low), to(high), at(start), size(extent) {
    if (!(to > from)) {
      const double room = std::max(std::abs(from), 1.0) * 0.5;
      from -= room;
      to += room;
    }
  }
  double operator()(double x) const { return at + (x / 2 - from / 2) / (to / 2 - from / 2) * size; }
};

/// About five round numbers of the scale: multiples of 1, 2 or 5 times a power of ten.
std::vector<double> ticks(const Scale& scale) {
  const double about = (scale.to / 2 - scale.from / 2) / 5 * 2,
               power = std::pow(10, std::floor(std::log10(about))), digit = about / power;
  double step = power * 10;
  for (const double round : {5, 2, 1})
    if (digit <= round) step = power * round;
  std::vector<double> out;
  for (double k = std::ceil(scale.from / step); k * step <= scale.to && out.size() < 12; ++k)
    out.push_back(k * step + 0.0);
  return out;
}

std::string axes(const Scale& x, const Scale& y, const char* name) {
  std::string out = fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                                width - right, height - 6, name);
  for (const double v : ticks(y))
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text "
        "x=\"{3:.1f}\" y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5:.5g}</text>",
        left, width - right, y(v), left - 6, y(v) + 4, v);
  for (const double v : ticks(x))
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.6g}</text>", x(v),
                       height - 24, v);
  return out;
}

std::string svg(const std::string& inside) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">{}</svg>", width, height, inside);
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : one_line(text)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string html_lines(std::string_view text) {
  std::string out;
  for (std::size_t end; !text.empty(); text.remove_prefix(std::min(end + 1, text.size()))) {
    end = std::min(text.find('\n'), text.size());
    out += html_text(text.substr(0, end)) + '\n';
  }
  return out;
}

std::string curve_svg(const listen::Series& series) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto& p : series.points) {
    if (!std::isfinite(p.summary.mean)) continue;
    low = std::min(low, p.summary.min);
    high = std::max(high, p.summary.max);
  }
  if (low > high) return "<p>no finite value was shown</p>";
  const Scale x(static_cast<double>(series.points.front().firing),
                static_cast<double>(series.points.back().firing), left, width - left - right);
  const Scale y(low, high, height - bottom, -(height - bottom - top));
  std::string line, upper, lower, bad;
  for (const auto& p : series.points) {
    const double at = x(static_cast<double>(p.firing));
    if (p.summary.nan + p.summary.inf > 0)
      bad +=
          fmt::format("<line class=\"bad\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>",
                      at, top, height - bottom);
    if (!std::isfinite(p.summary.mean)) continue;
    line += fmt::format("{:.1f},{:.1f} ", at, y(p.summary.mean));
    upper += fmt::format("{:.1f},{:.1f} ", at, y(p.summary.max));
    lower.insert(0, fmt::format("{:.1f},{:.1f} ", at, y(p.summary.min)));
  }
  return svg(
      axes(x, y, "step") +
      fmt::format(
          "<polygon class=\"band\" points=\"{}{}\"/><polyline class=\"line\" points=\"{}\"/>",
          upper, lower, line) +
      bad);
}

std::string histogram_svg(const listen::Histogram::Counts& counts) {
  if (counts.bins.empty()) return "<p>no finite value was shown</p>";
  const double most = static_cast<double>(*std::ranges::max_element(counts.bins));
  // Bins at the ends that hold nothing are left out.
  const auto filled = [](std::uint64_t n) { return n > 0; };
  const auto first =
      static_cast<std::size_t>(std::ranges::find_if(counts.bins, filled) - counts.bins.begin());
  const auto end =
      counts.bins.size() -
      static_cast<std::size_t>(std::find_if(counts.bins.rbegin(), counts.bins.rend(), filled) -
                               counts.bins.rbegin());
  auto edge = [&](std::size_t i) {
    return bin_edge(counts.from, counts.to, i, counts.bins.size());
  };
  const Scale x(edge(first), edge(end), left, width - left - right),
      y(0, std::max(most, 1.0), height - bottom, -(height - bottom - top));
  std::string bars;
  for (std::size_t i = first; i < end; ++i) {
    if (counts.bins[i] == 0) continue;
    const double at = y(static_cast<double>(counts.bins[i]));
    bars += fmt::format(
        "<rect class=\"bin\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\"><title>{:.4g} to {:.4g}: {}</title></rect>",
        x(edge(i)), at, std::max(x(edge(i + 1)) - x(edge(i)) - 0.5, 0.5), height - bottom - at,
        edge(i), edge(i + 1), counts.bins[i]);
  }
  return svg(axes(x, y, "value") + bars);
}

std::string bar_svg(double part) {
  return fmt::format(
      "<svg class=\"bar\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\"><rect class=\"bin\" "
      "width=\"{:.2f}\" height=\"10\"/></svg>",
      std::clamp(part, 0.0, 1.0) * 100);
}

}  // namespace postern::internal::host
