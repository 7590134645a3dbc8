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
#include "host/fire.h"
#include "host/loop_tape.h"

namespace postern::internal::host {

namespace {

thread_local std::shared_ptr<Tape> taped;
std::atomic<int> threads_taped{0};  // so that no run looks for a tape while there is none

std::string digest_of(const Invocation& i) {
  std::string all;
  for (std::size_t leaf = 0; leaf < i.site.operands; ++leaf)
    all += digest({static_cast<const char*>(i.data[leaf]), i.site.leaf_bytes[leaf]});
  return digest(all);
}

std::int64_t index_of(const Invocation& i) { return &i.site - i.run.sites; }

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

std::string call_text(const Invocation& i, std::uint64_t number) {
  return fmt::format("call {} of run {}{}", number, i.run.taped_run,
                     i.element < 0 ? "" : fmt::format(", element {}", i.element));
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

Tape::Key Tape::key_of(const Invocation& i) {
  return {i.run.taped_run, index_of(i), i.device, i.element};
}

RecordedFiring Tape::firing_of(const Invocation& i, bool went_well) {
  const RunState& run = i.run;
  const HostSite& site = i.site;
  const SiteSpec& spec = *site.spec;
  RecordedFiring f;
  f.run = run.taped_run;
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

void Tape::record(const Invocation& i, bool went_well) {
  RecordedFiring f = firing_of(i, went_well);
  std::scoped_lock lock(guard_);
  if (!closed_) firings_.push_back(std::move(f));
}

bool Tape::replay(const Invocation& i) {
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

bool Tape::give(const RecordedFiring& recorded, const Invocation& i, const std::string& where) {
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

void Tape::close() {
  std::scoped_lock lock(guard_);
  closed_ = true;
}

static bool enter_on_tape(const Stage& stage, Invocation& i) noexcept {
  Tape* const tape = i.run.tape.get();
  if (!tape || (i.site.function && is_of_loop_tapes(*i.site.function))) return stage.next->enter(i);
  try {
    if (i.on_device) {
      i.run.fail(ErrorCode::unimplemented, i.site, i.device, nullptr,
                 "its operands are on a device, where they cannot be recorded or replayed");
      return false;
    }
    if (tape->replays()) return tape->replay(i);
    if (const auto given = tape->give(i)) return *given;
    const bool ok = stage.next->enter(i);
    tape->record(i, ok);
    return ok;
  } catch (...) {
    return keep_thrown(i.run, i.site, i.device);
  }
}

const StageRow tape_stage = {.enter = enter_on_tape, .of_runs = true};

}  // namespace postern::internal::host
