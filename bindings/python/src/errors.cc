// Raises what the C interface's last error says, with the cause that it has kept.
#include "errors.h"

#include "lent.h"

namespace postern::python {
namespace {

[[noreturn]] void raise_with(int code, const nb::object& text, const nb::object& cause) {
  const nb::object made = nb::module_::import_("postern._errors").attr("error")(code, text, cause);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  throw nb::python_error();
}

nb::object text_of(const char* text) {
  return nb::steal(PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(strlen(text)), "replace"));
}

}  // namespace

void check(int code) {
  if (code == PN_OK) return;
  const nb::object text = text_of(pn_last_error());
  const nb::object cause = object_of(pn_last_cause());
  pn_clear_error();  // which would keep the cause alive, and all that its traceback holds
  raise_with(code, text, cause);
}

void raise_error(int code, const char* text) { raise_with(code, text_of(text), nb::none()); }

}  // namespace postern::python
