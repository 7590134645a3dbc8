// The row of NVIDIA's GPUs.
#pragma once
#include "platform/gpu/driver.h"
#include "platform/platform.h"

namespace postern::internal::platforms {

/// Loads the functions of the machine's NVIDIA driver. Throws PluginError where there is none.
const gpu::Driver& load_cuda_driver();

void require_cuda();
std::string cuda_plugin(const Platform& platform);
pjrt::Client cuda_client(const pjrt::Plugin& plugin, int devices);
void register_cuda_handlers(const pjrt::Plugin& plugin, int number);
guest::Handlers cuda_guest_handlers();
void cuda_reserve(const pjrt::Device& device, std::span<const host::HostSite> sites) noexcept;

inline constexpr Platform cuda{.name = "cuda",
                               .xla_name = "CUDA",
                               .tunes_on_device = true,
                               .calls_inline = true,
                               .calls_are_graphs = true,
                               .compiler = {.rounds_products = true},
                               .require_machine = require_cuda,
                               .find_plugin = cuda_plugin,
                               .make_client = cuda_client,
                               .register_handlers = register_cuda_handlers,
                               .guest_handlers = cuda_guest_handlers,
                               .reserve = cuda_reserve};

}  // namespace postern::internal::platforms
