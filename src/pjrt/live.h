// What stands on clients and must go before them.
#pragma once
#include <atomic>
#include <cstdint>

namespace postern::pjrt {

/// Buffers and executables that live, of all clients.
inline std::atomic<std::int64_t> live_objects{0};

}  // namespace postern::pjrt
