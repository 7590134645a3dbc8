// Giving calls what an earlier process recorded, and recording those that it had not come to.
//
// Calls are told apart as on every tape. Those that failed are entered again: what made them fail
// may be over. Taps are entered in any case.
//
// Functions that are entered come behind all that the file has: they see the states that its last
// calls left. That is an order in which the program might have run, because what the file lacks had
// not returned. Where another call was recorded with states while such a function was at work, they
// may be half its own, and where one of its order was entered behind it, it comes too late: both
// are errors. See "Checkpoints" in docs/design.md.
#include "host/journal.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/check.h"
#include "core/digest.h"
#include "core/text.h"

namespace postern::internal::host {

namespace {

[[noreturn]] void refuse(ErrorCode code, const std::string& why) {
  throw Error(code, "resume: " + why);
}

}  // namespace

void Journal::go_on(bool from_checkpoint, const std::optional<TapeMark>& mark) {
  std::scoped_lock lock(guard_);
  if (begun_)
    refuse(ErrorCode::failed_precondition,
           "runs have been recorded already; resume with the recording before they start");
  JournalPast past = file_->past();
  if (past.programs.empty()) return;  // a new recording, from here on
  if (from_checkpoint && (!mark || mark->tape != file_->name()))
    refuse(ErrorCode::failed_precondition,
           "the checkpoint was not kept by a synchronous tap while this recording was made; resume "
           "without it, or from another folder");
  programs_ = std::move(past.programs);
  past_.assign(std::make_move_iterator(past.calls.begin()),
               std::make_move_iterator(past.calls.end()));
  goes_on_ = true;
  drop_held();
  find_unclear();
  skip_to(mark.value_or(TapeMark{file_->name()}));
}

/// What a call gave is worth nothing without its states: it has not returned.
void Journal::drop_held() {
  std::optional<std::uint64_t> run;  // the first one of which a later call has all states
  for (auto past = past_.rbegin(); past != past_.rend(); ++past) {
    RecordedFiring& f = past->call;
    if (!f.failure.empty()) continue;
    if (!past->held)
      run = std::min(run.value_or(f.run), f.run);
    else if (!run || *run > f.run)
      f.failure = "its states were not recorded";
  }
}

void Journal::skip_to(const TapeMark& mark) {
  runs_ = mark.run;
  for (const TapeMark::Site& s : mark.sites)
    calls_[{mark.run, s.site, s.device, s.element}] = s.calls;
  std::map<Key, std::uint64_t> skip = calls_;
  std::set<TapeCall> skipped;  // started ones, which may have failed once, and not the next time
  for (std::size_t i = 0; i < past_.size(); ++i) {
    const RecordedFiring& f = past_[i].call;
    const Key key = key_of(f);
    const auto before = calls_.find(key);
    const auto started = static_cast<std::uint64_t>(f.start);
    if (f.start >= 0 && before != calls_.end() && started < before->second) {
      if (skipped.insert(call_of(f)).second) --skip[key];
      past_[i].states.clear();
    } else if (f.run < mark.run || !f.failure.empty()) {
      past_[i].states.clear();
    } else if (f.start >= 0) {
      started_[call_of(f)] = i;
    } else if (const auto found = skip.find(key); found != skip.end() && found->second > 0) {
      --found->second;
      past_[i].states.clear();
    } else {
      next_[key].push_back(i);
    }
  }
  bool ends_before = runs_ >= programs_.size();
  for (const auto& [key, left] : skip) ends_before = ends_before || left > 0;
  if (ends_before)
    refuse(ErrorCode::data_loss, "the recording ends before the checkpoint: it was cut");
}

/// Which started calls were at work, or had failed, when another one's states were recorded, and
/// have left nothing themselves.
void Journal::find_unclear() {
  for (const JournalCall& past : past_) {
    std::string names;
    for (const auto& [name, bytes] : past.states)
      names += (names.empty() ? "" : ", ") + internal::quoted(name);
    for (const TapeCall& call : past.beside) unclear_[call] = names;
  }
  for (const JournalCall& past : past_)
    if (past.call.start >= 0 && past.call.failure.empty()) unclear_.erase(call_of(past.call));
}

std::uint64_t Journal::begin_run(std::string_view program) {
  const std::string sum = digest(program);
  std::scoped_lock lock(guard_);
  if (!begun_ && !goes_on_) file_->start_anew();
  if (!std::exchange(begun_, true))
    for (auto& [name, bytes] : save_states()) seen_[name] = std::move(bytes);
  if (runs_ < programs_.size() && programs_[runs_] != sum)
    refuse(ErrorCode::failed_precondition,
           fmt::format("run {} of the recording is of another program", runs_));
  if (runs_ >= programs_.size() && !closed_) file_->begin_run(sum);
  constexpr std::uint64_t most_under_way = 1024;  // calls of older runs are over
  if (runs_ > most_under_way)
    calls_.erase(calls_.begin(), calls_.lower_bound({runs_ - most_under_way, 0, 0, -1}));
  std::erase_if(open_, [&](const auto& call) {  // its failure is its run's
    return !call.second.started && std::get<0>(call.first.first) + most_under_way < runs_;
  });
  return runs_++;
}

std::optional<bool> Journal::give(RunState& run, const HostSite& site, void* const* data,
                                  int device, std::int64_t element) {
  if (site.spec->is_tap()) return {};
  std::unique_lock lock(guard_);
  const Key key = key_of(run, site, device, element);
  const auto rest = next_.find(key);
  if (rest == next_.end() || rest->second.empty()) {
    catch_up(run.taped_run);
    open_[{key, calls_[key]}] = {};
    return {};
  }
  const std::size_t at = rest->second.front();
  rest->second.pop_front();
  const RecordedFiring past = std::move(past_[at].call);
  const std::string where = call_text(run.taped_run, calls_[key]++, element);
  lock.unlock();  // who fails the run tells others
  if (!Tape::give(past, run, site, data, device, where)) return false;
  lock.lock();
  load(at);
  return true;
}

/// As if the function had been entered. Sites take turns as they like; states do not go back.
void Journal::load(std::size_t at) {
  SavedStates newer;
  for (auto& [name, bytes] : std::exchange(past_[at].states, {})) {
    std::size_t& newest = newest_[name];
    if (at < newest) continue;
    newest = at + 1;
    states_[name] = bytes;
    std::string& seen = seen_[name];
    if (seen == bytes) continue;
    seen = bytes;
    newer.emplace_back(name, std::move(bytes));
  }
  load_states(newer);
}

/// A function is about to be entered: what the file has happened before. So states are loaded as
/// the last of its calls left them, also of those that the program has not come to yet.
void Journal::catch_up(std::uint64_t run) {
  if (run < caught_up_) return;
  caught_up_ = run + 1;
  for (std::size_t i = past_.size(); i-- > 0;)
    if (past_[i].call.run <= run && !past_[i].states.empty()) load(i);
}

void Journal::refuse_unclear(const TapeCall& call) const {
  const auto found = unclear_.find(call);
  if (found == unclear_.end()) return;
  const auto& [run, site, device, element] = call.first;
  throw Error(ErrorCode::failed_precondition,
              fmt::format("{} left no result, and registered states were recorded while it was at "
                          "work or when it had failed: {}. It may have changed them in part, so it "
                          "cannot be entered again",
                          call_text(run, call.second, element), found->second));
}

/// What keeps an order cannot be entered when calls behind it have been.
void Journal::refuse_behind(const StartedFiring& started, const HostSite& site) const {
  const RecordedFiring& now = started.call;
  const bool in_batch = now.element >= 0 && site.spec->vmap == VmapMethod::sequential;
  for (auto it = started_.lower_bound({{now.run, 0, 0, -1}, 0}); it != started_.end(); ++it) {
    const JournalCall& past = past_[it->second];
    const RecordedFiring& f = past.call;
    if (f.run != now.run) break;
    if (f.device != now.device && !site.one_order) continue;
    const bool same_batch = in_batch && f.site == now.site && f.start == now.start;
    if (!(started.ordered && past.ordered) && !(same_batch && f.element > now.element)) continue;
    throw Error(ErrorCode::failed_precondition,
                fmt::format("{} is not recorded, and what was to be entered behind it, call '{}', "
                            "is: their order can't be kept",
                            call_text(now.run, static_cast<std::uint64_t>(now.start), now.element),
                            one_line(f.name)));
  }
}

StartedFiring Journal::begin_started(const RunState& run, const HostSite& site, void* const* data,
                                     int device, std::int64_t element) {
  StartedFiring out = started_of(run, site, data, device, element);
  const Key key = key_of(out.call);
  std::scoped_lock lock(guard_);
  const TapeCall call{key, calls_[key]++};
  out.call.start = static_cast<std::int64_t>(call.second);
  if (const auto found = started_.find(call); found != started_.end()) {
    const std::size_t at = found->second;
    started_.erase(found);
    Tape::give(std::move(past_[at].call), out);
    load(at);
    return out;
  }
  refuse_unclear(call);
  refuse_behind(out, site);
  // Outside of programs each call is a run, and those that follow were recorded beside this one.
  catch_up(run.outside ? programs_.size() : out.call.run);
  under_way_.insert(call);
  return out;
}

void Journal::enter_started(const StartedFiring& started) {
  std::scoped_lock lock(guard_);
  open_[call_of(started.call)] = {.started = true};
}

void Journal::end_started(const StartedFiring& started, bool counts) {
  const TapeCall call = call_of(started.call);
  std::scoped_lock lock(guard_);
  under_way_.erase(call);
  ended_.notify_all();
  if (counts && !closed_) add({started.call, {}, started.ordered, {}}, call, true);
}

/// Writes it down. A call that failed stays open: what it has done so far is not known. While a
/// call that was not started is open, states may be half its own. They wait for one that knows:
/// that call itself, when it returns.
void Journal::add(JournalCall now, const TapeCall& call, bool started) {
  if (!now.call.failure.empty()) return file_->add(now);
  now.states = changed_states();
  const bool moved = std::ranges::any_of(now.states, [&](const auto& state) {
    const auto before = seen_.find(state.first);
    return before == seen_.end() || before->second != state.second;
  });
  for (const auto& [other, open] : open_) {
    if (!moved || other == call) continue;
    if (open.started && !open.listed) now.beside.push_back(other);
    if (!open.started && started && std::get<0>(other.first) >= now.call.run) now.held = true;
  }
  if (now.held) {
    now.states.clear();
    now.beside.clear();
  }
  file_->add(now);
  for (auto& [name, bytes] : now.states) {
    newest_[name] = past_.size();
    states_[name] = bytes;
    seen_[name] = std::move(bytes);
  }
  for (const TapeCall& other : now.beside) open_.at(other).listed = true;
  open_.erase(call);
}

SavedStates Journal::changed_states() const {
  SavedStates changed;
  for (auto& [name, bytes] : save_states()) {
    const auto before = states_.find(name);
    if (before == states_.end() || before->second != bytes)
      changed.emplace_back(name, std::move(bytes));
  }
  return changed;
}

void Journal::record(const RunState& run, const HostSite& site, void* const* data, int device,
                     std::int64_t element, bool went_well) {
  if (site.spec->is_tap()) return;
  JournalCall now{firing_of(run, site, data, device, element, went_well)};
  std::scoped_lock lock(guard_);
  if (closed_) return;
  const Key key = key_of(now.call);
  const TapeCall call{key, calls_[key]};
  if (now.call.failure.empty()) ++calls_[key];
  add(std::move(now), call, false);
}

std::optional<TapeMark> Journal::mark(const RunState& run, SavedStates& states) {
  using namespace std::chrono_literals;
  std::unique_lock lock(guard_);
  while (!under_way_.empty()) {
    if (run.stop.load() || RunState::Clock::now() >= run.deadline) return {};
    ended_.wait_for(lock, 10ms);  // nobody else tells of a run that stops
  }
  if (closed_) return {};
  TapeMark out{file_->name(), run.taped_run, {}};
  for (const auto& [key, calls] : calls_) {
    const auto& [of, site, device, element] = key;
    if (of == run.taped_run) out.sites.push_back({site, device, element, calls});
  }
  states = save_states();  // none is entered meanwhile
  return out;
}

}  // namespace postern::internal::host
