// What came of calls that one device makes for all, until all have taken it.
#include "guest/meetings.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/mutex.h"
#include "pjrt/ffi_frame.h"

namespace postern::internal::guest {

namespace {

using Results = std::vector<std::string>;  // bytes

struct Outcome {
  const void* place;
  std::int64_t run, left;
  std::exception_ptr error;
  std::shared_ptr<const Results> results;
  std::vector<int> taken;  // by devices
};

struct Meetings {
  Mutex guard;
  Condition told;
  std::list<Outcome> outcomes;  // of each run in the leader's order
  std::deque<std::int64_t> failed;
};
constexpr std::size_t failed_kept = 256;
Meetings& meetings() {
  static auto* const kept = new Meetings;
  return *kept;
}

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

std::list<Outcome>::iterator next_of(Meetings& m, const void* place, std::int64_t run, int device) {
  return std::ranges::find_if(m.outcomes, [&](const Outcome& o) {
    return o.place == place && o.run == run && std::ranges::find(o.taken, device) == o.taken.end();
  });
}

}  // namespace

void tell_others(const void* place, const XLA_FFI_CallFrame* frame, std::int64_t others,
                 const std::exception_ptr& error) {
  auto results = std::make_shared<Results>();
  if (!error)
    for (const XLA_FFI_Buffer* b : pjrt::results(frame))
      results->emplace_back(static_cast<const char*>(b->data), bytes_of(b));
  Meetings& m = meetings();
  const std::scoped_lock lock(m.guard);
  m.outcomes.push_back({place, pjrt::run_id(frame), others, error, std::move(results), {}});
  m.told.notify_all();
}

void take_outcome(const void* place, const XLA_FFI_CallFrame* frame, int device) {
  const std::int64_t run = pjrt::run_id(frame);
  Meetings& m = meetings();
  std::unique_lock lock(m.guard);
  auto found = m.outcomes.end();
  m.told.wait(lock, [&] {
    found = next_of(m, place, run, device);
    return found != m.outcomes.end() || has_failed(m, run);
  });
  if (found == m.outcomes.end())
    throw Error(ErrorCode::cancelled, "postern: the program failed on another device");
  const std::exception_ptr error = found->error;
  const std::shared_ptr<const Results> results = found->results;
  found->taken.push_back(device);
  if (--found->left == 0) m.outcomes.erase(found);
  lock.unlock();
  if (error) std::rethrow_exception(error);
  const auto into = pjrt::results(frame);
  for (std::size_t i = 0; i < into.size(); ++i)
    if (!(*results)[i].empty())
      std::memcpy(into[i]->data, (*results)[i].data(), (*results)[i].size());
}

void note_failed(std::int64_t run) {
  Meetings& m = meetings();
  const std::scoped_lock lock(m.guard);
  if (!has_failed(m, run)) m.failed.push_back(run);
  if (m.failed.size() > failed_kept) {
    std::erase_if(m.outcomes, [&](const Outcome& o) { return o.run == m.failed.front(); });
    m.failed.pop_front();
  }
  m.told.notify_all();
}

void forget_place(const void* place) {
  Meetings& m = meetings();
  const std::scoped_lock lock(m.guard);
  std::erase_if(m.outcomes, [&](const Outcome& o) { return o.place == place; });
}

}  // namespace postern::internal::guest
