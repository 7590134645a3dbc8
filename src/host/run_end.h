// What waits for the end of a run.
#pragma once
#include <postern/detail/api.h>

#include <cstdint>
#include <functional>

namespace postern::internal::host {

/// Calls `f`, on any thread, when the run of that number has ended, well or not; asked inside an
/// invocation that the run waits for.
POSTERN_API void when_run_ends(std::uint64_t run, std::function<void(bool well)> f);

/// Returns whether the thread is inside a listener of an asynchronous tap.
POSTERN_API bool in_delivery();

/// Tells that the run is over.
void run_has_ended(std::uint64_t run, bool well) noexcept;

}  // namespace postern::internal::host
