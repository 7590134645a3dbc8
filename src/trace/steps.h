// Whether a thread that traces goes on, as others see it.
#pragma once
#include <atomic>
#include <cstdint>

namespace postern::internal {

/// Counts the operations that this thread has ever written down. Another may read it while this one
/// lives.
const std::atomic<std::uint64_t>& traced_steps();

}  // namespace postern::internal
