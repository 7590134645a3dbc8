// Guest: what postern.jax gives to JAX's XLA.
#pragma once
#include <nanobind/nanobind.h>

namespace postern::python {

namespace nb = nanobind;

void bind_guest(nb::module_& m);

}  // namespace postern::python
