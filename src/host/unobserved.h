// Failures that nobody has seen yet: of runs that nobody waited for, and of asynchronous taps.
#pragma once
#include <postern/detail/api.h>

#include <exception>

namespace postern::internal::host {

POSTERN_API void keep_unobserved(std::exception_ptr failure);

/// Throws the first one with the others listed, and forgets them all; returns when there is none.
void throw_unobserved();

/// Prints one line on stderr for each that was kept.
void print_unobserved();

}  // namespace postern::internal::host
