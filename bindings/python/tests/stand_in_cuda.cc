// A libcuda.so.1 that works on the host's memory, at once: with it the handlers for GPUs serve
// programs of JAX's on CPUs, which the Python package's tests have (POSTERN_TEST_STAND_IN).
#include <cstdlib>
#include <cstring>

namespace {
char context, event;
int at_once(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
  return 0;
}
}  // namespace

extern "C" {
int cuInit(unsigned) { return 0; }
int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *memory ? 0 : 2;
}
int cuMemFreeHost(void* memory) {
  std::free(memory);
  return 0;
}
int cuPointerGetAttribute(void* type, int, unsigned long long) {
  *static_cast<unsigned*>(type) = 2;  // as a device's
  return 0;
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, std::size_t bytes, void*) {
  return at_once(to, reinterpret_cast<const void*>(from), bytes);
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes, void*) {
  return at_once(reinterpret_cast<void*>(to), from, bytes);
}
int cuMemsetD8Async(unsigned long long to, unsigned char value, std::size_t bytes, void*) {
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return 0;
}
int cuStreamSynchronize(void*) { return 0; }
int cuStreamGetCtx(void*, void** of) {
  *of = &context;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** of, int) {
  *of = &context;
  return 0;
}
int cuEventCreate(void** made, unsigned) {
  *made = &event;
  return 0;
}
int cuEventRecord(void*, void*) { return 0; }
int cuEventQuery(void*) { return 0; }
int cuEventSynchronize(void*) { return 0; }
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void**) { return 0; }
int cuGetErrorString(int, const char** text) {
  *text = "an error of the stand-in";
  return 0;
}
}
