// What a device says of itself.
#include "pjrt/device.h"

#include "pjrt/call.h"

namespace postern::internal::pjrt {

int Device::id() const {
  const auto described =
      ask<&PJRT_Api::PJRT_Device_GetDescription>(api_, handle_, "to describe a device");
  return ask<&PJRT_Api::PJRT_DeviceDescription_Id>(api_, described.device_description,
                                                   "to read a device's id")
      .id;
}

int Device::local_hardware_id() const {
  return ask<&PJRT_Api::PJRT_Device_LocalHardwareId>(api_, handle_,
                                                     "to read a device's hardware id")
      .local_hardware_id;
}

std::vector<std::string> Device::memory_kinds() const {
  std::vector<std::string> out;
  auto memories = make_args<PJRT_Device_AddressableMemories_Args>();
  memories.device = handle_;
  try {
    call<&PJRT_Api::PJRT_Device_AddressableMemories>(api_, memories, "to list a device's memories");
  } catch (const Error&) {
    return out;  // not every plug-in can say
  }
  for (std::size_t i = 0; i < memories.num_memories; ++i) {
    const auto kind =
        ask<&PJRT_Api::PJRT_Memory_Kind>(api_, memories.memories[i], "to read a memory's kind");
    out.emplace_back(kind.kind, kind.kind_size);
  }
  return out;
}

}  // namespace postern::internal::pjrt
