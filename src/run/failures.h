// Waiting for everything, and the end of the process.
#pragma once
#include <chrono>

namespace postern::run {

/// When the process ends, by returning from main, std::exit, or an exception that nobody catches: waits at most so long for runs in flight
/// and undelivered taps, then prints the unseen failures. Called once.
void drain_at_exit(std::chrono::milliseconds limit);

}  // namespace postern::run
