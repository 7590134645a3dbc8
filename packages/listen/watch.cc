// Listeners that watch a run: the first value that is not finite, and how far it is.
#include <fmt/format.h>

#include <cmath>
#include <iostream>

#include "metric.h"
#include "shown.h"
#include "spi.h"
#include "summary.h"

namespace postern::listen {
using namespace internal;

/// Firings of each place in the current run.
struct FiniteState {
  struct Entry {
    Place place;
    std::string name;
    int device;
    std::uint64_t run, firings;
  };
  Mutex guard;
  std::vector<Entry> entries;

  std::uint64_t count(const TapInfo& info) {
    std::scoped_lock lock(guard);
    for (Entry& e : entries) {
      if (!host::same_place(e.place, info.place) || e.device != info.device || e.name != info.name)
        continue;
      if (std::exchange(e.run, info.run) != info.run) e.firings = 0;
      return e.firings++;
    }
    entries.push_back({info.place, std::string(info.name), info.device, info.run, 1});
    return 0;
  }
};

FirstNonFinite::FirstNonFinite() : state_(std::make_shared<FiniteState>()) {}

void FirstNonFinite::operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
  const std::uint64_t firing = state_->count(info);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::int64_t at = host::non_finite_in(leaves[i], host::mask_of(info, i)).first();
    if (at < 0) continue;
    const auto [re, im] = host::complex_at(leaves[i].dtype(), leaves[i].data(), at);
    const std::string_view path = host::path_of(info, i);
    const std::string index = host::index_text(at, leaves[i].dims());
    const char* value = re < 0 ? "-inf" : "inf";
    if (std::isnan(re) || std::isnan(im)) value = "nan";
    throw std::runtime_error(
        fmt::format("{}{}{} is {} in firing {} of its run{}", host::leaf_label(info.name, path),
                    index.empty() ? "" : " at ", index, value, firing,
                    info.transforms.empty() ? "" : " (" + to_string(info.transforms) + ")"));
  }
}

struct ProgressState {
  ProgressState(std::int64_t steps, const ProgressOptions& how) : total(steps), options(how) {
    Instances<ProgressState>::all().enter(this);
  }
  ~ProgressState() { Instances<ProgressState>::all().leave(this); }
  using Clock = std::chrono::steady_clock;
  const std::int64_t total;
  const ProgressOptions options;
  /// What all processes that have this bar call it.
  const std::uint64_t what = fnv_1a(fmt::format("{} of {}", options.label, total)) | 1;
  Mutex guard;
  std::int64_t done = 0;
  std::uint64_t run = 0;  // the newest, of which the first device to be seen is followed
  int device = -1;
  std::size_t width = 0;  // of what is on the line now
  Clock::time_point start = Clock::now(), shown{};
  std::string numbers;  // behind the bar

  /// How long it has taken, and how long it will by that.
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start).count(); }
  double left(std::int64_t at, double so_far) const {
    if (at <= 0) return std::numeric_limits<double>::quiet_NaN();
    return so_far / static_cast<double>(at) *
           static_cast<double>(std::max(total - at, std::int64_t{0}));
  }
  /// How far the slowest process is, and which one that is where it is not this one.
  std::pair<std::int64_t, std::string> slowest() const {
    if (!options.of_all_processes) return {done, ""};
    const std::vector<std::int64_t> counts = clusters::counts_of(what);
    const auto least = std::ranges::min_element(counts);
    if (least == counts.end() || *least >= done) return {done, ""};
    return {*least, fmt::format(" (process {})", least - counts.begin())};
  }
  std::string line() const {
    const auto [at, whose] = slowest();
    const double part = std::clamp(static_cast<double>(at) / static_cast<double>(total), 0.0, 1.0);
    const auto full = static_cast<std::size_t>(part * options.width);
    const double so_far = seconds();
    std::string out = options.label.empty() ? "" : options.label + " ";
    out += fmt::format("[{}{}] {}/{} {:.1f} s", std::string(full, '#'),
                       std::string(static_cast<std::size_t>(options.width) - full, '.'), at, total,
                       so_far);
    if (at > 0 && at < total) out += fmt::format(", {:.1f} s left", left(at, so_far));
    return out + whose + numbers;
  }
  /// The line in place of the one that is there, which ends with the last step.
  void write(std::unique_lock<Mutex> lock) {
    shown = Clock::now();
    if (options.of_all_processes) clusters::say_count(what, done);
    if (options.of_all_processes && clusters::rank_now() != 0) return;
    const bool last = done >= total;
    std::string text = line();
    const std::size_t before = std::exchange(width, last ? 0 : text.size());
    if (text.size() < before) text.append(before - text.size(), ' ');
    text = '\r' + text + (last ? "\n" : "");
    lock.unlock();  // what the stream does with it may wait for others that count
    host::write_to(options.stream ? *options.stream : std::cerr, std::move(text));
  }
};

/// A tap with .every does not show the steps that are left: the run's end does.
static void end_with_run(const std::shared_ptr<ProgressState>& state, std::uint64_t run) {
  const std::int64_t done = state->done;
  if (done == state->total) return;
  host::when_run_ends(run, [state, run, done](bool well) {
    if (!well) return;
    std::unique_lock lock(state->guard);
    if (state->run != run || state->done != done) return;  // another loop began
    state->done = state->total;
    state->write(std::move(lock));
  });
}

Progress::Progress(std::int64_t total, const ProgressOptions& options, Place place) {
  PlaceScope at(place);
  check(total > 0, "progress: the number of steps must be positive, got {}", total);
  check(options.width > 0 && options.width <= 1000 && options.per_second > 0,
        "progress: width must be from 1 to 1000 and per_second positive, got {} and {}",
        options.width, options.per_second);
  state_ = std::make_shared<ProgressState>(total, options);
}

void Progress::operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
  ProgressState& s = *state_;
  std::unique_lock lock(s.guard);
  if (info.run > s.run || s.device < 0) {
    s.run = info.run;
    s.device = info.device;
  }
  if (info.device != s.device) return;  // it counts the same steps
  const bool counted = !leaves.empty() && leaves[0].rank() == 0 && is_integer(leaves[0].dtype());
  const std::int64_t before = s.done;
  s.done = (counted ? host::step_of(leaves[0]) : before % s.total) + 1;
  const auto now = ProgressState::Clock::now();
  if (s.done <= before) s.start = now;  // another loop began
  const std::int64_t stride = s.done - before;
  if (stride > 1 && s.done + stride > s.total) {
    if (host::in_delivery())
      s.done = s.total;  // the run may be over
    else
      end_with_run(state_, info.run);
  }
  if (s.done < s.total && now - s.shown < std::chrono::duration<double>(1 / s.options.per_second))
    return;
  s.numbers.clear();
  for (std::size_t i = counted; i < leaves.size(); ++i)
    if (leaves[i].rank() == 0)
      s.numbers += fmt::format(" {}={}",
                               i < info.paths.size() && !info.paths[i].empty()
                                   ? one_line(info.paths[i])
                                   : host::leaf_label(info.name, ""),
                               host::text_of(leaves[i], "", {}));
  s.write(std::move(lock));
}

}  // namespace postern::listen

namespace postern::internal::host {

void each_progress(const std::function<void(std::uint64_t, const ProgressNow&)>& f) {
  Instances<listen::ProgressState>::all().each([&](listen::ProgressState& s, std::uint64_t number) {
    std::scoped_lock lock(s.guard);
    const double so_far = s.seconds();
    f(number, {s.options.label, s.numbers, s.done, s.total, so_far, s.left(s.done, so_far)});
  });
}

}  // namespace postern::internal::host
