// The library's handlers for JAX's XLA as capsules, and what postern.jax asks beside.
#include "guest.h"

#include <postern/c.h>

#include "errors.h"
#include "interpreter.h"

namespace postern::python {
namespace {

constexpr const char* handler_capsule = "xla._CUSTOM_CALL_TARGET";

nb::dict guest() {
  nb::dict parts;
  parts["execute"] = nb::capsule(pn_guest_handler(), handler_capsule);
  parts["instantiate"] = nb::capsule(pn_guest_instantiate(), handler_capsule);
  parts["type_id"] = nb::capsule(pn_guest_state_type());
  parts["type_info"] = nb::capsule(pn_guest_state_info());
  return parts;
}

nb::list registered() {
  nb::list names;
  for (std::size_t i = 0; const char* const name = pn_registered_function(i); ++i)
    names.append(nb::str(name));
  return names;
}

void load_library(nb::handle path) {
  const std::string text = text_of(path);
  int code = PN_OK;
  {
    const Released others_run;  // its load function is the user's
    code = pn_load_library(text.c_str());
  }
  check(code);
}

/// What JAX's fast path calls for a jitted function, and what finds the failure that a text tells.
vectorcallfunc started = nullptr;
PyObject* failure_of = nullptr;

/// JAX raises what XLA says as ValueError here, where it raises JaxRuntimeError everywhere else.
PyObject* start(PyObject* function, PyObject* const* arguments, std::size_t count,
                PyObject* names) {
  PyObject* const out = started(function, arguments, count, names);
  if (out || !PyErr_ExceptionMatches(PyExc_ValueError)) return out;
  nb::python_error error;  // takes it
  const nb::object found = nb::steal(PyObject_CallOneArg(failure_of, nb::str(error.value()).ptr()));
  if (!found.is_valid() || found.is_none()) {
    PyErr_Clear();
    error.restore();
  } else {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(found.ptr())), found.ptr());
  }
  return nullptr;
}

void tell_failures(nb::handle jitted, nb::handle finder) {
  const Py_ssize_t offset = Py_TYPE(jitted.ptr())->tp_vectorcall_offset;
  if (offset <= 0) return;
  auto& entry = *reinterpret_cast<vectorcallfunc*>(reinterpret_cast<char*>(jitted.ptr()) + offset);
  if (entry == start || (started && entry != started)) return;
  started = entry;
  if (!failure_of) failure_of = nb::borrow(finder).release().ptr();
  entry = start;
}

}  // namespace

void bind_guest(nb::module_& m) {
  m.def("guest", &guest, nb::sig("def guest() -> dict[str, typing.Any]"));
  m.def("guest_failure", [](std::uint64_t number) { check(pn_guest_failure(number)); });
  m.def("tell_failures", &tell_failures, nb::arg("jitted"), nb::arg("finder"),
        nb::sig("def tell_failures(jitted: typing.Any, finder: typing.Any) -> None"),
        "JAX's function `jitted` raises what `finder` makes of the text of a ValueError, if that "
        "is not None.");
  m.def("inside_device", &pn_inside_device);
  m.def("guest_device", &pn_guest_device);
  m.def("load_library", &load_library, nb::arg("path").none());
  m.def("registered", &registered, nb::sig("def registered() -> list[str]"));
}

}  // namespace postern::python
