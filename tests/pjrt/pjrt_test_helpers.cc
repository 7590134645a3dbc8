// The client, handlers and programs that the tests of the PJRT boundary share.
#include "pjrt_test.h"

#include "pjrt/ffi_frame.h"

#include <thread>

namespace postern::internal::pjrt {

using namespace std::chrono_literals;

const Plugin& plugin() {
  static const Plugin& loaded = Plugin::load(platforms::plugin_path(platforms::cpu));
  return loaded;
}

// Never destroyed, as in a program that runs to its end.
const Client& client() {
  static const Client& shared = *new Client(platforms::cpu.make_client(plugin(), 4));
  return shared;
}

std::int64_t probe_type() {
  static const std::int64_t id = register_type(plugin(), "pjrt_test_probe");
  return id;
}

namespace {

XLA_FFI_Error* add_offset(XLA_FFI_CallFrame* frame) {
  if (answer_metadata(frame)) return nullptr;
  auto* probe = static_cast<Probe*>(user_data(frame, probe_type()));
  if (!probe) return make_error(frame, ErrorCode::failed_precondition, "this run has no probe");
  const std::int64_t* id = int_attribute(frame, 0, "id");
  DType dtype;
  if (!id || !dtype_of(operands(frame)[0], dtype) || dtype != DType::f32)
    return make_error(frame, ErrorCode::invalid_argument, "not the call that was expected");
  const auto* from = static_cast<const float*>(operands(frame)[0]->data);
  auto* to = static_cast<float*>(results(frame)[0]->data);
  for (std::int64_t i = 0; i < dims_of(operands(frame)[0])[0]; ++i)
    to[i] = from[i] + probe->offset + static_cast<float>(*id);
  ++probe->calls;
  probe->run = run_id(frame);
  return nullptr;
}

}  // namespace

XLA_FFI_Error* refuse(XLA_FFI_CallFrame* frame) {
  if (answer_metadata(frame)) return nullptr;
  return make_error(frame, ErrorCode::out_of_range, "the bridge is out");
}

XLA_FFI_Error* sleep(XLA_FFI_CallFrame* frame) {
  if (answer_metadata(frame)) return nullptr;
  std::this_thread::sleep_for(1s);
  return nullptr;
}

void register_handlers() {
  register_handler(plugin(), "pjrt_test_add_offset", add_offset, "Host");
  register_handler(plugin(), "pjrt_test_refuse", refuse, "Host");
  register_handler(plugin(), "pjrt_test_sleep", sleep, "Host");
}

const std::string_view add_text = R"(module @add {
  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %a, %b : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
})";

const std::string_view offset_text = R"(module @offset {
  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.custom_call @pjrt_test_add_offset(%a)
      {api_version = 4 : i32, has_side_effect = true, backend_config = {id = 100 : i64}}
      : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
})";

std::string heavy_text(const std::string& target) {
  return R"(module @heavy {
  func.func public @main(%a: tensor<65536xf32>) -> tensor<65536xf32> {
    %0 = stablehlo.add %a, %a : tensor<65536xf32>
    stablehlo.custom_call @)" +
         target + R"(() {api_version = 4 : i32, has_side_effect = true} : () -> ()
    return %0 : tensor<65536xf32>
  }
})";
}

std::string call_text(const std::string& target) {
  return "module @call { func.func public @main() { stablehlo.custom_call @" + target +
         "() {api_version = 4 : i32, has_side_effect = true} : () -> () return } }";
}

Buffer heavy_input() { return to_device(std::vector<float>(65536, 1), {65536}); }

Buffer to_device(const std::vector<float>& values, const Dims& dims, const Device& device) {
  return client().buffer_from_host(values.data(), DType::f32, dims, device);
}

std::vector<float> to_host(const Buffer& buffer) {
  std::vector<float> values(buffer.host_bytes() / sizeof(float));
  buffer.to_host(values.data(), buffer.host_bytes()).await();
  return values;
}

Buffer run(const Executable& executable, const std::vector<const Buffer*>& arguments,
           const Launch& launch) {
  std::vector<PJRT_Buffer*> handles;
  for (const Buffer* argument : arguments) handles.push_back(argument->handle());
  PJRT_Buffer* output = nullptr;
  executable.execute(handles, {&output, 1}, launch);
  return Buffer(executable.api(), output);
}

}  // namespace postern::internal::pjrt
