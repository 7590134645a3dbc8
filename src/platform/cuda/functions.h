// The functions of libcuda that Postern uses, as its header declares them; so it is built without
// the CUDA toolkit. Where that is installed a test compares them.
#pragma once
#include <cstddef>

namespace postern::internal::platforms {

/// Each gives 0 or the number of an error. Handles of streams, events and contexts are pointers.
struct CudaFunctions {
  using Address = unsigned long long;  // on the device
  int (*init)(unsigned flags);
  int (*allocate)(void** memory, std::size_t bytes, unsigned flags);
  int (*free)(void* memory);
  int (*attribute_of)(void* data, int attribute, Address memory);
  int (*copy_to_host)(void* to, Address from, std::size_t bytes, void* stream);
  int (*copy_to_device)(Address to, const void* from, std::size_t bytes, void* stream);
  int (*fill)(Address to, unsigned char value, std::size_t count, void* stream);
  int (*synchronize)(void* stream);
  int (*context_of)(void* stream, void** context);
  int (*device)(int* device, int ordinal);
  int (*primary_context)(void** context, int device);
  int (*create_event)(void** event, unsigned flags);
  int (*record)(void* event, void* stream);
  int (*query)(void* event);
  int (*wait)(void* event);
  int (*enter)(void* context);
  int (*leave)(void** before);
  int (*describe)(int error, const char** text);

  static constexpr unsigned pinned_for_all = 1;        // CU_MEMHOSTALLOC_PORTABLE: for every GPU
  static constexpr unsigned no_timing_and_sleeps = 3;  // CU_EVENT_DISABLE_TIMING, _BLOCKING_SYNC
  static constexpr unsigned host_memory = 1;           // CU_MEMORYTYPE_HOST
  static constexpr int memory_type = 2;                // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
  static constexpr int not_ready = 600;                // CUDA_ERROR_NOT_READY
};

}  // namespace postern::internal::platforms
