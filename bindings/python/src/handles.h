// What objects that stand for one of the library's have in common.
#pragma once
#include <nanobind/nanobind.h>

namespace postern::python {

namespace nb = nanobind;

/// The library's object is freed once, so there is one Python object for it, which belongs to this
/// process: copies are itself, and it cannot be pickled.
template <class T>
void bind_handle(nb::class_<T>& type) {
  const auto self_again = [](nb::handle self) { return nb::borrow(self); };
  type.def("__copy__", self_again, nb::sig("def __copy__(self) -> typing_extensions.Self"))
      .def(
          "__deepcopy__", [](nb::handle self, nb::handle) { return nb::borrow(self); },
          nb::arg("memo"),
          nb::sig("def __deepcopy__(self, memo: typing.Any) -> typing_extensions.Self"))
      .def(
          "__reduce__",
          [](nb::handle self) -> nb::object {
            const nb::str told = nb::str(
                                     "a {} cannot be pickled: it belongs to its process; load the "
                                     "program there, and "
                                     "send arrays")
                                     .format(self.type().attr("__name__"));
            PyErr_SetObject(PyExc_TypeError, told.ptr());
            throw nb::python_error();
          },
          nb::sig("def __reduce__(self) -> typing.NoReturn"));
}

}  // namespace postern::python
