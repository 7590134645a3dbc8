// Running compiled programs, and what they say of themselves.
#include "pjrt/executable.h"

#include "core/mutex.h"
#include "pjrt/call.h"
#include "pjrt/dtype_codes.h"

#include <map>
#include <memory>

#include "core/thread_end.h"

namespace postern::internal::pjrt {
namespace {

// A context without data, for runs that bring none: a handler that asks for its data in a run
// without any context crashes inside XLA. One for each plug-in, never destroyed, since runs may
// outlive whoever started them.
PJRT_ExecuteContext* empty_context(const PJRT_Api* api) {
  static Mutex mutex;
  static auto& contexts = *new std::map<const PJRT_Api*, PJRT_ExecuteContext*>;
  std::lock_guard lock(mutex);
  PJRT_ExecuteContext*& context = contexts[api];
  if (!context) {
    auto args = make_args<PJRT_ExecuteContext_Create_Args>();
    call<&PJRT_Api::PJRT_ExecuteContext_Create>(api, args, "to create an empty context");
    context = args.context;
  }
  return context;
}

PJRT_ExecuteOptions to_options(const Launch& launch, PJRT_ExecuteContext* default_context) {
  auto options = make_args<PJRT_ExecuteOptions>();
  options.context = launch.context ? launch.context->handle() : default_context;
  options.launch_id = launch.number;
  options.non_donatable_input_indices = launch.keep.data();
  options.num_non_donatable_input_indices = launch.keep.size();
  return options;
}

// PJRT writes as many outputs as the program has, whatever room there is.
void check_outputs(std::size_t places, std::size_t required) {
  if (places == required) return;
  throw Error(ErrorCode::invalid_argument, "the run of a program needs room for " +
                                               std::to_string(required) +
                                               " outputs; came room for " + std::to_string(places));
}

}  // namespace

Executable::Executable(const PJRT_Api* api, PJRT_LoadedExecutable* handle, bool compiled)
    : api_(api), loaded_(handle, Free{api}), compiled_(compiled) {
  auto args = make_args<PJRT_LoadedExecutable_GetExecutable_Args>();
  args.loaded_executable = handle;
  call<&PJRT_Api::PJRT_LoadedExecutable_GetExecutable>(api_, args, "to describe an executable");
  description_ = {args.executable, Free{api}};
  num_outputs_ = ask<&PJRT_Api::PJRT_Executable_NumOutputs>(api_, args.executable,
                                                            "to count an executable's outputs")
                     .num_outputs;
  empty_context_ = empty_context(api_);
}

void Executable::execute(std::span<PJRT_Buffer* const> arguments, std::span<PJRT_Buffer*> outputs,
                         const Launch& launch) const {
  check_outputs(outputs.size(), num_outputs_);
  PJRT_ExecuteOptions options = to_options(launch, empty_context_);
  PJRT_Buffer* const* argument_list = arguments.data();
  PJRT_Buffer** output_list = outputs.data();
  PJRT_Event* complete = nullptr;
  auto args = make_args<PJRT_LoadedExecutable_Execute_Args>();
  args.executable = handle();
  args.options = &options;
  args.argument_lists = &argument_list;
  args.num_devices = 1;
  args.num_args = arguments.size();
  args.output_lists = &output_list;
  args.device_complete_events = launch.complete ? &complete : nullptr;
  args.execute_device = launch.device ? launch.device->handle() : nullptr;
  const Uncancelled here;  // functions may run on this thread
  call<&PJRT_Api::PJRT_LoadedExecutable_Execute>(api_, args, "to run a program");
  if (launch.complete) *launch.complete = Event(api_, complete);
}

void Executable::execute_multi(std::size_t num_devices, std::span<PJRT_Buffer* const> arguments,
                               std::span<PJRT_Buffer*> outputs, std::span<Event> complete,
                               const Launch& launch) const {
  check_outputs(outputs.size(), num_devices * num_outputs_);
  if (num_devices == 0 || arguments.size() % num_devices ||
      (!complete.empty() && complete.size() != num_devices))
    throw Error(ErrorCode::invalid_argument,
                "a run on several devices needs equally many arguments and one event or none for "
                "each; came " +
                    std::to_string(arguments.size()) + " arguments and " +
                    std::to_string(complete.size()) + " events for " + std::to_string(num_devices) +
                    " devices");
  PJRT_ExecuteOptions options = to_options(launch, empty_context_);
  std::vector<PJRT_Buffer* const*> argument_lists(num_devices);
  std::vector<PJRT_Buffer**> output_lists(num_devices);
  std::vector<PJRT_Event*> events(num_devices);
  const std::size_t num_args = arguments.size() / num_devices;
  for (std::size_t i = 0; i < num_devices; ++i) {
    argument_lists[i] = arguments.data() + i * num_args;
    output_lists[i] = outputs.data() + i * num_outputs_;
  }
  auto args = make_args<PJRT_LoadedExecutable_Execute_Args>();
  args.executable = handle();
  args.options = &options;
  args.argument_lists = argument_lists.data();
  args.num_devices = num_devices;
  args.num_args = num_args;
  args.output_lists = output_lists.data();
  args.device_complete_events = complete.empty() ? nullptr : events.data();
  const Uncancelled here;  // functions may run on this thread
  call<&PJRT_Api::PJRT_LoadedExecutable_Execute>(api_, args, "to run a program on several devices");
  for (std::size_t i = 0; i < complete.size(); ++i) complete[i] = Event(api_, events[i]);
}

std::vector<DType> Executable::output_dtypes() const {
  const auto args = ask<&PJRT_Api::PJRT_Executable_OutputElementTypes>(
      api_, description_.get(), "to read an executable's output dtypes");
  std::vector<DType> dtypes;
  for (std::size_t i = 0; i < args.num_output_types; ++i)
    dtypes.push_back(from_buffer_type(number_of(args.output_types[i])));
  return dtypes;
}

std::vector<std::vector<std::int64_t>> Executable::output_dims() const {
  const auto args = ask<&PJRT_Api::PJRT_Executable_OutputDimensions>(
      api_, description_.get(), "to read an executable's output shapes");
  std::vector<std::vector<std::int64_t>> shapes;
  const std::int64_t* dims = args.dims;  // of all outputs, one after another
  for (std::size_t i = 0; i < args.num_outputs; ++i) {
    shapes.emplace_back(dims, dims + args.dim_sizes[i]);
    dims += args.dim_sizes[i];
  }
  return shapes;
}

std::vector<Device> Executable::devices() const {
  const auto args = ask<&PJRT_Api::PJRT_LoadedExecutable_AddressableDevices>(
      api_, handle(), "to list an executable's devices");
  std::vector<Device> devices;
  for (std::size_t i = 0; i < args.num_addressable_devices; ++i)
    devices.emplace_back(api_, args.addressable_devices[i]);
  return devices;
}

std::string Executable::serialize() const {
  if (!compiled_)
    throw Error(ErrorCode::unimplemented,
                "to serialize an executable needs one that was compiled; came one that was loaded "
                "from bytes itself");
  const auto args = ask<&PJRT_Api::PJRT_Executable_Serialize>(api_, description_.get(),
                                                              "to serialize an executable");
  // Frees the bytes also when the copy runs out of memory.
  std::unique_ptr<PJRT_SerializedExecutable, void (*)(PJRT_SerializedExecutable*)> owner(
      args.serialized_executable, args.serialized_executable_deleter);
  return {args.serialized_bytes, args.serialized_bytes_size};
}

OptimizedProgram Executable::optimized_program() const {
  auto program = make_args<PJRT_Program>();
  auto args = make_args<PJRT_Executable_OptimizedProgram_Args>();
  args.executable = description_.get();
  args.program = &program;
  constexpr std::string_view what = "to give its optimized program";
  call<&PJRT_Api::PJRT_Executable_OptimizedProgram>(api_, args, what);  // asks for the size
  OptimizedProgram result;
  result.code.resize(program.code_size);
  program.code = result.code.data();
  call<&PJRT_Api::PJRT_Executable_OptimizedProgram>(api_, args, what);
  result.format.assign(program.format, program.format_size);
  return result;
}

MemoryStats Executable::memory_stats() const {
  using Args = PJRT_Executable_GetCompiledMemoryStats_Args;
  struct {
    Args args = make_args<Args>();
    std::int64_t later[8] = {};  // newer plug-ins fill in what they know, whatever the size says
  } room;
  Args& args = room.args;
  args.executable = description_.get();
  call<&PJRT_Api::PJRT_Executable_GetCompiledMemoryStats>(api_, args,
                                                          "to account for an executable's memory");
  return {args.generated_code_size_in_bytes, args.argument_size_in_bytes,
          args.output_size_in_bytes,         args.alias_size_in_bytes,
          args.temp_size_in_bytes,           args.peak_memory_in_bytes};
}

}  // namespace postern::internal::pjrt
