// A PJRT client: a set of devices, compiler and memory. It must outlive all buffers and executables
// made from it.
#pragma once
#include "pjrt/buffer.h"
#include "pjrt/executable.h"
#include "pjrt/plugin.h"

#include <memory>
#include <string_view>
#include <variant>

namespace postern::internal::pjrt {

/// An option of client creation, such as {"cpu_device_count", std::int64_t{4}}. XLA ignores names
/// that it does not know, and a value of the wrong type is undefined behaviour inside it.
struct ClientOption {
  std::string name;
  std::variant<std::int64_t, bool> value;
};

struct CompileOptions {
  int num_replicas = 1;
  int num_partitions = 1;
  bool use_spmd = false;  // partition by the program's shardings
  std::vector<bool> free_results =
      {};                 // by result: whether XLA chooses its sharding; empty: of none
  bool portable = false;  // one device, named at each run (Launch::device)
  std::vector<int> device_ids =
      {};            // replica after replica, its partitions in order; empty: the client's default
  bool tune = true;  // whether a GPU's compiler may try on the device what is quickest
};

/// Writes CompileOptions as XLA's protobuf.
std::string to_proto(const CompileOptions& options);

class Client {
 public:
  Client() = default;
  Client(const Plugin& plugin, const std::vector<ClientOption>& options);

  explicit operator bool() const { return handle_ != nullptr; }
  PJRT_Client* handle() const { return handle_.get(); }
  const PJRT_Api* api() const { return plugin_->api(); }

  /// Returns it as the plug-in says it.
  std::string platform_name() const;
  /// Returns the devices of this process, in the order of their ids.
  const std::vector<Device>& devices() const { return devices_; }

  /// Compiles StableHLO (text or a portable artifact). Throws CompileError with XLA's text.
  Executable compile(std::string_view stablehlo, const CompileOptions& options = {}) const;
  /// Loads what Executable::serialize wrote; with `options`, for other devices than it was compiled
  /// for. Throws Error.
  Executable deserialize(std::string_view serialized,
                         const CompileOptions* options = nullptr) const;

  /// Makes a buffer from dense row-major host memory. Without `keep` XLA reads it during the call
  /// only, else uses it in place where device and alignment allow. `keep` is let go, on any thread,
  /// when XLA needs `data` no more: when the buffer is freed or, if it could not alias, when it is
  /// copied.
  Buffer buffer_from_host(const void* data, DType dtype, std::span<const std::int64_t> dims,
                          const Device& device, std::shared_ptr<const void> keep = {}) const;

  /// Makes a buffer over memory that is already on `device` and stays owned by someone else: no
  /// copy, no look at its contents. `keep` is let go when the buffer is freed. Donating the buffer
  /// to a run lets the run write there.
  Buffer view_of_device(void* data, DType dtype, std::span<const std::int64_t> dims,
                        const Device& device, std::shared_ptr<const void> keep = {}) const;

 private:
  const Plugin* plugin_ = nullptr;
  Owned<PJRT_Client> handle_;
  std::vector<Device> devices_;
};

}  // namespace postern::internal::pjrt
