// TensorBoard's event files: which summary a leaf becomes, and the file of a folder.
#include <fmt/format.h>
#include <postern/metrics.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "event_file.h"
#include "formats/shown.h"
#include "metric.h"
#include "png.h"
#include "spi.h"
#include "summary.h"
#include "this_process.h"

namespace postern::listen {
using namespace internal;

namespace fs = std::filesystem;

namespace {

constexpr std::string_view file_prefix = "events.out.tfevents.";

std::string image_value(const std::string& tag, const AnyView& view) {
  const host::Images images = host::images_of("tensorboard", tag, view);
  return host::image_summary(tag, images.width, images.height, images.files());
}

std::string histogram_value(const std::string& tag, const AnyView& view, std::span<const bool> mask,
                            int bins) {
  const Summary s = host::summarize_live(view, mask);
  std::vector<std::uint64_t> counts(static_cast<std::size_t>(bins));
  if (s.count == s.nan + s.inf) return host::histogram_summary(tag, 0, 0, counts);
  const double room = s.max > s.min ? 0 : 0.5;  // around a single value
  host::count_bins(view, mask, s.min - room, s.max + room, counts);
  return host::histogram_summary(tag, s.min - room, s.max + room, counts);
}

std::string value_of(const TensorBoardOptions& options, const std::string& tag, const AnyView& view,
                     std::span<const bool> mask) {
  if (view.rank() == 0)
    return host::scalar_summary(tag, static_cast<float>(host::magnitude(view, 0)));
  if (options.arrays == TensorBoardOptions::Arrays::images) return image_value(tag, view);
  return histogram_value(tag, view, mask, options.bins);
}

host::Hyperparameter hyperparameter(const std::string& name, const Attribute& value) {
  using Kind = host::Hyperparameter::Kind;
  if (const bool* b = std::get_if<bool>(&value)) return {name, Kind::boolean, *b ? 1.0 : 0.0, {}};
  if (const auto* i = std::get_if<std::int64_t>(&value))
    return {name, Kind::number, static_cast<double>(*i), {}};
  if (const double* d = std::get_if<double>(&value)) return {name, Kind::number, *d, {}};
  if (const auto* text = std::get_if<std::string>(&value)) return {name, Kind::text, 0, *text};
  return {name, Kind::text, 0, to_string(value)};
}

std::string host_name() {
  const std::string name = host::this_process().host;
  return name.empty() ? "localhost" : name;
}

/// The number behind the prefix of an event file's name, by which TensorBoard sorts; -1: none.
std::int64_t file_time(const std::string& name) {
  std::int64_t time = -1;
  if (!name.starts_with(file_prefix)) return -1;
  const char* const digits = name.data() + file_prefix.size();
  std::from_chars(digits, name.data() + name.size(), time);
  return time;
}

}  // namespace

/// A folder that this process writes events to.
struct EventFolder {
  explicit EventFolder(fs::path where) : folder(std::move(where)) {}

  const fs::path folder;
  Mutex guard;  // of what follows
  std::unique_ptr<formats::AppendFile> file;
  host::MetricSteps steps;
  host::MetricClock clock;

  /// The one of this folder that lives, or a new one.
  static std::shared_ptr<EventFolder> of(const fs::path& folder) {
    static auto* const folders = new WeakCache<fs::path, EventFolder>;
    const fs::path key = host::settled(folder);
    return folders->of(key, [&] { return std::make_shared<EventFolder>(key); });
  }

  void open() {
    if (file && !file->is_gone()) return;
    if (std::exchange(file, nullptr))
      log(LogLevel::warning, "tensorboard: '{}' was removed, and is begun anew",
          one_line(folder.string()));
    std::int64_t newest = -1;
    std::error_code none;  // a folder that is not there yet
    for (const auto& entry : fs::directory_iterator(folder, none)) {
      const std::int64_t time = file_time(entry.path().filename().string());
      newest = std::max(newest, time);
      if (time >= 0 && formats::AppendFile::is_held(entry.path()))
        throw Error(ErrorCode::failed_precondition,
                    fmt::format("tensorboard: another process writes to '{}', and TensorBoard "
                                "reads one writer of a folder; give each a folder of its own",
                                one_line(folder.string())));
    }
    const std::int64_t time = std::max(static_cast<std::int64_t>(clock.now()), newest + 1);
    const std::string name =
        fmt::format("{}{:010}.{}.{}", file_prefix, time, host_name(), ::getpid());
    auto made = std::make_unique<formats::AppendFile>("tensorboard", folder / name,
                                                      formats::AppendFile::Open::fresh);
    made->append(host::tf_record(host::version_event(clock.now())));
    file = std::move(made);
  }

  void write(std::int64_t step, const std::vector<std::string>& values) {
    open();
    file->append(host::tf_record(host::summary_event(clock.now(), step, values)));
  }
};

struct TensorBoardState {
  std::shared_ptr<EventFolder> folder;
  TensorBoardOptions options;
  host::WriteFailures failures{options.on_error};  // guarded by the folder's

  /// Writes what `values` gives, which may throw.
  template <class F>
  void write(std::int64_t step, const F& values) {
    failures.run("tensorboard", [&] { folder->write(step, values()); });
  }
  /// The same from outside of firings.
  void add(const std::string& value, std::int64_t step) {
    std::scoped_lock lock(folder->guard);
    write(step, [&] { return std::vector{value}; });
  }
};

TensorBoard::TensorBoard(const fs::path& folder, const TensorBoardOptions& options, Place place) {
  PlaceScope at(place);
  check(!folder.empty(), "tensorboard: a folder is needed, got none");
  check(options.bins > 0 && options.bins <= 1 << 16,
        "tensorboard: bins must be from 1 to 65536, got {}", options.bins);
  state_.reset(new TensorBoardState{EventFolder::of(folder), options});
  std::scoped_lock lock(state_->folder->guard);
  state_->failures.run("tensorboard", [&] { state_->folder->open(); });
}

void TensorBoard::operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
  if (info.recomputed) return;
  std::scoped_lock lock(state_->folder->guard);
  const host::MetricStep step = state_->folder->steps.next(info, leaves);
  state_->write(step.step, [&] {
    std::vector<std::string> values;
    for (std::size_t i = step.first; i < leaves.size(); ++i)
      values.push_back(
          value_of(state_->options, host::metric_tag(info, i), leaves[i], host::mask_of(info, i)));
    return values;
  });
}

void TensorBoard::add(const std::string& tag, const Tensor& value, std::int64_t step,
                      Place place) const {
  PlaceScope at(place);
  const Type& type = value.type();
  std::vector<std::byte> elements(std::max<std::size_t>(type.byte_size(), 1));
  value.read(elements.data());
  const AnyView view(type.dtype, elements.data(), type.dims.data(), type.dims.size(), type.size());
  state_->add(value_of(state_->options, tag, view, {}), step);
}

void TensorBoard::add_text(const std::string& tag, const std::string& markdown,
                           std::int64_t step) const {
  state_->add(host::text_summary(tag, printable(markdown)), step);
}

void TensorBoard::add_hyperparameters(const Attributes& parameters) const {
  std::vector<host::Hyperparameter> list;
  for (const auto& [name, value] : parameters.items()) list.push_back(hyperparameter(name, value));
  state_->add(host::hyperparameters_summary(list, host::MetricClock().now()), 0);
}

}  // namespace postern::listen
