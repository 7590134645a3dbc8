// The CPU: virtual devices, host memory.
#include "platform/cpu/cpu.h"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "core/mutex.h"
#include "host/handler.h"
#include "host/text_file.h"
#include "pjrt/ffi.h"
#include "platform/find_plugin.h"
#include "platform/gpu/enter.h"
#include "platform/gpu/handler.h"

namespace postern::internal::platforms {

namespace {

/// Flags of XLA that no option of a compilation has: a plug-in reads them in the environment, once,
/// when its first client is made. It ends the process when it does not know one, so they are for
/// versions that are known to have them.
struct Flags {
  int first_minor, last_minor;
  std::string_view text;
};
constexpr Flags flags[] = {
    // Devices that wait in a collective for one whose host function takes long: XLA would end the
    // process after a minute. Deadlines and cancel() are what ends such runs.
    {pjrt::required_api_minor, pjrt::tested_api_minor,
     "--xla_cpu_collective_call_warn_stuck_timeout_seconds=2147483647 "
     "--xla_cpu_collective_call_terminate_timeout_seconds=2147483647 "},
    // Compiling a product and what stands beside it, a sum or another product, ends the process
    // there: YNNPACK gets single products, and fuses nothing.
    {106, 106, "--xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT "},
};

/// Sets them while it lives. What the user gave comes after them and wins; a file of flags stays.
class WithFlags {
 public:
  explicit WithFlags(const pjrt::Plugin& plugin) : lock_(guard()) {
    if (const char* given = std::getenv(name)) {
      const char first = given[std::strspn(given, " \t\r\n")];
      if (first != '-' && first != '\0') return;  // a file's name, to XLA
      before_ = given;
    }
    std::string ours;
    for (const Flags& some : flags)
      if (some.first_minor <= plugin.api_minor() && plugin.api_minor() <= some.last_minor)
        ours += some.text;
    if (ours.empty()) return;
    was_set_ = ::setenv(name, (ours + before_.value_or("")).c_str(), 1) == 0;
  }
  ~WithFlags() {
    if (!was_set_) return;
    if (before_)
      ::setenv(name, before_->c_str(), 1);
    else
      ::unsetenv(name);
  }
  WithFlags(const WithFlags&) = delete;

 private:
  static constexpr const char* name = "XLA_FLAGS";
  static Mutex& guard() {
    static auto& one = *new Mutex;
    return one;
  }
  const std::scoped_lock<Mutex> lock_;
  std::optional<std::string> before_;
  bool was_set_ = false;
};

/// Brings glibc's malloc to where it comes by itself once an array of 32 MiB was freed: it leaves
/// up to 64 MiB of what is freed in the heap. Until then each run gets the memory of its results
/// from the system, page by page, which takes as long as a third of a training step. What the
/// environment or mallopt say of this stands, and other mallocs take no notice.
void keep_freed_memory() {
  constexpr std::size_t largest = (std::size_t{32} << 20) - 8192;  // with malloc's own words
  void* volatile block = std::malloc(largest);
  std::free(block);
}

}  // namespace

std::string cpu_plugin(const Platform&) {
  const std::filesystem::path installed = installed_beside("xla_cpu_pjrt.so");
  if (host::is_there(installed)) return installed.string();
  const std::string built = POSTERN_BUILD_PLUGIN;  // empty: Postern was built without one
  if (host::is_there(built)) return built;
  refuse_plugin(cpu.name, installed.string() + (built.empty() ? "" : " and " + built));
}

pjrt::Client cpu_client(const pjrt::Plugin& plugin, int devices) {
  // XLA takes less as its own default, in silence.
  if (devices < 1)
    throw Error(ErrorCode::invalid_argument,
                "a CPU client needs at least one device; came " + std::to_string(devices));
  keep_freed_memory();
  const WithFlags known(plugin);
  return pjrt::Client(plugin, {{"cpu_device_count", std::int64_t{devices}}});
}

void register_cpu_handlers(const pjrt::Plugin& plugin, int number) {
  if (const gpu::Driver* driver = gpu::stood_in())
    return gpu::register_handlers(plugin, number, *driver, cpu.xla_name);
  const host::Targets targets = host::targets_of(number);
  for (const char* name : {host::call_target, host::recorded_target})
    pjrt::register_handler(plugin, name, targets.call, cpu.xla_name);
  pjrt::register_handler(plugin, host::ask_target, targets.ask, cpu.xla_name);
}

void cpu_reserve(const pjrt::Device&, std::span<const host::HostSite> sites) noexcept {
  if (const gpu::Driver* driver = gpu::stood_in()) gpu::reserve(*driver, 0, sites);
}

guest::Handlers cpu_guest_handlers() {
  static constinit guest::Home home{.platform = cpu.name};
  if (const gpu::Driver* driver = gpu::stood_in()) return gpu::guest_handlers(*driver, cpu.name);
  return guest::handlers<home>();
}

}  // namespace postern::internal::platforms
