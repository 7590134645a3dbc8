// Leaves on their way between the device and host functions.
#include "platform/gpu/enter.h"

#include <exception>

#include "core/lists.h"
#include "core/log.h"
#include "host/enter.h"
#include "host/queue.h"

namespace postern::internal::gpu {

namespace {

using host::HostSite, host::RunState;

constexpr std::size_t alignment = 64;             // as heap_memory's blocks have it
alignas(alignment) std::byte nothing[alignment];  // where empty arrays point

/// Returns the size of a buffer as the device holds it: elements of less than a byte are packed.
/// Buffers are the operands, the mask of a masked batch, which is no leaf, and the results.
std::size_t bytes_of(const HostSite& site, std::size_t buffer) {
  const SiteBatch& batch = site.spec->batch;
  if (batch.masked && buffer == site.operands) return size_of(batch.mask_size);
  std::size_t leaf = buffer;
  if (batch.masked && buffer > site.operands) --leaf;
  const std::size_t unpacked = site.buffer_bytes[leaf];
  const auto bits = size_of(bit_width(site.leaves[leaf].dtype));
  if (bits < 8) return (unpacked * bits + 7) / 8;
  return unpacked;
}

/// Returns the bytes of pinned memory that the first `count` buffers take, and where each begins.
std::size_t lay_out(const HostSite& site, std::size_t count, std::vector<std::size_t>& offsets) {
  std::size_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    offsets.push_back(total);
    total += (bytes_of(site, i) + alignment - 1) / alignment * alignment;
  }
  return total;
}

/// A place in pinned memory for each of the first `count` buffers.
struct Places {
  Places(Staging& staging, const HostSite& site, std::size_t count) {
    block = Staging::Block(staging, lay_out(site, count, offsets));
    for (const std::size_t offset : offsets) data.push_back(block.data() + offset);
  }
  /// Queues the copies of the operands and the mask, but of what the host can read `in_place`.
  /// Returns whether the stream must be waited for.
  bool fetch(const Driver& driver, const HostSite& site, void* const* buffers, void* stream,
             bool in_place) {
    bool must_wait = false;
    for (std::size_t i = 0; i < site.inputs; ++i) {
      const std::size_t bytes = bytes_of(site, i);
      if (bytes == 0) continue;
      must_wait = true;  // also for what is read in place: the device may still write it
      if (in_place && driver.on_host(buffers[i])) {
        data[i] = buffers[i];
        continue;
      }
      block.used_by(stream);
      driver.check(driver.copy_to_host(data[i], buffers[i], bytes, stream),
                   "to copy an operand to the host");
    }
    return must_wait;
  }

  Staging::Block block;
  std::vector<std::size_t> offsets;
  std::vector<void*> data;
};

/// The leaves of an asynchronous tap, behind which an event waits.
class Arrival final : public host::Transfer {
 public:
  Arrival(Staging& staging, const HostSite& site, void* const* buffers, void* stream)
      : staging_(staging), places_(staging, site, site.inputs) {
    // Not in place: the program goes on, and may write over its operands.
    if (places_.fetch(staging.driver(), site, buffers, stream, false))
      event_ = staging.record(stream);
  }
  ~Arrival() override {
    const Driver& driver = staging_.driver();
    const bool entered = driver.enter(staging_.context()) == 0;
    { const Staging::Block gone = std::move(places_.block); }  // its end may record an event
    if (event_) staging_.give_back(event_);
    if (entered) driver.leave();
  }
  void* const* wait() override {
    const Driver& driver = staging_.driver();
    const ContextScope scope(driver, staging_.context());
    if (event_) driver.check(driver.wait(event_), "to bring a tap's value to the host");
    places_.block.done();
    return places_.data.data();
  }

