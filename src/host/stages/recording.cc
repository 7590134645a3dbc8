// Recording and replaying invocations.
//
// An invocation is known by its run's number in the recording, its site's number in the program,
// its device and its element of a batch; those that agree in all follow each other in their own
// order. So a replay does not depend on which device or element came first. What a call was given
// is kept as a digest, what it gave, or a tap was given, in full.
#include "host/recording.h"

#include <atomic>
#include <cstring>

#include "core/check.h"
#include "core/digest.h"
#include "host/enter.h"
#include "host/residual_store.h"

namespace postern::internal::host {

namespace {

thread_local std::shared_ptr<Recording> current;
std::atomic<int> threads_recording{0};  // so that no run looks for a recording while there is none

std::string digest_of(const Invocation& i) {
  std::string all;
  for (std::size_t leaf = 0; leaf < i.site.operands; ++leaf)
    all += digest({static_cast<const char*>(i.data[leaf]), i.site.leaf_bytes[leaf]});
  return digest(all);
}

std::int64_t index_of(const Invocation& i) { return &i.site - i.run.sites; }

}  // namespace

std::shared_ptr<Recording> current_recording() {
  if (threads_recording.load(std::memory_order_relaxed) == 0 || nesting()) return nullptr;
  return current;
}

void set_current_recording(std::shared_ptr<Recording> recording) {
  if (recording && current)
    throw Error(ErrorCode::failed_precondition,
                "record, replay: this thread is recording or replaying already");
  threads_recording += (recording != nullptr) - (current != nullptr);
  current = std::move(recording);
}

std::string call_text(const Invocation& i, std::uint64_t number) {
  return fmt::format("call {} of run {}{}", number, i.run.recorded_run,
                     i.element < 0 ? "" : fmt::format(", element {}", i.element));
}

Recording::Recording(std::vector<std::string> programs, std::vector<RecordedFiring> firings)
    : programs_(std::move(programs)), replays_(true), firings_(std::move(firings)) {
  for (std::size_t i = 0; i < firings_.size(); ++i) {
    const RecordedFiring& f = firings_[i];
    if (f.kind == "call") next_[{f.run, f.site, f.device, f.element}].push_back(i);
  }
}

std::uint64_t Recording::begin_run(std::string_view program) {
  const std::string sum = digest(program);
  std::scoped_lock lock(guard_);
  const std::uint64_t run = runs_;
  if (replays_) {
    if (run >= programs_.size())
      throw Error(
          ErrorCode::failed_precondition,
          fmt::format("replay: the recording has {} runs, this is one more", programs_.size()));
    if (programs_[run] != sum)
      throw Error(ErrorCode::failed_precondition,
                  fmt::format("replay: run {} of the recording is of another program", run));
  } else if (!closed_) {
    programs_.push_back(sum);
  }
  ++runs_;
  return run;
}

Recording::Key Recording::key_of(const Invocation& i) {
  return {i.run.recorded_run, index_of(i), i.device, i.element};
}

RecordedFiring Recording::firing_of(const Invocation& i, bool went_well) {
  const RunState& run = i.run;
  const HostSite& site = i.site;
  const SiteSpec& spec = *site.spec;
  RecordedFiring f;
  f.run = run.recorded_run;
  f.site = index_of(i);
  f.kind = word_of(spec.kind);
  f.name = spec.name;
  f.device = i.device;
  f.element = i.element;
  f.operands = digest_of(i);
  f.ended = !went_well && !run.failed();
  if (!went_well && run.failed()) f.failure = run.first_failure();
  const bool call = !spec.is_tap();
  f.types = call ? spec.results : spec.operands;
  const std::size_t first = call ? site.operands : 0;
  for (std::size_t leaf = first; leaf < first + f.types.size() && went_well; ++leaf)
    f.values.emplace_back(static_cast<const char*>(i.data[leaf]), site.leaf_bytes[leaf]);
  return f;
}

void Recording::record(const Invocation& i, bool went_well) {
  RecordedFiring f = firing_of(i, went_well);
  std::scoped_lock lock(guard_);
  if (!closed_) firings_.push_back(std::move(f));
}

bool Recording::replay(const Invocation& i) {
  if (i.site.spec->is_tap()) return true;
  const RecordedFiring* found = nullptr;
  std::uint64_t number = 0;
  {
    const Key key = key_of(i);
    std::scoped_lock lock(guard_);
    number = replayed_[key]++;
    std::deque<std::size_t>& rest = next_[key];
    if (!rest.empty()) {
      found = &firings_[rest.front()];
      rest.pop_front();
    }
  }
  const std::string where = call_text(i, number);
  if (found) return give(*found, i, where);
  i.run.fail(ErrorCode::failed_precondition, i.site, i.device, nullptr,
             fmt::format("{} was not recorded", where));
  return false;
}

bool Recording::give(const RecordedFiring& recorded, const Invocation& i,
                     const std::string& where) {
  auto differs = [&](const char* how) {
    i.run.fail(ErrorCode::failed_precondition, i.site, i.device, nullptr, where + how);
    return false;
  };
  if (recorded.operands != digest_of(i)) return differs(" has other operands than were recorded");
  if (recorded.ended) {
    i.run.request(Outcome::stopped);
    return false;
  }
  if (!recorded.failure.empty()) {
    i.run.fail(ErrorCode::threw, i.site, i.device, nullptr, recorded.failure);
    return false;
  }
  if (recorded.types != i.site.spec->results)
    return differs(" has results of other types than were recorded");
  for (std::size_t result = 0; result < i.site.results; ++result)
    if (const std::string& bytes = recorded.values[result]; !bytes.empty())
      std::memcpy(i.data[i.site.operands + result], bytes.data(), bytes.size());
  return true;
}

void Recording::close() {
  std::scoped_lock lock(guard_);
  closed_ = true;
}

static bool enter_recording(const Stage& stage, Invocation& i) noexcept {
  Recording* const recording = i.run.recording.get();
  if (!recording || (i.site.function && is_of_residuals(*i.site.function)))
    return stage.next->enter(i);
  try {
    if (i.on_device) {
      i.run.fail(ErrorCode::unimplemented, i.site, i.device, nullptr,
                 "its operands are on a device, where they cannot be recorded or replayed");
      return false;
    }
    if (recording->replays()) return recording->replay(i);
    if (const auto given = recording->give(i)) return *given;
    const bool ok = stage.next->enter(i);
    recording->record(i, ok);
    return ok;
  } catch (...) {
    return keep_thrown(i.run, i.site, i.device);
  }
}

const StageRow recording_stage = {.enter = enter_recording, .of_runs = true};

}  // namespace postern::internal::host
