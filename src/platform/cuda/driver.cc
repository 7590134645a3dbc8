// The table filled from libcuda, which comes with NVIDIA's driver and is looked for when a program
// first wants a GPU.
#include "core/text.h"
#include "platform/cuda/cuda.h"

#include <dlfcn.h>

#include <cstdint>

#include <cuda.h>

namespace postern::internal::platforms {

namespace {

// The names that libcuda exports; the header maps those of the source to them.
struct Functions {
  decltype(&cuInit) init;
  decltype(&cuMemHostAlloc) allocate;
  decltype(&cuMemFreeHost) free;
  decltype(&cuPointerGetAttribute) attribute_of;
  decltype(&cuMemcpyDtoHAsync) copy_to_host;
  decltype(&cuMemcpyHtoDAsync) copy_to_device;
  decltype(&cuMemsetD8Async) fill;
  decltype(&cuStreamSynchronize) synchronize;
  decltype(&cuStreamGetCtx) context_of;
  decltype(&cuEventCreate) create_event;
  decltype(&cuEventRecord) record;
  decltype(&cuEventQuery) query;
  decltype(&cuEventSynchronize) wait;
  decltype(&cuCtxPushCurrent) enter;
  decltype(&cuCtxPopCurrent) leave;
  decltype(&cuGetErrorString) describe;
};
Functions api;

CUdeviceptr address(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }
CUstream stream_of(void* stream) { return static_cast<CUstream>(stream); }
CUevent event_of(void* event) { return static_cast<CUevent>(event); }

std::string describe(int error) {
  const char* text = nullptr;
  if (api.describe(static_cast<CUresult>(error), &text) != CUDA_SUCCESS || !text)
    return "error " + std::to_string(error);
  return text;
}

template <class Function>
void find(void* library, const char* name, Function& function) {
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
  find(library, "cuInit", api.init);
  find(library, "cuMemHostAlloc", api.allocate);
  find(library, "cuMemFreeHost", api.free);
  find(library, "cuPointerGetAttribute", api.attribute_of);
  find(library, "cuMemcpyDtoHAsync_v2", api.copy_to_host);
  find(library, "cuMemcpyHtoDAsync_v2", api.copy_to_device);
  find(library, "cuMemsetD8Async", api.fill);
  find(library, "cuStreamSynchronize", api.synchronize);
  find(library, "cuStreamGetCtx", api.context_of);
  find(library, "cuEventCreate", api.create_event);
  find(library, "cuEventRecord", api.record);
  find(library, "cuEventQuery", api.query);
  find(library, "cuEventSynchronize", api.wait);
  find(library, "cuCtxPushCurrent_v2", api.enter);
  find(library, "cuCtxPopCurrent_v2", api.leave);
  find(library, "cuGetErrorString", api.describe);
  if (const CUresult error = api.init(0); error != CUDA_SUCCESS)
    throw PluginError(ErrorCode::unavailable,
                      "the NVIDIA driver cannot be used: " + describe(error));
}

gpu::Driver loaded() {
  open_driver();
  return {
      .name = "CUDA",
      // Portable: pinned for every GPU of the process.
      .allocate = [](void** memory, std::size_t bytes) -> int {
        return api.allocate(memory, bytes, CU_MEMHOSTALLOC_PORTABLE);
      },
      .free = [](void* memory) -> int { return api.free(memory); },
      .on_host = [](const void* memory) -> bool {
        unsigned type = 0;  // memory that CUDA knows nothing of is an error
        return api.attribute_of(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(memory)) ==
                   CUDA_SUCCESS &&
               type == CU_MEMORYTYPE_HOST;
      },
      .copy_to_host = [](void* to, const void* from, std::size_t bytes, void* stream) -> int {
        return api.copy_to_host(to, address(from), bytes, stream_of(stream));
      },
      .copy_to_device = [](void* to, const void* from, std::size_t bytes, void* stream) -> int {
        return api.copy_to_device(address(to), from, bytes, stream_of(stream));
      },
      .fill = [](void* to, unsigned char value, std::size_t bytes, void* stream) -> int {
        return api.fill(address(to), value, bytes, stream_of(stream));
      },
      .synchronize = [](void* stream) -> int { return api.synchronize(stream_of(stream)); },
      .create_event = [](void** event) -> int {
        return api.create_event(reinterpret_cast<CUevent*>(event),
                                CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
      },
      .record = [](void* event, void* stream) -> int {
        return api.record(event_of(event), stream_of(stream));
      },
      .is_ready = [](void* event, bool* ready) -> int {
        const CUresult error = api.query(event_of(event));
        *ready = error == CUDA_SUCCESS;
        if (error == CUDA_ERROR_NOT_READY) return CUDA_SUCCESS;
        return error;
      },
      .wait = [](void* event) -> int { return api.wait(event_of(event)); },
      .context_of = [](void* stream, void** context) -> int {
        return api.context_of(stream_of(stream), reinterpret_cast<CUcontext*>(context));
      },
      .enter = [](void* context) -> int { return api.enter(static_cast<CUcontext>(context)); },
      .leave = []() -> int {
        CUcontext before = nullptr;
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
