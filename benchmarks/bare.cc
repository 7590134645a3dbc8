// PJRT's C API without anything of Postern's on the timed path.
#include "bare.h"

#include <pjrt_c_api.h>
#include <postern/devices.h>
#include <postern/library.h>

#include <cstring>
#include <stdexcept>

#include "pjrt/ffi_frame.h"
#include "platform/cpu/cpu.h"

namespace bench {

namespace pjrt = postern::internal::pjrt;

namespace {

XLA_FFI_Error* identity(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start && pjrt::answer_metadata(frame)) return nullptr;
  const auto* from = static_cast<const XLA_FFI_Buffer*>(frame->args.args[0]);
  auto* to = static_cast<XLA_FFI_Buffer*>(frame->rets.rets[0]);
  std::int64_t bytes = 4;
  for (std::int64_t i = 0; i < from->rank; ++i) bytes *= from->dims[i];
  std::memcpy(to->data, from->data, static_cast<std::size_t>(bytes));
  return nullptr;
}

XLA_FFI_Error* look(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start && pjrt::answer_metadata(frame)) return nullptr;
  const auto* from = static_cast<const XLA_FFI_Buffer*>(frame->args.args[0]);
  asm volatile("" : : "x"(*static_cast<const float*>(from->data)));
  return nullptr;
}

const pjrt::Client& client() {
  static const pjrt::Client* const made = [] {
    const auto& cpu = postern::internal::platforms::cpu;
    const pjrt::Plugin& plugin = pjrt::Plugin::load(plugin_path(cpu));
    pjrt::register_handler(plugin, "bench_identity", identity, "Host");
    pjrt::register_handler(plugin, "bench_look", look, "Host");
    const auto devices = static_cast<int>(postern::devices().size());
    return new pjrt::Client(cpu.make_client(plugin, devices));
  }();
  return *made;
}

void must(PJRT_Error* error) {
  if (error) throw std::runtime_error("the raw PJRT peer failed");
}

template <class Args>
Args zeroed(std::size_t size) {
  Args args;
  std::memset(&args, 0, sizeof args);
  args.struct_size = size;
  return args;
}

}  // namespace

Bare::Bare(const std::string& stablehlo, int device)
    : device_(static_cast<std::size_t>(device)),
      executable_(client().compile(stablehlo, {.portable = device > 0})) {}

void Bare::set_argument(postern::DType dtype, std::span<const std::int64_t> dims,
                        const void* data) {
  argument_ = client().buffer_from_host(data, dtype, dims, client().devices()[device_]);
  argument_.ready().await();
}

/// The result may be under way.
PJRT_Buffer* Bare::execute(PJRT_Buffer* argument) const {
  PJRT_Buffer* const* arguments = &argument;
  PJRT_Buffer* result = nullptr;
  PJRT_Buffer** results = &result;
  auto options = zeroed<PJRT_ExecuteOptions>(PJRT_ExecuteOptions_STRUCT_SIZE);
  auto execute =
      zeroed<PJRT_LoadedExecutable_Execute_Args>(PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE);
  execute.executable = executable_.handle();
  execute.options = &options;
  execute.argument_lists = &arguments;
  execute.num_devices = 1;
  execute.num_args = 1;
  execute.output_lists = &results;
  if (device_ > 0) execute.execute_device = client().devices()[device_].handle();
  must(client().api()->PJRT_LoadedExecutable_Execute(&execute));
  return result;
}

namespace {

/// Waits for the event and forgets it.
void await(const PJRT_Api* api, PJRT_Event* event) {
  auto await = zeroed<PJRT_Event_Await_Args>(PJRT_Event_Await_Args_STRUCT_SIZE);
  await.event = event;
  must(api->PJRT_Event_Await(&await));
  auto forget = zeroed<PJRT_Event_Destroy_Args>(PJRT_Event_Destroy_Args_STRUCT_SIZE);
  forget.event = event;
  must(api->PJRT_Event_Destroy(&forget));
}

void destroy(const PJRT_Api* api, PJRT_Buffer* buffer) {
  auto destroy = zeroed<PJRT_Buffer_Destroy_Args>(PJRT_Buffer_Destroy_Args_STRUCT_SIZE);
  destroy.buffer = buffer;
  must(api->PJRT_Buffer_Destroy(&destroy));
}

}  // namespace

