// postern._postern: libpostern.so for Python.
#include <nanobind/nanobind.h>
#include <postern/c.h>

#include "arrays.h"
#include "bridge.h"
#include "errors.h"
#include "functions.h"
#include "guest.h"
#include "interpreter.h"
#include "lent.h"
#include "listen.h"
#include "programs.h"
#include "tensor.h"

#ifdef Py_GIL_DISABLED
#error "Postern's Python package does not support interpreters without a global lock"
#endif

using namespace postern::python;

namespace {

void configure(int cpu_devices, nb::handle plugin, nb::handle cache_dir,
               std::uint64_t tap_queue_bytes) {
  const std::string plugin_path = text_of(plugin), cache_path = text_of(cache_dir);
  const pn_options options{sizeof options, cpu_devices, plugin_path.c_str(), cache_path.c_str(),
                           tap_queue_bytes};
  check(pn_configure_with(&options));
}

/// Without Ctrl-C: on the main thread it is for postern.barrier to see to that.
bool barrier(std::int64_t limit) {
  int code = PN_OK;
  {
    const Released others_run(Released::For::wait);
    code = pn_barrier(limit);
  }
  if (code == PN_EMPTY) return false;
  check(code);
  return true;
}

}  // namespace

NB_MODULE(_postern, m) {
  m.attr("supported") = !in_sub_interpreter();
  if (in_sub_interpreter()) return;  // the package says it: what is thrown here is told otherwise
  nb::set_leak_warnings(false);      // functions are registered for as long as the process lives
  import_numpy();
  import_threading();
  watch_forks();
  m.def("library_version", [] { return POSTERN_VERSION; });
  m.def("version", &pn_version);
  m.def("configure", &configure, nb::arg("cpu_devices"), nb::arg("plugin"), nb::arg("cache_dir"),
        nb::arg("tap_queue_bytes"));
  m.def("barrier", &barrier, nb::arg("nanoseconds"), nb::call_guard<Inside>());
  m.def("nanoseconds", &nanoseconds, nb::arg("seconds").none(),
        nb::sig("def nanoseconds(seconds: float | None) -> int"));
  m.def("close_interpreter", &close_interpreter, nb::arg("seconds"));
  m.def("lent_count", [] {
    drop_given_back();
    return lent_count();
  });
  bind_tensor(m);
  bind_programs(m);
  bind_listen(m);
  bind_functions(m);
  bind_bridge(m);
  bind_guest(m);
}
