// Bridges: host functions that are served on threads of the caller's choice.
#pragma once
#include <nanobind/nanobind.h>

namespace postern::python {

namespace nb = nanobind;

void bind_bridge(nb::module_& m);

}  // namespace postern::python
