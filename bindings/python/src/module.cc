// postern._postern: libpostern.so for Python.
#include <nanobind/nanobind.h>
#include <postern/c.h>

#include "arrays.h"
#include "lent.h"
#include "tensor.h"

NB_MODULE(_postern, m) {
  using namespace postern::python;
  import_numpy();
  m.def("version", &pn_version, "The version of the C interface that the library has.");
  m.def("lent_count", [] {
    drop_given_back();
    return lent_count();
  });
  bind_tensor(m);
}
