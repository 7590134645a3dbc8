// The CPU: virtual devices, host memory.
#include "platform/cpu/cpu.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "core/mutex.h"
#include "host/handler.h"
#include "pjrt/ffi.h"
#include "platform/find_plugin.h"
#include "platform/gpu/handler.h"

namespace postern::internal::platforms {

namespace {

/// Devices that wait in a collective for one whose host function takes long: XLA would end the
/// process after a minute. Deadlines and cancel() are what ends such runs. XLA has no option of the
/// compilation for it, only flags in the environment, which a plug-in reads once, when its first
/// client is made; it ends the process when it does not know one, so they are for the version only
/// that is known to have them. What the user gave comes after them and wins.
class WithoutTimeouts {
 public:
  explicit WithoutTimeouts(const pjrt::Plugin& plugin) : lock_(guard()) {
    if (plugin.api_minor() != pjrt::required_api_minor) return;
    if (const char* given = std::getenv(name)) {
      if (given[std::strspn(given, " \t\r\n")] != '-') return;  // the name of a file
      before_ = given;
    }
    const std::string flags =
        "--xla_cpu_collective_call_warn_stuck_timeout_seconds=2147483647 "
        "--xla_cpu_collective_call_terminate_timeout_seconds=2147483647 ";
    set_ = ::setenv(name, (flags + before_.value_or("")).c_str(), 1) == 0;
  }
  ~WithoutTimeouts() {
    if (!set_) return;
    if (before_)
      ::setenv(name, before_->c_str(), 1);
    else
      ::unsetenv(name);
  }
  WithoutTimeouts(const WithoutTimeouts&) = delete;

 private:
  static constexpr const char* name = "XLA_FLAGS";
  static Mutex& guard() {
    static auto& one = *new Mutex;
    return one;
  }
  const std::scoped_lock<Mutex> lock_;
  std::optional<std::string> before_;
  bool set_ = false;
};

}  // namespace

void any_machine() {}

std::string cpu_plugin() {
  namespace fs = std::filesystem;
  const fs::path installed = installed_beside("xla_cpu_pjrt.so");
  if (fs::exists(installed)) return installed.string();
  const std::string built = POSTERN_BUILD_PLUGIN;  // empty: Postern was built without one
  if (fs::exists(built)) return built;
  refuse_plugin(cpu.name, installed.string() + (built.empty() ? "" : " and " + built));
}

pjrt::Client cpu_client(const pjrt::Plugin& plugin, int devices) {
  // XLA takes less as its own default, in silence.
  if (devices < 1)
    throw Error(ErrorCode::invalid_argument,
                "a CPU client needs at least one device; came " + std::to_string(devices));
  const WithoutTimeouts flags(plugin);
  return pjrt::Client(plugin, {{"cpu_device_count", std::int64_t{devices}}});
}

void register_cpu_handlers(const pjrt::Plugin& plugin) {
  if (const gpu::Driver* driver = gpu::stood_in())
    return gpu::register_handlers(plugin, *driver, cpu.xla_name);
  pjrt::register_handler(plugin, host::call_target, host::handle_call, cpu.xla_name);
  pjrt::register_handler(plugin, host::ask_target, host::handle_ask, cpu.xla_name);
}

}  // namespace postern::internal::platforms
