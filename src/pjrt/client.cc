// Creating clients, compiling, and making buffers from memory.
#include "pjrt/client.h"

#include "pjrt/call.h"
#include "pjrt/deep.h"
#include "pjrt/dtype_codes.h"
#include "pjrt/key_values.h"

#include <memory>
#include <string>
#include <utility>

#include "core/thread_end.h"

namespace postern::internal::pjrt {

namespace {

PJRT_NamedValue to_named_value(const ClientOption& option) {
  auto named = make_args<PJRT_NamedValue>();
  named.name = option.name.data();
  named.name_size = option.name.size();
  named.value_size = 1;
  if (const bool* const flag = std::get_if<bool>(&option.value)) {
    named.type = PJRT_NamedValue_kBool;
    named.bool_value = *flag;
  } else {
    named.type = PJRT_NamedValue_kInt64;
    named.int64_value = std::get<std::int64_t>(option.value);
  }
  return named;
}

std::vector<Device> list_devices(const PJRT_Api* api, PJRT_Client* client) {
  const auto args =
      ask<&PJRT_Api::PJRT_Client_AddressableDevices>(api, client, "to list its devices");
  std::vector<Device> devices;
  devices.reserve(args.num_addressable_devices);
  for (std::size_t i = 0; i < args.num_addressable_devices; ++i)
    devices.emplace_back(api, args.addressable_devices[i]);
  return devices;
}

/// What a plug-in is given to let go of.
using Kept = std::shared_ptr<const void>;
void let_go(void* kept) { delete static_cast<Kept*>(kept); }

}  // namespace

Client::Client(const Plugin& plugin, const std::vector<ClientOption>& options) : plugin_(&plugin) {
  std::vector<PJRT_NamedValue> named;
  for (const auto& option : options) named.push_back(to_named_value(option));
  auto args = make_args<PJRT_Client_Create_Args>();
  args.create_options = named.data();
  args.num_options = named.size();
  give_key_values(args);
  call<&PJRT_Api::PJRT_Client_Create>(api(), args, "to create a client");
  handle_ = {args.client, Free{api()}};
  devices_ = list_devices(api(), handle());
}

std::string Client::platform_name() const {
  const auto args =
      ask<&PJRT_Api::PJRT_Client_PlatformName>(api(), handle(), "to name its platform");
  return {args.platform_name, args.platform_name_size};
}

Executable Client::compile(std::string_view stablehlo, const CompileOptions& options) const {
  constexpr std::string_view format = "mlir", what = "to compile a program";
  const std::string proto = to_proto(options);
  auto program = make_args<PJRT_Program>();
  program.code =
      const_cast<char*>(stablehlo.data());  // only read: the struct serves both directions
  program.code_size = stablehlo.size();
  program.format = format.data();
  program.format_size = format.size();
  auto args = make_args<PJRT_Client_Compile_Args>();
  args.client = handle();
  args.program = &program;
  args.compile_options = proto.data();
  args.compile_options_size = proto.size();
  const auto function = entry<&PJRT_Api::PJRT_Client_Compile>(api(), what);
  PJRT_Error* error = nullptr;
  Failure failure{ErrorCode::internal, "it gave neither a program nor an error"};
  with_stack_for(nesting_of(stablehlo), [&] {
    try {
      const auto compile = [&] { error = enter(function, args, what); };
      if (!keeps_thread(compile)) failure.text = "the plug-in tried to end the thread";
    } catch (const Error& e) {
      throw CompileError(e.code(), e.what());
    }
  });
  if (error) failure = take_failure(api(), error);
  if (error || !args.executable)
    throw CompileError(failure.code, "XLA failed " + std::string(what) + " for " + platform_name() +
                                         ": " + failure.text);
  return Executable(api(), args.executable, true);
}

Executable Client::deserialize(std::string_view serialized, const CompileOptions* options) const {
  std::string proto;
  auto args = make_args<PJRT_Executable_DeserializeAndLoad_Args>();
  args.client = handle();
  args.serialized_executable = serialized.data();
  args.serialized_executable_size = serialized.size();
  if (options) {
    proto = to_proto(*options);
    args.overridden_serialized_compile_options = proto.data();
    args.overridden_serialized_compile_options_size = proto.size();
  }
  call<&PJRT_Api::PJRT_Executable_DeserializeAndLoad>(api(), args,
                                                      "to load a serialized executable");
  return Executable(api(), args.loaded_executable, false);
}

Buffer Client::buffer_from_host(const void* data, DType dtype, std::span<const std::int64_t> dims,
                                const Device& device, std::shared_ptr<const void> keep) const {
  auto args = make_args<PJRT_Client_BufferFromHostBuffer_Args>();
  args.client = handle();
  args.data = data;
  args.type = to_buffer_type(dtype);
  args.dims = dims.data();
  args.num_dims = dims.size();
  args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  std::unique_ptr<Kept> kept;
  if (keep) {
    args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableZeroCopy;
    kept = std::make_unique<Kept>(std::move(keep));
  }
  args.device = device.handle();
  call<&PJRT_Api::PJRT_Client_BufferFromHostBuffer>(api(), args,
                                                    "to make a buffer from host memory");
  Buffer buffer(api(), args.buffer);
  Event done(api(), args.done_with_host_buffer);
  if (kept) {
    done.on_ready([](void* user, const Failure*) noexcept { let_go(user); }, kept.get());
    kept.release();  // let_go frees it
  }
  return buffer;
}

Buffer Client::view_of_device(void* data, DType dtype, std::span<const std::int64_t> dims,
                              const Device& device, std::shared_ptr<const void> keep) const {
  std::unique_ptr<Kept> kept;
  if (keep) kept = std::make_unique<Kept>(std::move(keep));
  auto args = make_args<PJRT_Client_CreateViewOfDeviceBuffer_Args>();
  args.client = handle();
  args.device_buffer_ptr = data;
  args.dims = dims.data();
  args.num_dims = dims.size();
  args.element_type = to_buffer_type(dtype);
  args.device = device.handle();
  // Without a callback XLA:CPU aborts the process when it frees the buffer.
  args.on_delete_callback = [](void*, void* user) { let_go(user); };
  args.on_delete_callback_arg = kept.get();
  call<&PJRT_Api::PJRT_Client_CreateViewOfDeviceBuffer>(api(), args,
                                                        "to view memory of a device as a buffer");
  kept.release();  // let_go frees it
  return Buffer(api(), args.buffer);
}

}  // namespace postern::internal::pjrt
