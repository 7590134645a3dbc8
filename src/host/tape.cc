// Recording and replaying firings.
//
// A firing is known by its run's number on the tape, its site's number in the program, its device
// and its element of a batch; those that agree in all follow each other in their own order. So a
// replay does not depend on which device or element came first. What a call was given is kept as a
// digest, what it gave, or a tap was given, in full.
#include "host/tape.h"

#include <atomic>
#include <cstring>

#include "core/check.h"
#include "core/digest.h"

namespace postern::internal::host {

namespace {

thread_local std::shared_ptr<Tape> taped;
std::atomic<int> threads_taped{0};  // so that no run looks for a tape while there is none

std::string digest_of(const HostSite& site, void* const* data) {
  std::string all;
  for (std::size_t i = 0; i < site.operands; ++i)
    all += digest({static_cast<const char*>(data[i]), site.leaf_bytes[i]});
  return digest(all);
}

std::int64_t index_of(const RunState& run, const HostSite& site) { return &site - run.sites; }

}  // namespace

std::shared_ptr<Tape> current_tape() {
  if (threads_taped.load(std::memory_order_relaxed) == 0 || nesting()) return nullptr;
  return taped;
}

void set_current_tape(std::shared_ptr<Tape> tape) {
  if (tape && taped)
    throw Error(ErrorCode::failed_precondition,
                "record, replay: this thread is recording or replaying already");
  threads_taped += (tape != nullptr) - (taped != nullptr);
  taped = std::move(tape);
}

std::string call_text(const RunState& run, std::uint64_t number, std::int64_t element) {
  return fmt::format("call {} of run {}{}", number, run.taped_run,
                     element < 0 ? "" : fmt::format(", element {}", element));
}

Tape::Tape(std::vector<std::string> programs, std::vector<RecordedFiring> firings)
    : programs_(std::move(programs)), replays_(true), firings_(std::move(firings)) {
  for (std::size_t i = 0; i < firings_.size(); ++i) {
    const RecordedFiring& f = firings_[i];
    if (f.kind == "call") next_[{f.run, f.site, f.device, f.element}].push_back(i);
  }
}

std::uint64_t Tape::begin_run(std::string_view program) {
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

Tape::Key Tape::key_of(const RunState& run, const HostSite& site, int device,
                       std::int64_t element) {
  return {run.taped_run, index_of(run, site), device, element};
}

RecordedFiring Tape::firing_of(const RunState& run, const HostSite& site, void* const* data,
                               int device, std::int64_t element, bool went_well) {
  const SiteSpec& spec = *site.spec;
  RecordedFiring f;
  f.run = run.taped_run;
  f.site = index_of(run, site);
  f.kind = word_of(spec.kind);
  f.name = spec.name;
  f.device = device;
  f.element = element;
  f.operands = digest_of(site, data);
  f.ended = !went_well && !run.failed();
  if (!went_well && run.failed()) f.failure = run.first_failure();
  const bool call = !spec.is_tap();
  f.types = call ? spec.results : spec.operands;
  const std::size_t first = call ? site.operands : 0;
  for (std::size_t i = 0; i < f.types.size() && went_well; ++i)
    f.values.emplace_back(static_cast<const char*>(data[first + i]), site.leaf_bytes[first + i]);
  return f;
}

void Tape::record(const RunState& run, const HostSite& site, void* const* data, int device,
                  std::int64_t element, bool went_well) {
  RecordedFiring f = firing_of(run, site, data, device, element, went_well);
  std::scoped_lock lock(guard_);
  if (!closed_) firings_.push_back(std::move(f));
}

bool Tape::replay(RunState& run, const HostSite& site, void* const* data, int device,
                  std::int64_t element) {
  if (site.spec->is_tap()) return true;
  const RecordedFiring* found = nullptr;
  std::uint64_t number = 0;
  {
    const Key key = key_of(run, site, device, element);
    std::scoped_lock lock(guard_);
    number = replayed_[key]++;
    std::deque<std::size_t>& rest = next_[key];
    if (!rest.empty()) {
      found = &firings_[rest.front()];
      rest.pop_front();
    }
  }
  const std::string where = call_text(run, number, element);
  if (found) return give(*found, run, site, data, device, where);
  run.fail(ErrorCode::failed_precondition, site, device, nullptr,
           fmt::format("{} was not recorded", where));
  return false;
}

bool Tape::give(const RecordedFiring& recorded, RunState& run, const HostSite& site,
                void* const* data, int device, const std::string& where) {
  auto differs = [&](const char* how) {
    run.fail(ErrorCode::failed_precondition, site, device, nullptr, where + how);
    return false;
  };
  if (recorded.operands != digest_of(site, data))
    return differs(" has other operands than were recorded");
  if (recorded.ended) {
    run.request(Outcome::stopped);
    return false;
  }
  if (!recorded.failure.empty()) {
    run.fail(ErrorCode::threw, site, device, nullptr, recorded.failure);
    return false;
  }
  if (recorded.types != site.spec->results)
    return differs(" has results of other types than were recorded");
  for (std::size_t i = 0; i < site.results; ++i)
    if (const std::string& bytes = recorded.values[i]; !bytes.empty())
      std::memcpy(data[site.operands + i], bytes.data(), bytes.size());
  return true;
}

void Tape::close() {
  std::scoped_lock lock(guard_);
  closed_ = true;
}

}  // namespace postern::internal::host
