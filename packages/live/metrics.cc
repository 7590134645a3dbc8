// What there is to see as OpenMetrics, for what collects numbers from many processes.
#include <fmt/format.h>
#include <postern/tap.h>

#include <cmath>

#include "listen/shown.h"
#include "news.h"
#include "spi.h"

namespace postern::internal::live {

namespace {

/// A label's value: valid UTF-8, with what would end it escaped.
std::string label(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

std::string number(double x) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", x);
}

/// Samples of one family stand together.
class Family {
 public:
  Family(std::string name, const char* type, const char* help)
      : name_(std::move(name)),
        suffix_(std::string_view(type) == "counter" ? "_total" : ""),
        text_(fmt::format("# TYPE {0} {1}\n# HELP {0} {2}\n", name_, type, help)) {}
  void add(const std::string& labels, double value) {
    text_ += fmt::format("{}{}{{{}}} {}\n", name_, suffix_, labels, number(value));
    empty_ = false;
  }
  std::string text() const { return empty_ ? "" : text_; }

 private:
  std::string name_, suffix_, text_;
  bool empty_ = true;
};

std::string series_metrics() {
  Family firings("postern_firings", "counter", "Times that a tap or hook was shown.");
  Family mean("postern_mean", "gauge", "Mean of the finite elements at the last firing.");
  Family min("postern_min", "gauge", "Least finite element at the last firing.");
  Family max("postern_max", "gauge", "Greatest finite element at the last firing.");
  Family nan("postern_nan_elements", "counter", "Elements that were nan.");
  Family inf("postern_inf_elements", "counter", "Elements that were infinite.");
  host::each_series([&](host::EntryOf of, const listen::Series& s) {
    const std::string labels = fmt::format(
        "name=\"{}\",path=\"{}\",device=\"{}\",transforms=\"{}\",place=\"{}\",listener=\"{}\"",
        label(s.name), label(s.path), s.device, label(s.transforms), label(to_string(s.place)),
        of.listener);
    firings.add(labels, static_cast<double>(s.firings));
    mean.add(labels, s.last.mean);
    min.add(labels, s.last.min);
    max.add(labels, s.last.max);
    nan.add(labels, static_cast<double>(s.all.nan));
    inf.add(labels, static_cast<double>(s.all.inf));
  });
  return firings.text() + mean.text() + min.text() + max.text() + nan.text() + inf.text();
}

std::string progress_metrics() {
  Family done("postern_steps_done", "gauge", "Steps that a progress bar has counted.");
  Family total("postern_steps", "gauge", "Steps that there are.");
  host::each_progress([&](std::uint64_t listener, const host::ProgressNow& p) {
    const std::string labels =
        fmt::format("label=\"{}\",listener=\"{}\"", label(p.label), listener);
    done.add(labels, static_cast<double>(p.done));
    total.add(labels, static_cast<double>(p.total));
  });
  return done.text() + total.text();
}

std::string queue_metrics(const std::vector<DeviceInfo>& devices) {
  Family bytes("postern_tap_queue_bytes", "gauge", "Held for firings that are not delivered.");
  Family pending("postern_tap_queue_pending", "gauge", "Firings that are not delivered.");
  Family delivered("postern_tap_queue_delivered", "counter", "Firings that were delivered.");
  Family dropped("postern_tap_queue_dropped", "counter", "Firings that keep_last left out.");
  for (const DeviceInfo& d : devices) {
    const TapQueueStats q = tap_queue_stats(d.ordinal);
    const std::string labels = fmt::format("device=\"{}\",kind=\"{}\"", d.ordinal, d.kind);
    bytes.add(labels, static_cast<double>(q.bytes));
    pending.add(labels, static_cast<double>(q.pending));
    delivered.add(labels, static_cast<double>(q.delivered));
    dropped.add(labels, static_cast<double>(q.dropped));
  }
  return bytes.text() + pending.text() + delivered.text() + dropped.text();
}

}  // namespace

std::string News::metrics() const {
  return series_metrics() + progress_metrics() + queue_metrics(devices_in_use()) + "# EOF\n";
}

}  // namespace postern::internal::live
