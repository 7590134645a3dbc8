// Running compiled programs on the caller's memory.
//
// To make a buffer costs XLA more than a short program does. So a call's arguments go through
// buffers that stay (staging.h), of which each call that is under way has a set for itself: over
// memory of ours, to which small arguments are copied, or over the caller's, which is often the
// same the next time. Results are copied from XLA's memory to the caller's when the run is over.
#include "run/native.h"

#include <postern/devices.h>
#include <postern/native.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/fork.h"
#include "host/spin.h"
#include "run/array.h"
#include "run/runtime.h"
#include "run/unwatched.h"

namespace postern {
using namespace internal;

// Runs one that calls nobody. Takes a lane as any plain run does; hands XLA a buffer for each
// argument, of `in_place` and so ready for the next call, and for each capture; waits until XLA
// says that all is done, spinning first; copies the results out, whose memory goes with this call.
// What fails in XLA is thrown with the FFI targets that the program calls, and `in_place` must then
// not be used again: XLA may still read it.
void run::CompiledProgram::run_in_place(std::span<const void* const> arguments,
                                        std::span<const Type> types, std::span<void* const> results,
                                        ArgumentsInPlace& in_place) const {
  Runtime& runtime = Runtime::get();
  int device = default_device();
  if (!module_->devices.empty()) device = module_->devices.front();
  if (!backend_->has(device)) device = backend_->first_device;
  Lane& lane = runtime.pass(device);
  Runtime::Passed passed(lane);  // until XLA has the run
  const auto [executable, named] = code_->on(lane);
  detail::SmallVector<PJRT_Buffer*, 16> in(module_->parameters.size());
  std::vector<std::shared_ptr<const void>> keep;  // of captures that lie elsewhere
  std::vector<std::int64_t> undonated;            // arguments are the caller's memory, or kept ones
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto input = static_cast<std::size_t>(module_->parameters[i]);
    if (takes(i)) undonated.push_back(static_cast<std::int64_t>(i));
    if (input < arguments_) {
      in[i] = in_place.take(i, types[input], arguments[input], lane).handle();
      continue;
    }
    std::shared_ptr<const void> held;
    in[i] = on_lane(captures_[input - arguments_], lane, held)->handle();
    if (held) keep.push_back(std::move(held));
  }
  ResultBuffers out(executable.api(), results.size());
  const bool timed = host::timeline::on();
  const auto start = timed ? host::timeline::Clock::now() : host::timeline::Clock::time_point();
  pjrt::Event complete;
  try {
    executable.execute({in.data(), in.size()}, out.span(),
                       {.device = named, .complete = &complete, .keep = undonated});
    passed.leave();
    if (timed)
      follow(complete, host::timeline::Kind::execute, host::timeline::module_name(module_->text),
             device, start);
    static thread_local host::Spin spin;
    if (!spin.until([&] { return complete.is_ready(); })) refuse_forked();
    try {
      complete.await();
    } catch (const Error&) {  // the results say better what went wrong
      for (std::size_t i = 0; i < results.size(); ++i) out.take(i).ready().await();
      throw;
    }
    for (std::size_t i = 0; i < results.size(); ++i)
      copy_out(out.take(i), module_->results[i], results[i]);
  } catch (const Error&) {
    rethrow_naming(targets_);
  }
}

namespace detail {

NativeProgram::NativeProgram(std::shared_ptr<const run::CompiledProgram> program,
                             std::vector<Type> in)
    : inputs(std::move(in)), outputs(program->module().results), program_(std::move(program)) {
  const run::ProgramModule& module = program_->module();
  if (module.partitioned() || !module.global_inputs.empty())
    throw Error(ErrorCode::unimplemented,
                "native: a program over several devices or processes has no memory of one caller");
}

NativeProgram::~NativeProgram() {
  for (const auto& idle : idle_) delete idle.load();
}

static std::size_t first_slot(std::size_t count) {  // where this thread looks first
  static thread_local const std::size_t number =
      std::hash<std::thread::id>()(std::this_thread::get_id());
  return number % count;
}

std::unique_ptr<NativeProgram::Arguments> NativeProgram::take() const {
  const std::size_t first = first_slot(kept);
  for (std::size_t i = 0; i < kept; ++i)
    if (Arguments* const found = idle_[(first + i) % kept].exchange(nullptr))
      return std::unique_ptr<Arguments>(found);
  return std::make_unique<Arguments>();
}

void NativeProgram::give_back(std::unique_ptr<Arguments> arguments) const {
  const std::size_t first = first_slot(kept);
  for (std::size_t i = 0; i < kept; ++i) {
    Arguments* empty = nullptr;
    if (!idle_[(first + i) % kept].compare_exchange_strong(empty, arguments.get())) continue;
    static_cast<void>(arguments.release());
    return;
  }
}

/// Runs one that calls back: its functions, limits and failures are those of any run.
void NativeProgram::run_by_tensors(const void* const* in, void* const* out) const {
  Tensors arguments, results(outputs.size());
  std::vector<const Tensor*> given;
  for (std::size_t i = 0; i < inputs.size(); ++i) arguments.emplace_back(inputs[i], in[i]);
  for (const Tensor& t : arguments) given.push_back(&t);
  program_->run(given, results);
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::shared_ptr<const void> keep;
    const void* const bytes = run::host_view(results[i], keep);
    std::memcpy(out[i], bytes, outputs[i].byte_size());
  }
}

static void require_memory(std::span<const void* const> memory, const std::vector<Type>& types,
                           const char* what) {
  for (std::size_t i = 0; i < memory.size(); ++i)
    if (!memory[i] && types[i].size() > 0) [[unlikely]]
      throw_type_error(
          fmt::format("native: {} {}, a {}, points nowhere", what, i, to_string(types[i])));
}

void NativeProgram::run(const void* const* in, void* const* out) const {
  require_memory({in, inputs.size()}, inputs, "argument");
  require_memory({out, outputs.size()}, outputs, "result");
  if (program_->calls()) [[unlikely]]
    return run_by_tensors(in, out);
  std::unique_ptr<Arguments> arguments = take();
  program_->run_in_place({in, inputs.size()}, inputs, {out, outputs.size()}, *arguments);
  give_back(std::move(arguments));  // where it threw, XLA may not be done with them
}

}  // namespace detail

const std::vector<Type>& Native::inputs() const { return program_->inputs; }
const std::vector<Type>& Native::outputs() const { return program_->outputs; }

void Native::operator()(const void* const* in, void* const* out) const { program_->run(in, out); }

Native native(const Lowered& program, Place place) {
  PlaceScope at(place);
  check(!program.open(), "native: the program's sizes are open; lower it for types that have all");
  std::vector<Type> inputs = program.program().inputs();
  inputs.resize(inputs.size() - program.captures().size());
  auto compiled = std::make_shared<const run::CompiledProgram>(
      std::static_pointer_cast<const run::ProgramModule>(program.internal()), inputs.size(),
      program.captures());
  return Native(
      std::make_shared<const detail::NativeProgram>(std::move(compiled), std::move(inputs)));
}

}  // namespace postern
