// Python functions as host functions.
#pragma once
#include <nanobind/nanobind.h>
#include <postern/c.h>

#include <string>
#include <vector>

namespace postern::python {

namespace nb = nanobind;

/// What a function that has a parameter `info` is told of the firing.
struct Info {
  std::string function, site;
  int device = 0;
  std::uint64_t run = 0;
  std::int64_t element = -1;
  std::vector<std::int64_t> coordinates;
};

Info info_of(const pn_firing& firing);
/// A dict of the attributes, which is the caller's.
nb::object attributes_of(const pn_firing& firing);
/// A list of read-only arrays, which die with the firing.
nb::list operands_of(const pn_firing& firing);

/// What C enters of a Python function, a capsule of C included, and its `user`, which is given
/// back.
struct ForC {
  pn_function function;
  void* user;
};
/// `info`: it wants an Info. Raises TypeError for what cannot be called.
ForC for_c(nb::object function, bool info);

void bind_functions(nb::module_& m);

}  // namespace postern::python
