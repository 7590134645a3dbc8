// Recording and replaying invocations.
#include "recording.h"

namespace postern::internal::recordings {

namespace {

std::string digest_of_operands(const host::ObservedInvocation& i) {
  std::string all;
  for (std::size_t n = 0; n < i.operands.size(); ++n) all += digest(i.operand(n));
  return digest(all);
}

[[noreturn]] void refuse_run(const std::string& why) {
  throw Error(ErrorCode::failed_precondition, "replay: " + why);
}

}  // namespace

std::string call_text(const host::ObservedInvocation& i, std::uint64_t number) {
  return fmt::format("call {} of run {}{}", number, i.run,
                     i.element < 0 ? "" : fmt::format(", element {}", i.element));
}

void Recording::close() {
  std::scoped_lock lock(guard_);
  closed_ = true;
}

bool Recording::enter(host::ObservedInvocation& i) {
  if (i.on_device)
    return i.fail(ErrorCode::unimplemented,
                  "its operands are on a device, where they cannot be recorded or replayed");
  return record_or_give(i);
}

RecordedFiring Recording::firing_of(const host::ObservedInvocation& i, bool went_well) {
  RecordedFiring f;
  f.run = i.run;
  f.site = i.site;
  f.kind = i.kind;
  f.name = i.name;
  f.device = i.device;
  f.element = i.element;
  f.operands = digest_of_operands(i);
  const std::span<const Type> types = i.is_tap ? i.operands : i.results;
  f.types.assign(types.begin(), types.end());
  if (!went_well) {
    const std::optional<std::string> failure = i.failure();
    // A journal enters such a call again, as one that failed; a replay ends there all the same.
    const void* const by = i.stop().end;
    f.failure = failure.value_or(by && by != i.name.data() ? "another function ended the run" : "");
    f.ended = !failure;
    return f;
  }
  for (std::size_t n = 0; n < types.size(); ++n)
    f.values.emplace_back(i.is_tap ? i.operand(n) : i.result(n));
  return f;
}

bool Recording::give(const RecordedFiring& recorded, host::ObservedInvocation& i,
                     const std::string& where) {
  const auto differs = [&](const char* how) {
    return i.fail(ErrorCode::failed_precondition, where + how);
  };
  if (recorded.operands != digest_of_operands(i))
    return differs(" has other operands than were recorded");
  if (recorded.ended) return i.end();
  if (!recorded.failure.empty()) return i.fail(ErrorCode::threw, recorded.failure);
  if (!std::ranges::equal(recorded.types, i.results))
    return differs(" has results of other types than were recorded");
  for (std::size_t n = 0; n < i.results.size(); ++n) i.give(n, recorded.values[n]);
  return true;
}

// --- recording

std::uint64_t NewRecording::begin_run(std::string_view program) {
  std::string sum = digest(program);
  std::scoped_lock lock(guard_);
  if (!closed_) programs_.push_back(std::move(sum));
  return runs_++;
}

bool NewRecording::record_or_give(host::ObservedInvocation& i) {
  const bool went_well = i.enter();
  RecordedFiring f = firing_of(i, went_well);
  std::scoped_lock lock(guard_);
  if (!closed_) firings_.push_back(std::move(f));
  return went_well;
}

// --- replaying

Replay::Replay(std::vector<std::string> programs, std::vector<RecordedFiring> firings)
    : firings_(std::move(firings)) {
  programs_ = std::move(programs);
  for (const RecordedFiring& f : firings_)
    if (f.kind == "call") next_[key_of(f)].push_back(&f);
}

std::uint64_t Replay::begin_run(std::string_view program) {
  const std::string sum = digest(program);
  std::scoped_lock lock(guard_);
  if (runs_ >= programs_.size())
    refuse_run(fmt::format("the recording has {} runs, this is one more", programs_.size()));
  if (programs_[runs_] != sum)
    refuse_run(fmt::format("run {} of the recording is of another program", runs_));
  return runs_++;
}

bool Replay::record_or_give(host::ObservedInvocation& i) {
  if (i.is_tap) return true;
  const RecordedFiring* recorded = nullptr;
  std::uint64_t number = 0;
  {
    const Key key = key_of(i);
    std::scoped_lock lock(guard_);
    number = replayed_[key]++;
    if (auto& rest = next_[key]; !rest.empty()) {
      recorded = rest.front();
      rest.pop_front();
    }
  }
  const std::string where = call_text(i, number);
  if (recorded) return give(*recorded, i, where);
  return i.fail(ErrorCode::failed_precondition, fmt::format("{} was not recorded", where));
}

}  // namespace postern::internal::recordings
