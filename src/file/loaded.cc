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

/// Whether it becomes part of a program that is traced. What is over several devices runs alone, at
/// once where its arguments have values.
bool is_traced(const detail::LoadedProgram& program, std::span<const Tensor> arguments) {
  if (!Trace::current()) return false;
  const bool alone = program.module->partitioned() || !program.module->global_inputs.empty();
  return !alone || std::ranges::any_of(arguments, [](const Tensor& t) { return t.is_traced(); });
}

/// Writes the program's operations into the trace that there is.
Tensors written(const detail::LoadedProgram& program, std::span<const Tensor> arguments) {
  require_fit(program, arguments);
  const run::ProgramModule& module = *program.module;
  if (module.partitioned() || !module.global_inputs.empty())
    throw Error(ErrorCode::unimplemented,
                fmt::format("load: {}: a program over several devices or processes runs alone, "
                            "not inside of another",
                            program.name));
  program.opening([&] {
    program.function = imported::reader_for(program.name)
                           .open(module.text, module.sites, program.name, program.changes);
  });
  Tensors taken;
  for (const int i : module.parameters) {
    const auto at = static_cast<std::size_t>(i);
    const bool given = at < arguments.size();
    taken.push_back(given ? arguments[at] : program.weights.at(at - arguments.size()));
  }
  return program.function(taken);
}

/// Whether its operations can be differentiated.
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

/// Writes the program, with the derivative that came along where its operations have none.
Tensors traced(const detail::LoadedProgram& program, std::span<const Tensor> arguments) {
  if (!program.vjp || has_derivative(program, arguments)) return written(program, arguments);
  // The rules are traced when a derivative is taken, and the caller may have let go by then.
  const auto self = program.shared_from_this();
  const auto f = [self](const Tensors& x) { return written(*self, x); };
  const auto forward = [self](const Tensors& x) { return std::pair{traced(*self, x), x}; };
  const auto backward = [self](Tensors all, const Tensors& cotangents) {
    const std::size_t count = all.size();
    const std::vector<Type>& wanted = self->vjp->inputs;
    for (std::size_t i = 0; i < cotangents.size(); ++i) {
      const bool has = cotangents[i].has_value() && is_differentiable(cotangents[i].dtype());
      all.push_back(has ? cotangents[i] : zeros(wanted.at(count + i)));
    }
    Tensors out = traced(*self->vjp, all);
    for (std::size_t i = 0; i < count; ++i)
      if (!is_differentiable(all[i].dtype())) out.at(i) = Tensor();
    return out;
  };
  return custom_vjp(f, forward, backward)(Tensors(arguments.begin(), arguments.end()));
}

/// Whether they lie over devices, or on another platform than the default one, or that one cannot
/// call what the program calls.
bool are_elsewhere(const detail::LoadedProgram& program, std::span<const Tensor> arguments) {
  if (std::ranges::any_of(arguments, run::sharding_of)) return true;
  const run::Backend& usual = *run::Runtime::get().backends().front();
  if (!usual.used.calls_back && !program.sites.empty()) return true;
  if (!run::several_platforms) return false;
  std::vector<const Tensor*> pointers;
  for (const Tensor& t : arguments) pointers.push_back(&t);
  return !usual.has(run::home_of(pointers).device);
}

/// Whether it is for whatever sizes come, or for where the arguments lie.
bool is_jitted(const detail::LoadedProgram& program, std::span<const Tensor> arguments) {
  const bool alone = program.module->partitioned() || !program.module->global_inputs.empty();
  return program.is_traced() || (!alone && are_elsewhere(program, arguments));
}

