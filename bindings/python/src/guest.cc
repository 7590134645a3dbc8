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

}  // namespace

void bind_guest(nb::module_& m) {
  m.def("guest", &guest, nb::sig("def guest() -> dict[str, typing.Any]"));
  m.def("guest_failure", [](std::uint64_t number) { check(pn_guest_failure(number)); });
  m.def("inside_device", &pn_inside_device);
  m.def("guest_device", &pn_guest_device);
  m.def("load_library", &load_library, nb::arg("path").none());
  m.def("registered", &registered, nb::sig("def registered() -> list[str]"));
}

}  // namespace postern::python
