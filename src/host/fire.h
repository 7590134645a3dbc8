// Firing a site: the way from a device's buffers to the user's function and back.
#pragma once
#include "core/mutex.h"
#include "core/thread_end.h"
#include "host/queue.h"
#include "host/run_state.h"

namespace postern::internal::host {

/// Runs the function on these leaves; false if it failed, and how.
bool enter_function(const HostSite& site, const detail::Firing& firing, std::exception_ptr& error,
                    ErrorCode& code) noexcept;

/// Fails the run with the exception that is being handled; false.
bool keep_thrown(RunState& run, const HostSite& site, int device) noexcept;
/// Fails it because the function tried to end the thread; false.
bool keep_thread_end(RunState& run, const HostSite& site, int device) noexcept;

/// Enters the function on this thread, on XLA's own memory. `info`: null where it is not told.
/// Inline, for the handler's short way.
[[gnu::always_inline]] inline bool enter_here(RunState& run, const HostSite& site,
                                              void* const* data, int device,
                                              const TapInfo* info) noexcept {
  const Nesting* const outer = nesting();
  const Nesting here{outer, &run, &site, device, outer ? outer->depth + 1 : 1};
  NestingScope scope(&here);
  enters_users_code();
  try {
    site.invoke(site.object,
                {site.leaves.data(), data, site.operands, site.results, info, &site.declared});
    return true;
  } catch (const abi::__forced_unwind&) {
    keep_thread_alive();
    return keep_thread_end(run, site, device);
  } catch (...) {
    return keep_thrown(run, site, device);
  }
}

/// Enters the site's function for the buffers of one execution (operands, mask, results; never null
/// pointers) in the way that the site asks for. False when the run must not go on: it failed now or
/// before; results are then zeroed if the run is poisoned. Never throws, never waits without a
/// limit or a waker. Allocates nothing unless the site asks for copies or the function throws.
bool fire(RunState& run, const HostSite& site, void* const* buffers, int device) noexcept;
/// Fires on buffers that hold elements of less than a byte as XLA does; the function sees one a
/// byte.
bool fire_packed(RunState& run, const HostSite& site, void* const* buffers, int device) noexcept;
/// Fires an asynchronous tap whose leaves are not in host memory: `fetch` brings them there when
/// the queue has room.
bool fire_fetched(RunState& run, const HostSite& site, int device, const Fetch& fetch) noexcept;
/// Fires a call with Memory::device of a program on a GPU: the function is given device pointers.
/// Results are the caller's to zero.
bool fire_on_device(RunState& run, const HostSite& site, void* const* buffers, int device,
                    void* stream) noexcept;
/// Returns what is said of a function that has not returned in time.
std::string too_late(const SiteSpec& spec, bool by_deadline);
/// Zeroes the results of a failing run's call.
void zero_results(const HostSite& site, void* const* buffers) noexcept;
/// Returns whether each element of less than a byte, held one a byte, is in its dtype's range;
/// fails the run otherwise.
bool results_fit(RunState& run, const HostSite& site, void* const* buffers, int device);

}  // namespace postern::internal::host