void Bare::run(std::int64_t times) {
  const PJRT_Api* const api = client().api();
  for (std::int64_t i = 0; i < times; ++i) {
    PJRT_Buffer* const result = execute(argument_.handle());
    auto ready = zeroed<PJRT_Buffer_ReadyEvent_Args>(PJRT_Buffer_ReadyEvent_Args_STRUCT_SIZE);
    ready.buffer = result;
    must(api->PJRT_Buffer_ReadyEvent(&ready));
    await(api, ready.event);
    destroy(api, result);
  }
}

void Bare::run_copying(const void* in, void* out, std::size_t bytes, std::int64_t times) {
  const PJRT_Api* const api = client().api();
  const auto address = [&](PJRT_Buffer* buffer) {
    auto pointer =
        zeroed<PJRT_Buffer_UnsafePointer_Args>(PJRT_Buffer_UnsafePointer_Args_STRUCT_SIZE);
    pointer.buffer = buffer;
    must(api->PJRT_Buffer_UnsafePointer(&pointer));
    return reinterpret_cast<void*>(pointer.buffer_pointer);
  };
  void* const to = address(argument_.handle());
  for (std::int64_t i = 0; i < times; ++i) {
    std::memcpy(to, in, bytes);
    PJRT_Buffer* const result = execute(argument_.handle());
    auto ready = zeroed<PJRT_Buffer_ReadyEvent_Args>(PJRT_Buffer_ReadyEvent_Args_STRUCT_SIZE);
    ready.buffer = result;
    must(api->PJRT_Buffer_ReadyEvent(&ready));
    await(api, ready.event);
    std::memcpy(out, address(result), bytes);
    destroy(api, result);
  }
}

void Bare::run_on(postern::DType dtype, std::span<const std::int64_t> dims, const void* in,
                  void* out, std::int64_t times) {
  const PJRT_Api* const api = client().api();
  std::size_t bytes = postern::byte_width(dtype);
  for (const std::int64_t d : dims) bytes *= static_cast<std::size_t>(d);
  for (std::int64_t i = 0; i < times; ++i) {
    auto from = zeroed<PJRT_Client_BufferFromHostBuffer_Args>(
        PJRT_Client_BufferFromHostBuffer_Args_STRUCT_SIZE);
    from.client = client().handle();
    from.data = in;
    from.type = pjrt::to_buffer_type(dtype);
    from.dims = dims.data();
    from.num_dims = dims.size();
    from.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableZeroCopy;
    from.device = client().devices()[device_].handle();
    must(api->PJRT_Client_BufferFromHostBuffer(&from));
    PJRT_Buffer* const result = execute(from.buffer);
    auto to = zeroed<PJRT_Buffer_ToHostBuffer_Args>(PJRT_Buffer_ToHostBuffer_Args_STRUCT_SIZE);
    to.src = result;
    to.dst = out;
    to.dst_size = bytes;
    must(api->PJRT_Buffer_ToHostBuffer(&to));
    await(api, to.event);
    destroy(api, result);
    destroy(api, from.buffer);
    auto forget = zeroed<PJRT_Event_Destroy_Args>(PJRT_Event_Destroy_Args_STRUCT_SIZE);
    forget.event = from.done_with_host_buffer;
    must(api->PJRT_Event_Destroy(&forget));
  }
}

const char* target_of_copy() {
  postern::register_ffi_handler("bench_copy", identity);
  return "bench_copy";
}

}  // namespace bench
