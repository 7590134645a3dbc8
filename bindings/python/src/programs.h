// Programs and runs.
#pragma once
#include <nanobind/nanobind.h>

namespace postern::python {

namespace nb = nanobind;

void bind_programs(nb::module_& m);

}  // namespace postern::python
