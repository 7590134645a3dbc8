// Running programs from files: as they stand, by XLA; inside of other programs operation by
// operation, so that whatever there is for programs is there for them. Where sizes are open, so
// too, once for the sizes that come, and where arguments lie over several devices, once for how
// they lie.
#include "file/loaded.h"

#include <postern/devices.h>
#include <postern/native.h>
#include <postern/ops.h>
#include <postern/transforms.h>

#include <algorithm>
#include <optional>
#include <set>

#include "core/check.h"
#include "run/library.h"
#include "run/native.h"
#include "run/sharded.h"
#include "run/start.h"
#include "trace/trace.h"

namespace postern {
using namespace internal;

const std::vector<Type>& Loaded::inputs() const { return program_->inputs; }
const std::vector<Type>& Loaded::outputs() const { return program_->outputs; }
const std::vector<std::string>& Loaded::input_names() const { return program_->input_names; }
const std::vector<std::string>& Loaded::output_names() const { return program_->output_names; }
const std::vector<SavedSite>& Loaded::sites() const { return program_->sites; }
const std::string& Loaded::stablehlo() const { return program_->module->text; }

std::vector<std::string> Loaded::required_functions() const {
  std::set<std::string> names;
  for (const SavedSite& s : program_->sites)
    if (!s.function.empty()) names.insert(s.function);  // prints bring what they do
  return {names.begin(), names.end()};
}

bool file::fits(const Tensor& x, const Type& type) {
  const auto same = [](std::int64_t is, std::int64_t wanted) { return is == wanted || wanted < 0; };
  return x.has_value() && x.dtype() == type.dtype && std::ranges::equal(x.dims(), type.dims, same);
}

namespace {

/// Throws TypeError unless there is an argument of its type for each input of the program.
void require_fit(const detail::LoadedProgram& program, std::span<const Tensor> arguments) {
  const std::vector<Type>& wanted = program.inputs;
  // Every call comes here: the texts of errors are made only for arguments that do not fit.
  if (std::ranges::equal(arguments, wanted, file::fits)) return;
  check(arguments.size() == wanted.size(), "the saved program takes {} arguments {}, {} came",
        wanted.size(), to_string(wanted), arguments.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    check(file::fits(arguments[i], wanted[i]),
          "argument {} of the saved program must be {}, got {}", i, to_string(wanted[i]),
          type_text(arguments[i]));
}

/// Throws TypeError unless the text makes what the file says.
void require_makes(const std::vector<Type>& said, bool makes) {
  check(makes, "the saved program says that its results are {}, its text makes others",
        to_string(said));
}

/// Whether the program is over several devices or processes: it is no part of another one then.
bool runs_alone(const detail::LoadedProgram& program) {
  return program.module->partitioned() || !program.module->global_inputs.empty();
}

/// Whether the program becomes part of one that is being traced. One that runs alone does so at
/// once where its arguments have values; where they are traced, `written` refuses it.
bool joins_trace(const detail::LoadedProgram& program, std::span<const Tensor> arguments) {
  if (!Trace::current()) return false;
  return !runs_alone(program) ||
         std::ranges::any_of(arguments, [](const Tensor& t) { return t.is_traced(); });
}

/// Writes the program's operations into the trace that there is.
Tensors written(const detail::LoadedProgram& program, std::span<const Tensor> arguments) {
  require_fit(program, arguments);
  const run::ProgramModule& module = *program.module;
  if (runs_alone(program))
    throw Error(ErrorCode::unimplemented,
                fmt::format("load: {}: a program over several devices or processes runs alone, "
                            "not inside of another",
                            program.name));
  program.opening([&] {
    program.function = imported::reader_for(program.name)
                           .open(module.text, module.sites, program.name, program.changes);
  });
  Tensors taken;  // the parameters' numbers go on behind the arguments, with the weights
  for (const int number : module.parameters) {
    const auto i = static_cast<std::size_t>(number);
    const bool given = i < arguments.size();
    taken.push_back(given ? arguments[i] : program.weights.at(i - arguments.size()));
  }
  Tensors results = program.function(taken);
  // Of open sizes no more than the dtypes are known.
  const auto same = [](const Tensor& t, const Type& said) { return t.dtype() == said.dtype; };
  require_makes(program.outputs, std::ranges::equal(results, program.outputs, same));
  return results;
}

/// Whether the program's operations can be differentiated: tried once, in a trace of its own.
bool has_derivative(const detail::LoadedProgram& program, std::span<const Tensor> arguments) {
  program.trying([&] {
    std::vector<Type> types;
    for (const Tensor& x : arguments) types.push_back(x.type());
    const auto f = [&](const Tensors& x) { return written(program, x); };
    try {
      trace_program("a derivative", types, [&](TensorSpan x) {
        auto [y, pull_back] = vjp(f, Tensors(x.begin(), x.end()));
        return std::get<0>(pull_back(y));
      });
    } catch (const Error&) {
      program.has_derivative = false;
    }
  });
  return program.has_derivative;
}

/// Writes the program, with the derivative that came along where its operations have none. There a
/// result that has no cotangent gets zeros.
Tensors with_derivative(const detail::LoadedProgram& program, std::span<const Tensor> arguments) {
  if (!program.vjp || has_derivative(program, arguments)) return written(program, arguments);
  // The rules are traced when a derivative is taken, and the caller may have let go by then.
  const auto self = program.shared_from_this();
  const auto f = [self](const Tensors& x) { return written(*self, x); };
  const auto forward = [self](const Tensors& x) { return std::pair{with_derivative(*self, x), x}; };
  const auto backward = [self](Tensors all, const Tensors& cotangents) {
    const std::size_t count = all.size();  // arguments, behind which the cotangents go
    const std::vector<Type>& wanted = self->vjp->inputs;
    for (std::size_t i = 0; i < cotangents.size(); ++i) {
      const bool has = cotangents[i].has_value() && is_differentiable(cotangents[i].dtype());
      all.push_back(has ? cotangents[i] : zeros(wanted.at(count + i)));
    }
    Tensors gradients = with_derivative(*self->vjp, all);
    for (std::size_t i = 0; i < count; ++i)
      if (!is_differentiable(all[i].dtype())) gradients.at(i) = Tensor();
    return gradients;
  };
  return custom_vjp(f, forward, backward)(Tensors(arguments.begin(), arguments.end()));
}

std::vector<const Tensor*> pointers_to(std::span<const Tensor> tensors) {
  std::vector<const Tensor*> pointers;
  for (const Tensor& t : tensors) pointers.push_back(&t);
  return pointers;
}

/// Whether the arguments lie over devices, or on another platform than the default one, or that one
/// cannot call what the program calls.
bool are_elsewhere(const detail::LoadedProgram& program, std::span<const Tensor> arguments) {
  if (std::ranges::any_of(arguments, run::sharding_of)) return true;
  const run::Backend& usual = *run::Runtime::get().backends().front();
  if (!usual.used.calls_back && !program.sites.empty()) return true;
  return run::several_platforms && !usual.has(run::home_of(pointers_to(arguments)).device);
}

/// Whether XLA gets not the module as it came, but what tracing it for these arguments writes.
bool is_jitted(const detail::LoadedProgram& program, std::span<const Tensor> arguments) {
  return program.must_be_traced() || (!runs_alone(program) && are_elsewhere(program, arguments));
}

/// The program as a jitted function of whatever arguments come, made once.
const auto& jitted(const detail::LoadedProgram& program) {
  program.jitting([&] {
    program.jitted.emplace(jit(std::function<Tensors(const Tensors&)>(
        [&program](const Tensors& arguments) { return with_derivative(program, arguments); })));
  });
  return *program.jitted;
}

void require_devices(const detail::LoadedProgram& program) {
  const std::vector<int>& on = program.module->devices;
  if (const std::size_t here = devices().size();
      !on.empty() && static_cast<std::size_t>(std::ranges::max(on)) >= here)
    throw Error(ErrorCode::failed_precondition,
                fmt::format("the saved program runs on the devices {}, this process has {}: set "
                            "POSTERN_CPU_DEVICES or Config::cpu_devices",
                            fmt::join(on, ", "), here));
}

/// The module, with the functions of this platform's overrides in the place of the saved blocks'.
std::shared_ptr<const run::ProgramModule> module_for(const detail::LoadedProgram& program,
                                                     const platforms::Platform& platform) {
  if (program.blocks.empty()) return program.module;
  run::ProgramModule chosen = *program.module;
  static_cast<Module&>(chosen) = file::with_overrides(*program.module, program.blocks, platform);
  return std::make_shared<const run::ProgramModule>(std::move(chosen));
}

/// Throws TypeError unless the text's results are those that the file says. Of a program over
/// several devices the parts' dims have been checked.
void require_results(const detail::LoadedProgram& program, const pjrt::Executable& made) {
  std::vector<Dims> dims;
  std::vector<DType> dtypes;
  for (const Type& t : program.module->results) {
    dims.push_back(t.dims);
    dtypes.push_back(t.dtype);
  }
  require_makes(program.module->results,
                made.output_dtypes() == dtypes &&
                    (program.module->partitioned() || made.output_dims() == dims));
}

/// The program as XLA has compiled it, once, for the device that it names.
const std::shared_ptr<const run::CompiledProgram>& compiled(const detail::LoadedProgram& program) {
  require_devices(program);
  program.compiling([&] {
    const std::vector<int>& devices = program.module->devices;
    const run::AtDevice there(devices.empty() ? 0 : devices.front());
    const platforms::Platform& platform = platforms::current();
    for (const std::string& handler : program.handlers) run::require_handler(handler, platform);
    auto compiled = std::make_shared<const run::CompiledProgram>(
        module_for(program, platform), program.inputs.size(), program.weights);
    require_results(program, compiled->executable());
    program.compiled = std::move(compiled);
  });
  return program.compiled;
}

/// Compiled, once these arguments are found to fit.
const std::shared_ptr<const run::CompiledProgram>& compiled_for(
    const detail::LoadedProgram& program, const std::vector<Tensor>& arguments) {
  require_devices(program);
  require_fit(program, arguments);
  return compiled(program);
}

std::vector<Tensor> run_loaded(const detail::LoadedProgram& program,
                               const std::vector<Tensor>& arguments, const RunOptions* options) {
  const auto& compiled = compiled_for(program, arguments);
  std::vector<Tensor> results(program.outputs.size());
  std::optional<internal::run::RunRequest> request;
  if (options) request.emplace(*options, compiled->module().sites);
  compiled->run(pointers_to(arguments), results, nullptr, request ? &*request : nullptr);
  return results;
}

}  // namespace

std::vector<Tensor> Loaded::run(const std::vector<Tensor>& arguments, Place place) const {
  PlaceScope at(place.known() ? place : program_->place);
  if (program_->open_file) return Loaded(file::instance_for(*program_, arguments)).run(arguments);
  if (joins_trace(*program_, arguments)) return with_derivative(*program_, arguments);
  if (is_jitted(*program_, arguments)) return jitted(*program_)(arguments);
  return run_loaded(*program_, arguments, nullptr);
}

std::vector<Tensor> Loaded::run(const std::vector<Tensor>& arguments, const RunOptions& options,
                                Place place) const {
  PlaceScope at(place);
  if (program_->open_file)
    return Loaded(file::instance_for(*program_, arguments)).run(arguments, options, place);
  if (is_jitted(*program_, arguments)) return jitted(*program_).run(options, arguments);
  std::vector<Tensor> results = run_loaded(*program_, arguments, &options);
  for (const Tensor& t : results) t.block_until_ready();
  return results;
}

void Loaded::compile(Place place) const {
  PlaceScope at(place);
  if (!program_->must_be_traced() && !program_->open_file) static_cast<void>(compiled(*program_));
}

Native native(const Loaded& program, const std::vector<Type>& types, Place place) {
  PlaceScope at(place);
  const detail::LoadedProgram& loaded = *program.internal();
  Tensors given;
  for (const Type& t : types.empty() ? loaded.inputs : types) given.push_back(abstract(t));
  if (loaded.open_file) return native(Loaded(file::instance_for(loaded, given)), types, place);
  require_fit(loaded, given);
  if (loaded.must_be_traced()) return native(jitted(loaded).lower(given));
  return Native(std::make_shared<const detail::NativeProgram>(compiled(loaded), loaded.inputs));
}

Run<std::vector<Tensor>> Loaded::start(const std::vector<Tensor>& arguments,
                                       const RunOptions& options, Place place) const {
  PlaceScope at(place);
  if (program_->open_file)
    return Loaded(file::instance_for(*program_, arguments)).start(arguments, options, place);
  if (is_jitted(*program_, arguments)) return jitted(*program_).start_with(options, arguments);
  const auto& program = compiled_for(*program_, arguments);
  return {detail::start_run(program, arguments, options, program->module().sites),
          std::vector<Tensor>(outputs().size())};
}

}  // namespace postern
