// Giving calls what an earlier process recorded, and recording those that it had not come to.
//
// Calls are told apart as in every recording. Those that failed are entered again: what made them
// fail may be over. Taps are entered in any case.
#include "journal.h"

namespace postern::internal::recordings {

namespace {

[[noreturn]] void refuse_resume(ErrorCode code, const std::string& why) {
  throw Error(code, "resume: " + why);
}

}  // namespace

std::optional<RecordingMark> recording_mark() {
  const host::ObservedRun here = host::observed_run();
  auto* const journal = dynamic_cast<Journal*>(here.observer.get());
  return journal ? journal->mark(here.run) : std::nullopt;
}

void resume_recording(const Taping& recording, bool from_checkpoint,
                      const std::optional<RecordingMark>& mark) {
  auto* const journal = dynamic_cast<Journal*>(recording.internal().get());
  if (!journal)
    refuse_resume(ErrorCode::failed_precondition,
                  "the recording is not one of record(file, {.resumable = true}), or is over");
  journal->resume(from_checkpoint, mark);
}

void Journal::resume(bool from_checkpoint, const std::optional<RecordingMark>& mark) {
  std::scoped_lock lock(guard_);
  if (begun_)
    refuse_resume(ErrorCode::failed_precondition,
                  "runs have been recorded already; resume with the recording before they start");
  JournalPast past = file_.past();
  if (past.programs.empty()) return;  // a new recording, from here on
  if (from_checkpoint && (!mark || mark->recording != file_.name()))
    refuse_resume(
        ErrorCode::failed_precondition,
        "the checkpoint was not kept by a synchronous tap while this recording was made; resume "
        "without it, or from another folder");
  programs_ = std::move(past.programs);
  past_.assign(std::make_move_iterator(past.calls.begin()),
               std::make_move_iterator(past.calls.end()));
  resumed_ = true;
  skip_to(mark.value_or(RecordingMark{file_.name()}));
}

std::string Journal::about_lost_calls() const {
  if (!resumed_) return {};
  return "; a run that ended between the start of a call and its wait cannot be resumed";
}

void Journal::skip_to(const RecordingMark& mark) {
  runs_ = mark.run;
  std::map<Key, std::uint64_t> skip;
  for (const RecordingMark::Site& s : mark.sites)
    skip[{mark.run, s.site, s.device, s.element}] = s.calls;
  calls_ = skip;
  for (std::size_t i = 0; i < past_.size(); ++i) {
    const RecordedFiring& f = past_[i].call;
    if (f.run < mark.run || !f.failure.empty()) continue;
    const Key key = key_of(f);
    if (const auto found = skip.find(key); found != skip.end() && found->second > 0)
      --found->second;
    else
      next_[key].push_back(i);
  }
  bool ends_before = runs_ >= programs_.size();
  for (const auto& [key, left] : skip) ends_before = ends_before || left > 0;
  if (ends_before)
    refuse_resume(ErrorCode::data_loss, "the recording ends before the checkpoint: it was cut");
}

std::uint64_t Journal::begin_run(std::string_view program) {
  const std::string sum = digest(program);
  std::scoped_lock lock(guard_);
  if (!begun_ && !resumed_) file_.start_anew();
  begun_ = true;
  if (runs_ < programs_.size() && programs_[runs_] != sum)
    refuse_resume(ErrorCode::failed_precondition,
                  fmt::format("run {} of the recording is of another program", runs_));
  if (runs_ >= programs_.size() && !closed_) file_.begin_run(sum);
  constexpr std::uint64_t most_under_way = 1024;  // calls of older runs are over
  if (runs_ > most_under_way)
    calls_.erase(calls_.begin(), calls_.lower_bound({runs_ - most_under_way, 0, 0, -1}));
  return runs_++;
}

bool Journal::record_or_give(host::ObservedInvocation& i) {
  if (i.is_tap) return i.enter();
  if (const std::optional<bool> given = give_past(i)) return *given;
  const bool went_well = i.enter();
  record(i, went_well);
  return went_well;
}

/// Gives a call what the file has for it and the states that it left; none: it has nothing more.
std::optional<bool> Journal::give_past(host::ObservedInvocation& i) {
  if (!resumed_) return {};
  std::unique_lock lock(guard_);
  const Key key = key_of(i);
  const auto rest = next_.find(key);
  if (rest == next_.end() || rest->second.empty()) return {};
  const std::size_t at = rest->second.front();
  rest->second.pop_front();
  JournalCall past = std::move(past_[at]);
  const std::string where = call_text(i, calls_[key]++);
  lock.unlock();  // a run that fails waits for its other devices, which come here
  if (!give(past.call, i, where)) return false;
  lock.lock();
  // As if the function had been entered. Sites take turns as they like; states do not go back.
  const auto loaded = [&] { return !loading_; };
  if (host::wait_at(loaded_, lock, &i.stop(), loaded, i.deadline()) != host::Woken::done)
    return false;
  host::SavedStates newer;
  for (auto& [name, bytes] : past.states) {
    std::size_t& newest = newest_states_[name];
    if (at < newest) continue;
    newest = at + 1;
    states_[name] = bytes;
    newer.emplace_back(name, std::move(bytes));
  }
  if (!newer.empty()) load(lock, newer);
  return true;
}

/// Loads states without the lock, since the functions that load are the user's. Until it is locked
/// again `loading_` is set: other calls that are given wait for that, so states load one by one.
void Journal::load(std::unique_lock<Mutex>& lock, const host::SavedStates& states) {
  struct Unlocked {
    Journal& journal;
    std::unique_lock<Mutex>& held;
    ~Unlocked() {  // also where loading throws
      held.lock();
      journal.loading_ = false;
      journal.loaded_.notify_all();
    }
  };
  loading_ = true;
  lock.unlock();
  const Unlocked until_loaded{*this, lock};
  host::load_states(states);
}

/// Returns those that differ from the file's, of the save of that number. A save that began later
/// has seen all that this one has: then none.
host::SavedStates Journal::changed_states(host::SavedStates now, std::uint64_t number) {
  host::SavedStates changed;
  if (number < newest_save_) return changed;
  newest_save_ = number;
  for (auto& [name, bytes] : now) {
    const auto [before, is_new] = states_.try_emplace(name, bytes);
    if (!is_new && before->second == bytes) continue;
    before->second = bytes;
    changed.emplace_back(name, std::move(bytes));
  }
  return changed;
}

void Journal::record(const host::ObservedInvocation& i, bool went_well) {
  JournalCall now{firing_of(i, went_well), {}};
  const std::uint64_t number = saves_.fetch_add(1);
  host::SavedStates states;
  if (now.call.failure.empty()) states = host::save_states();
  std::scoped_lock lock(guard_);
  if (closed_) return;
  if (now.call.failure.empty()) {
    now.states = changed_states(std::move(states), number);
    ++calls_[key_of(i)];
  }
  file_.add(now);
}

std::optional<RecordingMark> Journal::mark(std::uint64_t run) {
  std::scoped_lock lock(guard_);
  if (closed_) return {};
  RecordingMark out{file_.name(), run, {}};
  for (const auto& [key, calls] : calls_) {
    const auto& [of, site, device, element] = key;
    if (of == run) out.sites.push_back({site, device, element, calls});
  }
  return out;
}

}  // namespace postern::internal::recordings
