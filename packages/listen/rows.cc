// Tables and JSON Lines: one line for each firing.
#include <fmt/format.h>
#include <postern/metrics.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "formats/shown.h"
#include "metric.h"
#include "spi.h"
#include "summary.h"

namespace postern::listen {
using namespace internal;

namespace fs = std::filesystem;

namespace {

std::string element_text(const AnyView& view, std::int64_t i) {
  const std::byte* const at = view.data() + static_cast<std::size_t>(i) * byte_width(view.dtype());
  return host::text_of(AnyView(view.dtype(), at, nullptr, 0, 1), "", {});
}

// --- csv

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out.append(c == '"' ? 2 : 1, c);
  return out + "\"";
}

std::string csv_header(const TapInfo& info, std::span<const AnyView> leaves, std::size_t first) {
  std::string out = "step,time,device";
  for (std::size_t i = first; i < leaves.size(); ++i) {
    const std::string name = host::metric_name(info, i);
    if (leaves[i].rank() == 0)
      out += "," + csv_field(name);
    else
      for (const char* what : {".min", ".mean", ".max"}) out += "," + csv_field(name + what);
  }
  return out;
}

std::string csv_line(const TapInfo& info, std::span<const AnyView> leaves,
                     const host::MetricStep& step, double time) {
  std::string out = fmt::format("{},{:.6f},{}", step.step, time, info.device);
  for (std::size_t i = step.first; i < leaves.size(); ++i) {
    const AnyView& leaf = leaves[i];
    if (leaf.rank() == 0) {
      out += "," + element_text(leaf, 0);
      continue;
    }
    const Summary s = host::summarize_live(leaf, host::mask_of(info, i));
    out += fmt::format(",{},{},{}", s.min, s.mean, s.max);
  }
  return out + "\n";
}

// --- JSON Lines

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// JSON has no numbers that are not finite.
std::string json_real(double x, std::string text) {
  if (std::isnan(x)) return "\"NaN\"";
  if (std::isinf(x)) return x < 0 ? "\"-Infinity\"" : "\"Infinity\"";
  return text;
}

std::string json_element(const AnyView& view, std::int64_t i) {
  if (!is_complex(view.dtype()))
    return json_real(host::real_at(view.dtype(), view.data(), i), element_text(view, i));
  const auto [re, im] = host::complex_at(view.dtype(), view.data(), i);
  return fmt::format("[{},{}]", json_real(re, fmt::format("{}", re)),
                     json_real(im, fmt::format("{}", im)));
}

std::vector<bool> live_elements(const AnyView& view, std::span<const bool> mask) {
  std::vector<bool> out(static_cast<std::size_t>(view.size()));
  host::each_live(view, mask, [&](const AnyView& part, std::int64_t first) {
    std::fill_n(out.begin() + first, part.size(), true);
  });
  return out;
}

/// The elements from `at` on as nested arrays, of the axes from `axis` on.
std::string json_array(const AnyView& view, const std::vector<bool>& alive, std::size_t axis,
                       std::int64_t& at) {
  if (axis == view.dims().size()) {
    const std::int64_t i = at++;
    return alive[static_cast<std::size_t>(i)] ? json_element(view, i) : "null";
  }
  std::string out = "[";
  for (std::int64_t i = 0; i < view.dims()[axis]; ++i)
    out += (i > 0 ? "," : "") + json_array(view, alive, axis + 1, at);
  return out + "]";
}

std::string json_summary(const Summary& s) {
  const auto real = [](double x) { return json_real(x, fmt::format("{}", x)); };
  return fmt::format(R"({{"count":{},"nan":{},"inf":{},"min":{},"mean":{},"max":{}}})", s.count,
                     s.nan, s.inf, real(s.min), real(s.mean), real(s.max));
}

std::string json_line(const TapInfo& info, std::span<const AnyView> leaves,
                      const host::MetricStep& step, double time, std::int64_t max_elements) {
  std::string values;
  for (std::size_t i = step.first; i < leaves.size(); ++i) {
    const std::span<const bool> mask = host::mask_of(info, i);
    std::int64_t at = 0;
    values += (values.empty() ? "" : ",") + json_text(host::metric_name(info, i)) + ":" +
              (leaves[i].size() > max_elements
                   ? json_summary(host::summarize_live(leaves[i], mask))
                   : json_array(leaves[i], live_elements(leaves[i], mask), 0, at));
  }
  return fmt::format(R"({{"step":{},"time":{:.6f},"tap":{},"device":{},"values":{{{}}}}})"
                     "\n",
                     step.step, time, json_text(std::string(info.name)), info.device, values);
}

}  // namespace

struct RowsState {
  RowsState(Rows::Format f, fs::path p, const RowOptions& o)
      : format(f), path(std::move(p)), options(o), failures(o.on_error) {}

  const Rows::Format format;
  const fs::path path;
  const RowOptions options;
  Mutex guard;  // of what follows
  std::unique_ptr<formats::AppendFile> file;
  std::string header;  // of a table
  host::MetricSteps steps;
  host::MetricClock clock;
  host::WriteFailures failures;

  const char* who() const { return format == Rows::Format::csv ? "csv" : "jsonl"; }

  void open() {
    if (file && !file->is_gone()) return;
    if (std::exchange(file, nullptr))
      log(LogLevel::warning, "{}: '{}' was removed, and is begun anew", who(),
          one_line(path.string()));
    auto made =
        std::make_unique<formats::AppendFile>(who(), path, formats::AppendFile::Open::stream);
    if (const std::size_t half = made->cut_half_line(); half > 0)
      log(LogLevel::warning, "{}: '{}' ended in the middle of a line, whose {} bytes are removed",
          who(), one_line(path.string()), half);
    header = made->first_line();
    file = std::move(made);
  }

  void see(const TapInfo& info, std::span<const AnyView> leaves, const host::MetricStep& step) {
    open();
    if (format == Rows::Format::jsonl)
      return file->append(json_line(info, leaves, step, clock.now(), options.max_elements));
    const std::string columns = csv_header(info, leaves, step.first);
    check(header.empty() || header == columns,
          "csv: '{}' has the columns {}, and tap '{}' shows {}; give each a file of its own",
          one_line(path.string()), one_line(header), one_line(info.name), one_line(columns));
    const std::string line = csv_line(info, leaves, step, clock.now());
    file->append(header.empty() ? columns + "\n" + line : line);
    header = columns;
  }
};

Rows::Rows(Format format, const fs::path& file, const RowOptions& options, Place place)
    : state_(std::make_shared<RowsState>(format, file, options)) {
  PlaceScope at(place);
  check(!file.empty(), "{}: a file is needed, got none", state_->who());
  check(options.max_elements >= 0, "{}: max_elements must not be negative, got {}", state_->who(),
        options.max_elements);
  state_->failures.run(state_->who(), [&] { state_->open(); });
}

void Rows::operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
  if (info.recomputed) return;
  std::scoped_lock lock(state_->guard);
  const host::MetricStep step = state_->steps.next(info, leaves);
  state_->failures.run(state_->who(), [&] { state_->see(info, leaves, step); });
}

}  // namespace postern::listen
