// Failures that nobody has seen yet, for barrier() and the end of the process.
#pragma once
#include <chrono>
#include <exception>

namespace postern::run {

void keep_unseen(std::exception_ptr failure);

/// When the process ends: waits at most so long for runs in flight, then prints the unseen failures. Called once.
void drain_at_exit(std::chrono::milliseconds limit);

}  // namespace postern::run