 private:
  Staging& staging_;
  Places places_;
  void* event_ = nullptr;
};

void zero_results(const Driver& driver, const HostSite& site, void* const* buffers,
                  void* stream) noexcept {
  for (std::size_t i = site.inputs; i < site.buffers; ++i)
    if (const std::size_t bytes = bytes_of(site, i)) driver.fill(buffers[i], 0, bytes, stream);
}

/// Enters the function on copies in pinned memory, and copies its results, or zeros, back.
bool enter_on_copies(Staging& staging, RunState& run, const HostSite& site, void* const* buffers,
                     int device, void* stream) {
  const Driver& driver = staging.driver();
  Places places(staging, site, site.buffers);
  if (places.fetch(driver, site, buffers, stream, true))
    driver.check(driver.synchronize(stream), "to compute the operands");
  places.block.done();
  const bool ok = host::enter_site({run, site, places.data.data(), device});
  if (!ok && !run.leaves_zeros) return false;
  for (std::size_t i = site.inputs; i < site.buffers; ++i) {
    const std::size_t bytes = bytes_of(site, i);
    if (bytes == 0) continue;
    places.block.used_by(stream);
    driver.check(driver.copy_to_device(buffers[i], places.data[i], bytes, stream),
                 "to copy a result to the device");
  }
  return ok;
}

bool enter_in_place(RunState& run, const HostSite& site, void* const* buffers, int device,
                    void* stream) {
  std::vector<void*> data;
  for (std::size_t i = 0; i < site.buffers; ++i) {
    data.push_back(buffers[i]);
    if (!data.back()) data.back() = nothing;
  }
  return host::enter_site({.run = run,
                           .site = site,
                           .data = data.data(),
                           .device = device,
                           .on_device = true,
                           .stream = stream});
}

/// Enters an asynchronous tap: its leaves come when its queue has room.
bool fetch_later(Staging& staging, RunState& run, const HostSite& site, void* const* buffers,
                 int device, void* stream) {
  const host::Fetch fetch = [&] {
    return std::make_unique<Arrival>(staging, site, buffers, stream);
  };
  return host::enter_site(
      {.run = run, .site = site, .data = nullptr, .device = device, .fetch = &fetch});
}

/// Fails the run with what was thrown on the way to or from the function.
void fail(RunState& run, const HostSite& site, int device, const std::exception& thrown) noexcept {
  ErrorCode code = ErrorCode::resource_exhausted;
  if (const auto* known = dynamic_cast<const Error*>(&thrown)) code = known->code();
  try {
    run.fail(code, site, device, std::current_exception(),
             host::describe(std::current_exception()));
  } catch (...) {
    run.request(host::Outcome::failed);  // not even memory for the text
  }
}

}  // namespace

void reserve(const Driver& driver, int ordinal, std::span<const HostSite> sites) noexcept try {
  std::vector<std::size_t> sizes;
  for (const HostSite& site : sites) {
    if (site.spec->memory != Memory::host) continue;
    std::vector<std::size_t> offsets;
    sizes.push_back(lay_out(site, site.fetched ? site.inputs : site.buffers, offsets));
  }
  if (sizes.empty()) return;
  void* context = nullptr;
  driver.check(driver.context_of_device(ordinal, &context), "to find the context of a device");
  const ContextScope scope(driver, context);
  staging_in(driver, context).reserve(sizes);
} catch (const std::exception& e) {
  log(LogLevel::info, "memory for a program's calls is taken as they come: {}", e.what());
}

bool enter_site(const Driver& driver, RunState& run, const HostSite& site, void* const* buffers,
                int device, void* stream) noexcept {
  try {
    Staging& staging = staging_of(driver, stream);
    const ContextScope scope(driver, staging.context());
    bool ok = false;
    if (site.spec->memory != Memory::host)
      ok = enter_in_place(run, site, buffers, device, stream);
    else if (site.fetched && !run.observer)
      ok = fetch_later(staging, run, site, buffers, device, stream);
    else if (!run.stop.load(std::memory_order_relaxed))
      return enter_on_copies(staging, run, site, buffers, device, stream);
    if (!ok && run.leaves_zeros) zero_results(driver, site, buffers, stream);
    return ok;
  } catch (const std::exception& e) {
    fail(run, site, device, e);
  }
  if (run.leaves_zeros) zero_results(driver, site, buffers, stream);
  return false;
}

}  // namespace postern::internal::gpu