/// The program for what comes.
const auto& jitted(const detail::LoadedProgram& program) {
  program.jitting([&] {
    program.jitted.emplace(jit(std::function<Tensors(const Tensors&)>(
        [&program](const Tensors& arguments) { return traced(program, arguments); })));
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

const std::shared_ptr<const run::CompiledProgram>& compiled(const detail::LoadedProgram& program) {
  const std::vector<Type>&wanted = program.inputs, &results = program.module->results;
  require_devices(program);
  program.compiling([&] {
    std::shared_ptr<const run::ProgramModule> module = program.module;
    int device = 0;
    if (!module->devices.empty()) device = module->devices.front();
    const run::AtDevice there(device);
    const platforms::Platform& platform = platforms::current();
    for (const std::string& handler : program.handlers) run::require_handler(handler, platform);
    if (!program.blocks.empty()) {
      run::ProgramModule chosen = *module;
      static_cast<Module&>(chosen) = file::with_overrides(*module, program.blocks, platform);
      module = std::make_shared<const run::ProgramModule>(std::move(chosen));
    }
    auto compiled = std::make_shared<const run::CompiledProgram>(std::move(module), wanted.size(),
                                                                 program.weights);
    std::vector<Dims> dims;
    std::vector<DType> dtypes;
    for (const Type& t : results) {
      dims.push_back(t.dims);
      dtypes.push_back(t.dtype);
    }
    // Of several devices the parts' dims have been checked.
    const pjrt::Executable& made = compiled->executable();
    check(made.output_dtypes() == dtypes &&
              (program.module->partitioned() || made.output_dims() == dims),
          "the saved program says that its results are {}, its text makes others",
          to_string(results));
    program.compiled = std::move(compiled);
  });
  return program.compiled;
}

/// Compiled, once these arguments are found to fit.
const std::shared_ptr<const run::CompiledProgram>& ready(const detail::LoadedProgram& program,
                                                         const std::vector<Tensor>& arguments) {
  require_devices(program);
  require_fit(program, arguments);
  return compiled(program);
}

std::vector<Tensor> run_loaded(const detail::LoadedProgram& program,
                               const std::vector<Tensor>& arguments, const RunOptions* options) {
  const auto& compiled = ready(program, arguments);
  std::vector<const Tensor*> pointers;
  for (const Tensor& t : arguments) pointers.push_back(&t);
  std::vector<Tensor> results(program.outputs.size());
  std::optional<internal::run::RunRequest> request;
  if (options) request.emplace(*options, compiled->module().sites);
  compiled->run(pointers, results, nullptr, request ? &*request : nullptr);
  return results;
}

}  // namespace

std::vector<Tensor> Loaded::run(const std::vector<Tensor>& arguments, Place place) const {
  PlaceScope at(place.known() ? place : program_->place);
  if (program_->open_file) return Loaded(file::instance_for(*program_, arguments)).run(arguments);
  if (is_traced(*program_, arguments)) return traced(*program_, arguments);
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
  if (!program_->is_traced() && !program_->open_file) static_cast<void>(compiled(*program_));
}

Native native(const Loaded& program, const std::vector<Type>& types, Place place) {
  PlaceScope at(place);
  const detail::LoadedProgram& loaded = *program.internal();
  Tensors given;
  for (const Type& t : types.empty() ? loaded.inputs : types) given.push_back(abstract(t));
  if (loaded.open_file) return native(Loaded(file::instance_for(loaded, given)), types, place);
  require_fit(loaded, given);
  if (loaded.is_traced()) return native(jitted(loaded).lower(given));
  return Native(std::make_shared<const detail::NativeProgram>(compiled(loaded), loaded.inputs));
}

Run<std::vector<Tensor>> Loaded::start(const std::vector<Tensor>& arguments,
                                       const RunOptions& options, Place place) const {
  PlaceScope at(place);
  if (program_->open_file)
    return Loaded(file::instance_for(*program_, arguments)).start(arguments, options, place);
  if (is_jitted(*program_, arguments)) return jitted(*program_).start_with(options, arguments);
  return {detail::start_run(ready(*program_, arguments), arguments, options),
          std::vector<Tensor>(outputs().size())};
}

}  // namespace postern
