// The library's handlers for JAX's XLA as capsules, and what postern.jax asks beside.
#include "guest.h"

#include <postern/guest.h>

#include <unordered_set>

#include "errors.h"
#include "interpreter.h"

namespace postern::python {
namespace {

constexpr const char* handler_capsule = "xla._CUSTOM_CALL_TARGET";

nb::dict guest(const char* platform) {
  pn_guest_parts found{};
  check(pn_guest_handlers(platform, &found));
  nb::dict parts;
  parts["execute"] = nb::capsule(found.execute, handler_capsule);
  parts["instantiate"] = nb::capsule(found.instantiate, handler_capsule);
  parts["type_id"] = nb::capsule(found.state_type);
  parts["type_info"] = nb::capsule(found.state_info);
  return parts;
}

/// The platform and the device whose program waits for this thread, or None.
nb::object guest_place() {
  const char* const platform = pn_guest_platform();
  if (!platform) return nb::none();
  return nb::make_tuple(platform, pn_guest_device());
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

/// A jitted function that a thread is in, and how many calls the thread had made before.
struct Started {
  PyObject* function;
  std::uint64_t calls;
  bool slowly = false;  // by JAX's Python, which knows of effects
  Started* outer;
};
constinit thread_local Started* innermost = nullptr;

/// Functions with programs whose effects JAX's fast path does not know of; what waits for a run.
/// Under the interpreter's lock.
std::unordered_set<std::uintptr_t>& watched() {
  static auto* const kept = new std::unordered_set<std::uintptr_t>;
  return *kept;
}
PyObject* settle = nullptr;

/// Jitted functions of one function share what JAX has compiled.
nb::object shared(nb::handle jitted) { return nb::getattr(jitted, "_fun", jitted); }

/// Whether a run of it may be under way: it made no call on this thread.
bool is_open(const Started& run) {
  return !run.slowly && !watched().empty() && pn_guest_calls() == run.calls &&
         watched().contains(reinterpret_cast<std::uintptr_t>(shared(run.function).ptr()));
}

/// JAX raises what XLA says as ValueError here, where it raises JaxRuntimeError everywhere else.
PyObject* start(PyObject* function, PyObject* const* arguments, std::size_t count,
                PyObject* names) {
  Started run{function, pn_guest_calls(), false, innermost};
  innermost = &run;
  PyObject* out = started(function, arguments, count, names);
  innermost = run.outer;
  if (out && is_open(run)) [[unlikely]] {
    PyObject* const settled = PyObject_CallFunctionObjArgs(settle, function, out, nullptr);
    if (!settled) Py_CLEAR(out);
    Py_XDECREF(settled);
  }
  if (out || !PyErr_ExceptionMatches(PyExc_ValueError)) return out;
  nb::python_error error;                                                // takes it
  const nb::object text = nb::steal(PyObject_Str(error.value().ptr()));  // which the user may write
  nb::object found;
  if (text.is_valid()) found = nb::steal(PyObject_CallOneArg(failure_of, text.ptr()));
  if (!found.is_valid() || found.is_none()) {
    PyErr_Clear();
    error.restore();
  } else {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(found.ptr())), found.ptr());
  }
  return nullptr;
}

/// JAX's Python is in the thread's innermost jitted function. Returns that, if the run that it has
/// made has ended, as its calls on this thread show; else None.
nb::object ended_at_once() {
  if (!innermost) return nb::none();
  innermost->slowly = true;
  if (pn_guest_calls() == innermost->calls) return nb::none();
  return nb::borrow(innermost->function);
}

void watch(std::uintptr_t function, nb::handle by) {
  if (by.is_none()) {
    watched().erase(function);
    return;
  }
  if (!settle) settle = nb::borrow(by).release().ptr();
  watched().insert(function);
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
  m.def("guest", &guest, nb::arg("platform"),
        nb::sig("def guest(platform: str) -> dict[str, typing.Any]"));
  m.def("guest_failure", [](std::uint64_t number) { check(pn_guest_failure(number)); });
  m.def("tell_failures", &tell_failures, nb::arg("jitted"), nb::arg("finder"),
        nb::sig("def tell_failures(jitted: typing.Any, finder: typing.Any) -> None"),
        "JAX's function `jitted` raises what `finder` makes of the text of a ValueError, if that "
        "is not None.");
  m.def("ended_at_once", &ended_at_once, nb::sig("def ended_at_once() -> typing.Any"),
        "The jitted function that JAX's Python runs now, if its run has ended; else None.");
  m.def("watch", &watch, nb::arg("function"), nb::arg("by").none(),
        nb::sig("def watch(function: int, by: typing.Any) -> None"),
        "`by(jitted, results)` is called for runs of what wraps the function of that id, if JAX's "
        "fast path starts them, and they may not have ended; None: no more.");
  m.def("inside_device", &pn_inside_device);
  m.def("guest_place", &guest_place,
        nb::sig("def guest_place() -> typing.Optional[tuple[str, int]]"));
  m.def("load_library", &load_library, nb::arg("path").none());
  m.def("registered", &registered, nb::sig("def registered() -> list[str]"));
}

}  // namespace postern::python
