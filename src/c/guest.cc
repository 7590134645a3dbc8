// The C interface: options, libraries, C++ functions, and programs of another XLA.
#include "guest/guest.h"

#include <postern/guest.h>

#include "c/c_api.h"
#include "core/check.h"
#include "host/run_state.h"
#include "platform/platform.h"

using namespace postern;
using namespace postern::internal;
using c::guarded;

int pn_configure_with(const pn_options* options) {
  return guarded([&] {
    check(options && options->size >= sizeof(pn_options),
          "pn_configure_with: options is NULL, or its size is not set");
    Config config;
    config.cpu_devices = options->cpu_devices;
    if (options->plugin) config.plugin = options->plugin;
    if (options->cache_dir) config.cache_dir = options->cache_dir;
    config.tap_queue_bytes = options->tap_queue_bytes;
    configure(config);
  });
}

int pn_program_loops(const pn_program* program) {
  if (!program) return -1;
  return program->program.stablehlo().find(".while") != std::string::npos;
}

int pn_load_library(const char* path) {
  return guarded(path != nullptr, "pn_load_library: path", [&] { load_library(path); });
}

const char* pn_registered_function(size_t index) {
  thread_local std::vector<std::string> names;  // as they were when the first was asked for
  const auto look = [&] {
    if (index == 0) names = registered_functions();
  };
  if (guarded(look) != PN_OK) return nullptr;
  return index < names.size() ? names[index].c_str() : nullptr;
}

int pn_register_callee(const char* name, const void* callee, int replace) {
  return guarded(name && callee, "pn_register_callee: name or callee", [&] {
    register_function(name, *static_cast<const Callee*>(callee), {.replace = replace != 0});
  });
}

static pn_guest_parts parts(const guest::Handlers& handlers) {
  return {reinterpret_cast<void*>(handlers.instantiate), reinterpret_cast<void*>(handlers.execute),
          handlers.type_id, handlers.type_info};
}
int pn_guest_handlers(const char* platform, pn_guest_parts* out) {
  return guarded(platform && out, "pn_guest_handlers: platform or out", [&] {
    const platforms::Platform& on = platforms::named(platform, "pn_guest_handlers");
    if (!on.guest_handlers)
      throw_type_error(fmt::format(
          "pn_guest_handlers: nobody knows how programs on {} would call the host", platform));
    *out = parts(on.guest_handlers());
  });
}
static pn_guest_parts default_parts() { return parts(platforms::all()[0]->guest_handlers()); }
void* pn_guest_handler(void) { return default_parts().execute; }
void* pn_guest_instantiate(void) { return default_parts().instantiate; }
void* pn_guest_state_type(void) { return default_parts().state_type; }
void* pn_guest_state_info(void) { return default_parts().state_info; }

int pn_inside_device(void) { return host::nesting() ? host::nesting()->device : -1; }

int pn_guest_device(void) { return guest::waiting().device; }
const char* pn_guest_platform(void) {
  const guest::Home* const home = guest::waiting().home;
  return home ? home->platform.data() : nullptr;
}

uint64_t pn_guest_calls(void) { return guest::calls_made(); }

int pn_guest_failure(uint64_t number) {
  return guarded([&] {
    if (const std::exception_ptr failure = guest::failure(number)) std::rethrow_exception(failure);
    throw Error(ErrorCode::not_found,
                fmt::format("there is no failure {}, or none any more", number));
  });
}
