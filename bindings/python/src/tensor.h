// Tensor: an array that the library holds.
#pragma once
#include <nanobind/nanobind.h>
#include <postern/c.h>

#include <memory>

namespace postern::python {

namespace nb = nanobind;

struct FreeTensor {
  void operator()(pn_tensor* tensor) const { pn_tensor_free(tensor); }
};

struct Tensor {
  std::unique_ptr<pn_tensor, FreeTensor> handle;
};

/// A tensor of an array, a number, or an object with __dlpack__; row-major memory is lent, other is
/// copied.
Tensor make_tensor(nb::handle value);
/// The elements as a read-only array, which keeps the tensor alive. Waits for them.
nb::object numpy_of(nb::handle tensor);

void bind_tensor(nb::module_& m);

}  // namespace postern::python
