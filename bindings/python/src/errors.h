// Codes of the C interface as Python's exceptions.
#pragma once
#include <nanobind/nanobind.h>
#include <postern/c.h>

namespace postern::python {

namespace nb = nanobind;

/// Throws the exception of postern._errors that a code stands for, with the thread's last error as
/// its text and the failed function's own exception as its cause; nothing for PN_OK.
void check(int code);
/// The same with another text and no cause.
[[noreturn]] void raise_error(int code, const char* text);

}  // namespace postern::python
