// Programs of another XLA: a client of the tests' own, which knows nothing of Postern's runs, loads
// programs whose custom calls have the attributes of guest/call_attributes.
#pragma once
#include <fmt/format.h>

#include "guest/call_attributes.h"
#include "guest/guest.h"
#include "pjrt/pjrt_test.h"
#include "platform/cuda/cuda.h"
#include "platform/cuda_fake.h"
#include "platform/gpu/handler.h"
#include "support.h"

namespace postern::internal::guest_test {

using Floats = std::vector<float>;
inline constexpr const char* without_state = "guest_test_without_state";
inline constexpr const char* on_gpu = "guest_test_on_gpu";

inline const XLA_FFI_Api* api = nullptr;

/// XLA tells a handler what it may ask for; the table itself is the same for all.
inline XLA_FFI_Error* see_api(XLA_FFI_CallFrame* frame) {
  api = frame->api;
  return pjrt::answer_metadata(frame) ? nullptr
                                      : pjrt::make_error(frame, ErrorCode::internal, "never run");
}

inline XLA_FFI_ByteSpan span_of(std::string_view text) { return {text.data(), text.size()}; }

/// As newer runtimes read it than the header is of.
struct TypeRegister {
  std::size_t struct_size;
  XLA_FFI_Extension_Base* extension_start;
  XLA_FFI_ByteSpan name;
  XLA_FFI_TypeId* type_id;
  const void* type_info;
};

inline void register_target(std::string_view name, const guest::Handlers& ours) {
  TypeRegister type{sizeof type, nullptr, span_of(name), static_cast<XLA_FFI_TypeId*>(ours.type_id),
                    ours.type_info};
  EXPECT_EQ(api->XLA_FFI_TypeId_Register(reinterpret_cast<XLA_FFI_TypeId_Register_Args*>(&type)),
            nullptr);
  XLA_FFI_Handler_Register_Args handlers{};
  handlers.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  handlers.name = span_of(name);
  handlers.platform = span_of("Host");
  handlers.bundle.instantiate = ours.instantiate;
  handlers.bundle.execute = ours.execute;
  EXPECT_EQ(api->XLA_FFI_Handler_Register(&handlers), nullptr);
}

/// One target with the state that programs keep, as JAX has it, one without, and one as programs on
/// GPUs have it, with a stand-in for CUDA.
inline void register_targets() {
  static const bool once = [] {
    const guest::Handlers ours = platforms::all()[0]->guest_handlers();
    pjrt::register_handler(pjrt::plugin(), "guest_test_see_api", see_api, "Host");
    register_target(guest::target, ours);
    pjrt::register_handler(pjrt::plugin(), without_state, ours.execute, "Host");
    if (!gpu::stood_in())  // then the first is that one
      register_target(on_gpu, gpu::guest_handlers(test::FakeCuda::driver(), platforms::cuda.name));
    return true;
  }();
  static_cast<void>(once);
}

/// f32[4] -> f32[4], with one custom call of these attributes.
inline pjrt::Executable program(std::string_view attributes,
                                std::string_view target = guest::target) {
  register_targets();
  return pjrt::client().compile(fmt::format(R"(module @guest {{
  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
    %0 = stablehlo.custom_call @{}(%a) {{api_version = 4 : i32, has_side_effect = true,
      backend_config = {{{}}}}} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }}
}})",
                                            target, attributes));
}

/// The same for a tap, whose custom call has no result.
inline pjrt::Executable tap_program(std::string_view attributes,
                                    std::string_view target = guest::target) {
  register_targets();
  return pjrt::client().compile(fmt::format(R"(module @guest {{
  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
    stablehlo.custom_call @{}(%a) {{api_version = 4 : i32, has_side_effect = true,
      backend_config = {{{}}}}} : (tensor<4xf32>) -> ()
    return %a : tensor<4xf32>
  }}
}})",
                                            target, attributes));
}

inline constexpr std::string_view asked = R"(function = "guest_test.f", name = "f", kind = "call")";

inline Floats run(const pjrt::Executable& program, const Floats& values = pjrt::one_to_four,
                  int number = 0) {
  const pjrt::Buffer x = pjrt::to_device(values, {4});
  return pjrt::to_host(pjrt::run(program, {&x}, {.number = number}));
}

/// A program with one call on a mesh of 2 x 3, run as from a position there.
struct MeshProgram {
  explicit MeshProgram(std::string_view target) : program(compiled(target)) {}
  Floats operator()(std::uint32_t position) const {
    const pjrt::Buffer x = pjrt::to_device(pjrt::one_to_four, {4});
    const pjrt::Buffer here = pjrt::client().buffer_from_host(&position, DType::u32, pjrt::Dims{},
                                                              pjrt::client().devices()[0]);
    here.ready().await();
    return pjrt::to_host(pjrt::run(program, {&x, &here}));
  }
  static pjrt::Executable compiled(std::string_view target) {
    register_targets();
    return pjrt::client().compile(fmt::format(R"(module @guest {{
  func.func public @main(%a: tensor<4xf32>, %at: tensor<ui32>) -> tensor<4xf32> {{
    %0 = stablehlo.custom_call @{}(%a, %at) {{api_version = 4 : i32, has_side_effect = true,
      backend_config = {{{}, axes = "2 x\0A3 y"}}}}
      : (tensor<4xf32>, tensor<ui32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }}
}})",
                                              target, asked));
  }
  pjrt::Executable program;
};

/// The number at the end of the error that a run throws.
inline std::uint64_t failure_of(const pjrt::Executable& program) {
  const auto error = test::error_of<Error>([&] { run(program); });
  const std::string text = error ? error->what() : "";
  const auto at = text.rfind("[postern failure ");
  EXPECT_NE(at, std::string::npos) << text;
  return at == std::string::npos ? 0 : std::stoull(text.substr(at + 17));
}
template <class Exception>
void expect_failure(const pjrt::Executable& program, std::initializer_list<std::string_view> parts,
                    std::optional<ErrorCode> code = {}) {
  const std::uint64_t number = failure_of(program);
  test::expect_error<Exception>([&] { std::rethrow_exception(guest::failure(number)); }, parts,
                                code);
}

/// A function under the name that `asked` has, for as long as this lives.
struct Named_f {
  template <class F>
  explicit Named_f(F f) {
    register_function("guest_test.f", f, {.replace = true});
  }
  ~Named_f() { unregister_function("guest_test.f"); }
};
inline constexpr auto twice = [](View<const float> in, View<float> out) {
  for (std::int64_t i = 0; i < in.size(); ++i) out[i] = 2 * in[i];
};

}  // namespace postern::internal::guest_test
