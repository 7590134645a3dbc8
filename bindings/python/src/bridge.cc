// The classes Bridge and Request, by which threads of Python answer calls.
#include "bridge.h"

#include <memory>
#include <utility>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "functions.h"
#include "handles.h"
#include "interpreter.h"
#include "lent.h"

namespace postern::python {
namespace {

struct FreeBridge {
  void operator()(pn_bridge* bridge) const {
    const Released others_run;
    pn_bridge_free(bridge);
  }
};

struct Bridge {
  std::unique_ptr<pn_bridge, FreeBridge> handle;
  Bridge() {
    pn_bridge* made = nullptr;
    check(pn_bridge_create(&made));
    handle.reset(made);
  }
};

/// A firing that waits; its memory stays until it is answered. One that is let go of fails: nobody
/// else could answer it, and its run would wait for ever.
struct Request {
  Request(nb::object from, std::uint64_t number, nb::object told, nb::object given, nb::object in)
      : bridge(std::move(from)),
        tag(number),
        info(std::move(told)),
        attributes(std::move(given)),
        operands(std::move(in)) {}
  Request(Request&& other) noexcept
      : bridge(std::move(other.bridge)),
        tag(other.tag),
        info(std::move(other.info)),
        attributes(std::move(other.attributes)),
        operands(std::move(other.operands)),
        open(std::exchange(other.open, false)) {}
  ~Request() {
    if (!open || !bridge.is_valid()) return;
    pn_bridge* const of = c();
    const Released others_run;
    pn_bridge_fail(of, tag, PN_CLOSED, "the request was let go of without an answer");
  }

  nb::object bridge;
  std::uint64_t tag = 0;
  nb::object info, attributes, operands;
  bool open = true;
  pn_bridge* c() const { return nb::inst_ptr<Bridge>(bridge)->handle.get(); }
};

nb::object next(nb::handle self, nb::handle timeout) {
  pn_bridge* const bridge = nb::cast<Bridge&>(self).handle.get();
  const pn_request* found = nullptr;
  const int code = waited([&](std::int64_t slice) { return pn_bridge_next(bridge, slice, &found); },
                          nanoseconds(timeout));
  if (code == PN_EMPTY) return nb::none();
  check(code);
  const std::uint64_t tag = found->tag;
  try {
    return nb::cast(Request{nb::borrow(self), tag, nb::cast(info_of(found->firing)),
                            attributes_of(found->firing), operands_of(found->firing)});
  } catch (...) {  // nobody else is given it
    {
      const Released others_run;
      pn_bridge_fail(bridge, tag, PN_THREW, "the request could not be shown to Python");
    }
    throw;
  }
}

void reply(Request& request, const nb::args& results) {
  std::vector<Described> described;
  described.reserve(results.size());
  std::vector<pn_array> arrays;
  for (const nb::handle result : results) arrays.push_back(described.emplace_back(result).c());
  pn_bridge* const bridge = request.c();
  int code = PN_OK;
  {
    const Released others_run;
    code = pn_bridge_reply(bridge, request.tag, arrays.data(), arrays.size());
  }
  if (code == PN_OK) request.open = false;
  check(code);
}

void fail(Request& request, nb::object exception) {
  if (!PyExceptionInstance_Check(exception.ptr())) {
    const nb::str told = nb::str("fail takes an exception, got {!r}").format(exception);
    PyErr_SetObject(PyExc_TypeError, told.ptr());
    throw nb::python_error();
  }
  const nb::object text = nb::module_::import_("postern._errors").attr("text_of")(exception);
  const char* const told = PyBytes_AS_STRING(text.ptr());
  pn_bridge* const bridge = request.c();
  void* const lent = lend(std::move(exception));
  int code = PN_OK;
  {
    const Released others_run;
    code = pn_bridge_fail_with(bridge, request.tag, PN_THREW, told, lent, give_back);
  }
  if (code == PN_OK) request.open = false;
  check(code);
}

void close(const Bridge& bridge) {
  const Released others_run;
  pn_bridge_close(bridge.handle.get());
}

void bind_request(nb::module_& m) {
  nb::class_<Request> type(
      m, "Request", "A firing that waits for an answer; its arrays live until it is answered.");
  type.def_ro("tag", &Request::tag)
      .def_prop_ro(
          "info", [](const Request& r) { return r.info; }, nb::sig("def info(self) -> Info"))
      .def_prop_ro(
          "attributes", [](const Request& r) { return r.attributes; },
          nb::sig("def attributes(self) -> dict[str, typing.Any]"))
      .def_prop_ro(
          "operands", [](const Request& r) { return r.operands; },
          nb::sig("def operands(self) -> list[numpy.typing.NDArray[typing.Any]]"))
      .def(
          "reply", &reply, nb::call_guard<Inside>(),
          nb::sig("def reply(self, *results: typing.Any) -> None"),
          "Answers with arrays, which are copied. Raises Error (BAD_RESULT) when they do not fit;\n"
          "the request is then still open.")
      .def("fail", &fail, nb::arg("exception"), nb::call_guard<Inside>(),
           nb::sig("def fail(self, exception: BaseException) -> None"),
           "Answers with a failure: the run ends with this exception as the cause.")
      .def_prop_ro(
          "stopped", [](const Request& r) { return pn_bridge_stopped(r.c(), r.tag) != 0; },
          "Whether nobody waits for the answer any more.");
  bind_handle(type);
}

}  // namespace

void bind_bridge(nb::module_& m) {
  bind_request(m);
  nb::class_<Bridge> type(
      m, "Bridge",
      "Serves names on threads of the caller's choice: `serve` them, then answer what `next`\n"
      "gives. fileno() is readable while requests wait, so that a bridge can be given to select\n"
      "and to event loops.");
  type.def(nb::init<>())
      .def(
          "serve",
          [](const Bridge& b, nb::handle name, bool replace) {
            check(pn_bridge_serve(b.handle.get(), text_of(name).c_str(), replace));
          },
          nb::arg("name"), nb::arg("replace") = false,
          nb::sig("def serve(self, name: str, replace: bool = False) -> None"),
          "Makes the bridge the function of that name. Raises Error when it is taken, unless\n"
          "`replace`.")
      .def("next", &next, nb::arg("timeout") = nb::none(), nb::call_guard<Inside>(),
           nb::sig("def next(self, timeout: float | None = None) -> Request | None"),
           "The oldest request that nobody has taken, or None when none came within `timeout`\n"
           "seconds. Raises CallbackError once closed.")
      .def("fileno", [](const Bridge& b) { return pn_bridge_descriptor(b.handle.get()); })
      .def("close", &close, "Fails what waits and what comes later.")
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> Bridge"))
      .def(
          "__exit__", [](const Bridge& b, const nb::args&) { close(b); },
          nb::sig("def __exit__(self, *exception: object) -> None"));
  bind_handle(type);
}

}  // namespace postern::python
