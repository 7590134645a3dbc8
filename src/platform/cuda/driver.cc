// The table filled from libcuda, which comes with NVIDIA's driver and is looked for when a program
// first wants a GPU.
#include "core/text.h"
#include "platform/cuda/cuda.h"

#include <dlfcn.h>

#include <cstdint>

#include "platform/cuda/functions.h"

namespace postern::internal::platforms {

namespace {

CudaFunctions api;

CudaFunctions::Address address(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

std::string describe(int error) {
  const char* text = nullptr;
  if (api.describe(error, &text) != 0 || !text) return "error " + std::to_string(error);
  return text;
}

/// Fills in a field of the table. Throws PluginError where the library has no such function.
template <class Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function)
    throw PluginError(ErrorCode::failed_precondition,
                      std::string("the NVIDIA driver's libcuda.so.1 has no function ") + name);
}

/// Loads the driver and begins to use it. Throws a PluginError that says what is missing.
void open_driver() {
  // Never unloaded: the plug-in uses it too.
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    throw PluginError(ErrorCode::not_found, std::string("no NVIDIA driver is installed: ") +
                                                text_or(dlerror(), "libcuda.so.1"));
  }
  look_up(library, "cuInit", api.init);
  look_up(library, "cuMemHostAlloc", api.allocate);
  look_up(library, "cuMemFreeHost", api.free);
  look_up(library, "cuPointerGetAttribute", api.attribute_of);
  look_up(library, "cuMemcpyDtoHAsync_v2", api.copy_to_host);
  look_up(library, "cuMemcpyHtoDAsync_v2", api.copy_to_device);
  look_up(library, "cuMemsetD8Async", api.fill);
  look_up(library, "cuStreamSynchronize", api.synchronize);
  look_up(library, "cuStreamGetCtx", api.context_of);
  look_up(library, "cuDeviceGet", api.device);
  look_up(library, "cuDevicePrimaryCtxRetain", api.primary_context);
  look_up(library, "cuEventCreate", api.create_event);
  look_up(library, "cuEventRecord", api.record);
  look_up(library, "cuEventQuery", api.query);
  look_up(library, "cuEventSynchronize", api.wait);
  look_up(library, "cuCtxPushCurrent_v2", api.enter);
  look_up(library, "cuCtxPopCurrent_v2", api.leave);
  look_up(library, "cuGetErrorString", api.describe);
  if (const int error = api.init(0); error != 0)
    throw PluginError(ErrorCode::unavailable,
                      "the NVIDIA driver cannot be used: " + describe(error));
}

int context_of_device(int ordinal, void** context) {
  int device = 0;
  if (const int error = api.device(&device, ordinal); error != 0) return error;
  return api.primary_context(context, device);
}

/// Loads the driver. Its functions are wrapped where a Driver's have other parameters.
gpu::Driver loaded() {
  open_driver();
  return {
      .name = "CUDA",
      .allocate =
          [](void** memory, std::size_t bytes) {
            return api.allocate(memory, bytes, CudaFunctions::pinned_for_all);
          },
      .free = api.free,
      .on_host =
          [](const void* memory) {
            unsigned type = 0;  // memory that CUDA knows nothing of is an error
            return api.attribute_of(&type, CudaFunctions::memory_type, address(memory)) == 0 &&
                   type == CudaFunctions::host_memory;
          },
      .copy_to_host =
          [](void* to, const void* from, std::size_t bytes, void* stream) {
            return api.copy_to_host(to, address(from), bytes, stream);
          },
      .copy_to_device =
          [](void* to, const void* from, std::size_t bytes, void* stream) {
            return api.copy_to_device(address(to), from, bytes, stream);
          },
      .fill = [](void* to, unsigned char value, std::size_t bytes,
                 void* stream) { return api.fill(address(to), value, bytes, stream); },
      .synchronize = api.synchronize,
      .create_event =
          [](void** event) { return api.create_event(event, CudaFunctions::no_timing_and_sleeps); },
      .record = api.record,
      .is_ready =
          [](void* event, bool* ready) {
            const int error = api.query(event);
            *ready = error == 0;
            return error == CudaFunctions::not_ready ? 0 : error;
          },
      .wait = api.wait,
      .context_of = api.context_of,
      .context_of_device = context_of_device,
      .enter = api.enter,
      .leave =
          [] {
            void* before = nullptr;
            return api.leave(&before);
          },
      .describe = describe,
  };
}

}  // namespace

const gpu::Driver& load_cuda_driver() {
  static const gpu::Driver driver = loaded();
  return driver;
}

}  // namespace postern::internal::platforms
