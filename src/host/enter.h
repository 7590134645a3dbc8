// Firing a site: the way from a device's buffers to the user's function and back.
#pragma once
#include "core/thread_end.h"
#include "host/stage.h"

namespace postern::internal::host {

/// Runs the site's function on these leaves. Returns false where it threw or tried to end its
/// thread, with the exception in `error` and its kind in `code`, which else stay as they are.
bool enter_function(const HostSite& site, const detail::Firing& firing, std::exception_ptr& error,
                    ErrorCode& code) noexcept;

/// Fails the run with this exception.
void keep_failure(RunState& run, const HostSite& site, int device, const std::exception_ptr& error,
                  ErrorCode code) noexcept;
/// Fails the run with the exception that is being handled; false.
bool keep_thrown(RunState& run, const HostSite& site, int device) noexcept;
/// Fails it likewise, where the system had no memory or thread; false.
bool keep_exhausted(const Invocation& i) noexcept;
/// Fails it because the function tried to end the thread; false.
bool keep_thread_end(RunState& run, const HostSite& site, int device) noexcept;

/// The element that this thread is at, of a batch whose elements are called side by side; else -1.
extern constinit thread_local std::int64_t one_of_many;

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
    const auto enter = [&] {
      site.invoke(site.object,
                  {site.leaves.data(), data, site.operands, site.results, info, &site.declared});
    };
    return keeps_thread(enter) || keep_thread_end(run, site, device);
  } catch (...) {
    return keep_thrown(run, site, device);
  }
}

/// Enters the site's function, through its stages. False when the run must not go on: it failed now
/// or before; results in host memory are then zeroed if the run leaves zeros. Never throws, never
/// waits without a limit or a waker. Allocates nothing unless the site asks for copies or the
/// function throws. No pointer to a buffer may be null.
bool enter_site(Invocation i) noexcept;
/// Returns what is said of a function that has not returned in time.
std::string too_late(const SiteSpec& spec, bool by_deadline);
/// Writes to the log if the function took longer than its site says.
void warn_if_slow(const SiteSpec& spec, std::chrono::nanoseconds took);
/// Zeroes the results of a failing run's call.
void zero_results(const HostSite& site, void* const* buffers) noexcept;

}  // namespace postern::internal::host
