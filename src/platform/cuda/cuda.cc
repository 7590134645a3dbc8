// NVIDIA's GPUs: finding the plug-in, making clients.
#include "platform/cuda/cuda.h"

#include <postern/error.h>

#include <atomic>
#include <optional>

#include "core/check.h"
#include "core/text.h"
#include "host/text_file.h"
#include "platform/find_plugin.h"
#include "platform/gpu/enter.h"
#include "platform/gpu/handler.h"
#include "platform/nodes.h"

namespace postern::internal::platforms {

void require_cuda() {
  // Programs would then be run on a thread of XLA's, one after the other: one that a host function
  // runs would wait for its own. `calls_inline` counts on the default, too.
  constexpr const char* variable = "PJRT_GPU_ENABLE_ASYNC_DISPATCH";
  if (std::string_view(text_or(environment(variable), "")) == "1")
    throw PluginError(ErrorCode::failed_precondition,
                      fmt::format("{} is 1 in the environment, by which programs whose host "
                                  "functions run programs never end; unset it",
                                  variable));
  static_cast<void>(load_cuda_driver());
}

std::string cuda_plugin(const Platform&) {
  const std::filesystem::path installed = installed_beside("xla_gpu_pjrt.so");
  if (host::is_there(installed)) return installed.string();
  const auto wheel = in_python_folders(  // of two, for the newer CUDA
      {"jax_plugins/xla_cuda13/xla_cuda_plugin.so", "xla_plugins/xla_cuda13_pjrt/xla_gpu_pjrt.so",
       "jax_plugins/xla_cuda12/xla_cuda_plugin.so", "xla_plugins/xla_cuda12_pjrt/xla_gpu_pjrt.so"});
  if (!wheel.empty()) return wheel.string();
  refuse_plugin(cuda.name,
                installed.string() + ", nor one " +
                    not_in_python_folders("the wheels jax-cuda13-pjrt and xla-cuda13-pjrt"));
}

pjrt::Client cuda_client(const pjrt::Plugin& plugin, int) {
  // Memory as it is needed: there may be a second client on the same devices.
  std::vector<pjrt::ClientOption> options = {{"preallocate", false}};
  // The first client joins the cluster; the second, for what host functions start, is of this
  // process alone.
  static std::atomic<bool> is_first{true};
  const Nodes* const nodes = is_first ? joined_nodes() : nullptr;
  std::optional<pjrt::KeyValueScope> scope;  // through which the plug-in meets the other nodes
  if (nodes) {
    for (pjrt::ClientOption& option : nodes->options()) options.push_back(std::move(option));
    scope.emplace(*nodes->store);
  }
  pjrt::Client client = client_with_device(plugin, options, "GPU");
  is_first = false;  // not before it is made: after a failure the next one joins
  return client;
}

void register_cuda_handlers(const pjrt::Plugin& plugin, int number) {
  gpu::register_handlers(plugin, number, load_cuda_driver(), cuda.xla_name);
}

void cuda_reserve(const pjrt::Device& device, std::span<const host::HostSite> sites) noexcept {
  gpu::reserve(load_cuda_driver(), device.local_hardware_id(), sites);
}

guest::Handlers cuda_guest_handlers() { return gpu::guest_handlers(load_cuda_driver(), cuda.name); }

}  // namespace postern::internal::platforms
