// Backend: a platform in use: a plug-in, its clients, and the devices that users see of it.
#pragma once
#include <postern/devices.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/once.h"
#include "pjrt/client.h"
#include "platform/platform.h"

namespace postern::internal::run {

struct Backend {
  std::string name;  // what users call it
  platforms::Used used;
  const pjrt::Plugin* plugin;
  int number = 0;  // among those of the process
  int first_device = 0, device_count = 0;
  std::int64_t run_state_type = 0;  // of the plug-in's, where it calls back
  static constexpr std::size_t most_clients = 64;
  pjrt::Client clients[most_clients];  // the main one, and spare ones
  std::size_t client_count = 1, single_clients = 0;
  std::atomic<bool> is_full{false};  // another client could not be made
  /// Spare lanes come by so many, so many times at most; runs that are not nested leave some of the
  /// last ones to those that are.
  struct SpareLanes {
    std::size_t at_a_time, times, for_nested;
  } spare{};
  mutable Once costs_once;
  mutable Costs costs{};  // see costs_of

  const platforms::Platform& platform() const { return *used.platform; }
  /// Returns whether a run that finds no lane is one too many; else it waits for one.
  bool may_refuse() const { return platform().makes_devices && !is_full; }
  bool has(int device) const {
    return device >= first_device && device < first_device + device_count;
  }
  /// Numbers the memory of this one of its devices: lanes of the same number see each other's.
  int memory_of(int device) const {
    if (platform().on_host && platform().shares_memory) return 0;  // one, of all such platforms
    return 1 + queue_of(device);
  }
  /// Numbers its queue likewise: a run may go to any lane of the same number.
  int queue_of(int device) const {
    if (platform().shares_memory) return first_device;
    return first_device + device;
  }
};

/// Loads the plug-ins that the configuration asks for, in its order, and makes their clients, whose
/// devices are numbered on. Throws Error where one cannot be used.
std::vector<std::unique_ptr<Backend>> open_backends(const Config& config);

/// The configuration with what the environment says, from now on in use.
Config settled_config();
/// Makes place for another one.
void forget_config();

/// Whether the process has more than one: until then nobody asks on which one anything is.
inline std::atomic<bool> several_platforms{false};

}  // namespace postern::internal::run
