// The row of the CPU.
#pragma once
#include "platform/platform.h"

namespace postern::internal::platforms {

std::string cpu_plugin(const Platform& platform);
pjrt::Client cpu_client(const pjrt::Plugin& plugin, int devices);
void register_cpu_handlers(const pjrt::Plugin& plugin, int number);
guest::Handlers cpu_guest_handlers();
void cpu_reserve(const pjrt::Device& device, std::span<const host::HostSite> sites) noexcept;

inline constexpr Platform cpu{.name = "cpu",
                              .xla_name = "Host",
                              .on_host = true,
                              .shares_memory = true,
                              .makes_devices = true,
                              .names_no_device = true,
                              .compiler = {.slow_windows = true, .max_loses_nan = true},
                              .find_plugin = cpu_plugin,
                              .make_client = cpu_client,
                              .register_handlers = register_cpu_handlers,
                              .guest_handlers = cpu_guest_handlers,
                              .reserve = cpu_reserve};

}  // namespace postern::internal::platforms
