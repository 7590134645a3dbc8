// What came of calls that one device makes for all, until all have taken it.
#include "guest/meetings.h"

#include <algorithm>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"

namespace postern::internal::guest {

namespace {

using Results = std::vector<std::string>;  // bytes

struct Outcome {
  const void* place;
  std::int64_t run;
  std::vector<int> devices;  // that came
  bool is_there = false;
  std::exception_ptr error{};
  Results results{};
};

using Outcomes = std::list<std::shared_ptr<Outcome>>;

struct Meetings {
  Mutex guard;
  Condition told;
  Outcomes outcomes;  // until all devices came; a run's in their order
  std::deque<std::int64_t> failed;
};
constexpr std::size_t failed_kept = 256;
Meetings& meetings() { return never_destroyed<Meetings>(); }

std::size_t bytes_of(const XLA_FFI_Buffer* buffer) {
  DType dtype{};
  if (buffer->dtype == XLA_FFI_DataType_TOKEN || !pjrt::dtype_of(buffer, dtype)) return 0;
  std::size_t bytes = byte_width(dtype);
  for (const std::int64_t n : pjrt::dims_of(buffer)) bytes *= static_cast<std::size_t>(n);
  return bytes;
}

bool has_failed(const Meetings& m, std::int64_t run) {
  return std::ranges::find(m.failed, run) != m.failed.end();
}

/// Takes outcomes out for the caller to let go of after the lock: an error's end may be anything.
Outcomes take_out(Meetings& m, detail::FunctionRef<bool(const Outcome&)> is_meant) {
  Outcomes gone;
  for (auto o = m.outcomes.begin(); o != m.outcomes.end();)
    if (const auto each = o++; is_meant(**each)) gone.splice(gone.end(), m.outcomes, each);
  return gone;
}

/// Enters the function and copies what came of it for the others, who are told either way.
void enter_for_all(Outcome& outcome, const XLA_FFI_CallFrame* frame, const Home& home,
                   detail::FunctionRef<void()> enter) {
  std::exception_ptr error;
  Results results;
  try {
    enter();
    for (const XLA_FFI_Buffer* b : pjrt::results(frame)) {
      std::string& bytes = results.emplace_back(bytes_of(b), '\0');
      if (!bytes.empty()) home.to_host(bytes.data(), b->data, bytes.size(), frame);
    }
  } catch (...) {
    error = std::current_exception();
  }
  Meetings& m = meetings();
  std::unique_lock lock(m.guard);
  outcome.error = error;
  outcome.results = std::move(results);
  outcome.is_there = true;
  m.told.notify_all();
  lock.unlock();
  if (error) std::rethrow_exception(error);
}

}  // namespace

void meet(const void* place, const XLA_FFI_CallFrame* frame, int device, std::int64_t devices,
          const Home& home, detail::FunctionRef<void()> enter) {
  const std::int64_t run = pjrt::run_id(frame);
  Meetings& m = meetings();
  std::unique_lock lock(m.guard);
  const auto found = std::ranges::find_if(m.outcomes, [&](const auto& o) {
    return o->place == place && o->run == run && std::ranges::count(o->devices, device) == 0;
  });
  if (found == m.outcomes.end()) {  // the first to make this call
    if (has_failed(m, run))
      throw Error(ErrorCode::cancelled, "postern: the program failed on another device");
    const auto outcome =
        std::make_shared<Outcome>(Outcome{.place = place, .run = run, .devices = {device}});
    m.outcomes.push_back(outcome);
    lock.unlock();
    return enter_for_all(*outcome, frame, home, enter);
  }
  const std::shared_ptr<Outcome> outcome = *found;
  outcome->devices.push_back(device);
  if (std::ssize(outcome->devices) == devices) m.outcomes.erase(found);  // all have come
  m.told.wait(lock, [&] { return outcome->is_there; });
  lock.unlock();
  if (outcome->error) std::rethrow_exception(outcome->error);
  const auto into = pjrt::results(frame);
  for (std::size_t i = 0; i < into.size(); ++i)
    if (const std::string& bytes = outcome->results[i]; !bytes.empty())
      home.to_device(into[i]->data, bytes.data(), bytes.size(), frame);
}

void note_failed(std::int64_t run) {
  Outcomes gone;
  Meetings& m = meetings();
  const std::scoped_lock lock(m.guard);
  if (has_failed(m, run)) return;
  m.failed.push_back(run);
  if (m.failed.size() <= failed_kept) return;
  const std::int64_t oldest = m.failed.front();
  m.failed.pop_front();
  gone = take_out(m, [oldest](const Outcome& o) { return o.run == oldest; });
}

void forget_place(const void* place) {
  Outcomes gone;
  Meetings& m = meetings();
  const std::scoped_lock lock(m.guard);
  gone = take_out(m, [place](const Outcome& o) { return o.place == place; });
}

}  // namespace postern::internal::guest
