// What a device says of itself.
#include "pjrt/device.h"

#include "pjrt/call.h"

namespace postern::internal::pjrt {
namespace {

PJRT_DeviceDescription* description(const PJRT_Api* api, PJRT_Device* device) {
  return ask<&PJRT_Api::PJRT_Device_GetDescription>(api, device, "to describe a device")
      .device_description;
}

}  // namespace

int Device::id() const {
  return ask<&PJRT_Api::PJRT_DeviceDescription_Id>(api_, description(api_, handle_),
                                                   "to read a device's id")
      .id;
}

int Device::local_hardware_id() const {
  return ask<&PJRT_Api::PJRT_Device_LocalHardwareId>(api_, handle_,
                                                     "to read a device's hardware id")
      .local_hardware_id;
}

std::string Device::kind() const {
  const auto args = ask<&PJRT_Api::PJRT_DeviceDescription_Kind>(api_, description(api_, handle_),
                                                                "to read a device's kind");
  return {args.device_kind, args.device_kind_size};
}

std::string Device::text() const {
  const auto args = ask<&PJRT_Api::PJRT_DeviceDescription_ToString>(
      api_, description(api_, handle_), "to describe a device");
  return {args.to_string, args.to_string_size};
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
