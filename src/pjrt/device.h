// One device of a client: a handle that owns nothing and is valid as long as its client.
#pragma once
#include <string>
#include <vector>

struct PJRT_Api;
struct PJRT_Device;

namespace postern::internal::pjrt {

class Device {
 public:
  Device() = default;
  Device(const PJRT_Api* api, PJRT_Device* handle) : api_(api), handle_(handle) {}

  /// Returns what is unique among the devices of the client, and what device assignments name.
  int id() const;
  /// Returns the ordinal within this process's hardware, -1 if undefined.
  int local_hardware_id() const;
  /// Returns the kinds of memory that it can use ("device", "pinned_host", ...); none where the
  /// plug-in does not say.
  std::vector<std::string> memory_kinds() const;

  PJRT_Device* handle() const { return handle_; }
  friend bool operator==(const Device& a, const Device& b) { return a.handle_ == b.handle_; }

 private:
  const PJRT_Api* api_ = nullptr;
  PJRT_Device* handle_ = nullptr;
};

}  // namespace postern::internal::pjrt
