// Compiling and running.
#include "run/compiled.h"

#include <postern/detail/small_vector.h>
#include <algorithm>
#include <limits>

#include "block/kernel_parts.h"
#include "control/residual_store.h"
#include "core/check.h"
#include "core/fork.h"
#include "core/lists.h"
#include "host/failure_text.h"
#include "host/live.h"
#include "host/process_call.h"
#include "host/timeline.h"
#include "run/array.h"
#include "run/interpreted.h"
#include "run/partitioned.h"
#include "run/sharded.h"
#include "run/unwatched.h"
#include "shard/processes.h"
#include "shard/shard_map.h"
#include "trace/literal.h"

namespace postern::internal::run {

using detail::Access;

namespace {

/// Has captures of at most so many bytes written into the text. Returns the memory that the options
/// point at from then on.
std::vector<std::shared_ptr<const void>> write_out(LoweringOptions& options, std::size_t arguments,
                                                   const Tensors& captures, std::size_t most) {
  std::vector<std::shared_ptr<const void>> keep;
  options.constants.resize(arguments + captures.size(), nullptr);
  for (std::size_t i = 0; i < captures.size(); ++i) {
    const Tensor& t = captures[i];
    if (!t.has_value() || t.is_traced() || t.type().byte_size() > most) continue;
    keep.push_back(host_bytes(t, "a captured tensor"));
    options.constants[arguments + i] = keep.back().get();
  }
  return keep;
}

/// Returns the program with what has no text of its own expanded into what has.
Expanded with_all_expanded(Expanded program) {
  expand_processes(program);
  program.program = with_offloaded_expanded(program.program);
  return program;
}

/// Makes the text, with captures of at most so many bytes; notes how things lie over processes.
ProgramModule module_of(LoweringOptions& options, Expanded here, std::size_t arguments,
                        const Tensors& captures, std::size_t most) {
  options.inputs = std::move(here.inputs);
  options.outputs = std::move(here.outputs);
  const auto keep = write_out(options, arguments, captures, most);
  ProgramModule out{Lowering(options).module(*here.program), {}, {}, here.any_number};
  if (here.any_global) {
    out.global_inputs = std::move(here.global_inputs);
    out.global_results = std::move(here.global_outputs);
  }
  return out;
}

/// Returns those devices' platform, else that which this thread's programs are for.
const Backend& backend_for(const std::vector<int>& devices) {
  if (devices.empty()) return Runtime::get().here();
  return Runtime::get().backend_of(devices[0]);
}

/// Returns the meshes of what is in the program, then of what it is given and gives.
std::vector<Mesh> all_meshes_of(const Expanded& here) {
  std::vector<Mesh> meshes = meshes_of(*here.program);
  for (const auto* list : {&here.inputs, &here.outputs})
    for (const std::optional<Sharding>& s : *list)
      if (s) meshes.push_back(s->mesh());
  return meshes;
}

}  // namespace

std::shared_ptr<const ProgramModule> lower(const Lowerable& program) {
  LoweringOptions options;
  options.name = program.name;
  options.donated = program.donated;
  Expanded::Shardings inputs = program.arguments_on;
  inputs.resize(program.program->inputs.size());
  for (std::size_t i = 0; i < program.captures.size(); ++i)
    if (const Sharding* s = run::sharding_of(program.captures[i]))
      inputs[program.arguments + i] = *s;
  Expanded here = with_all_expanded({program.program, std::move(inputs), program.results_on});
  const std::vector<Mesh> meshes = all_meshes_of(here);
  options.devices = common_devices(meshes);
  const Backend& backend = backend_for(options.devices);
  const AtDevice there(backend.first_device);
  platforms::lower_for(options, &backend.platform());
  if (options.devices.size() > 1)
    here.program = blocks::with_kernels_on_parts(here.program, here.inputs);
  options.gather_limit = program.gather_limit;
  if (options.gather_limit == 0) options.gather_limit = Runtime::get().config().gather_limit;
  if (!meshes.empty()) options.mesh = meshes.front();
  // An empty one is not written out: of what lies over processes, all of which have the same text.
  Tensors captures = program.captures;
  for (std::size_t i = 0; i < captures.size(); ++i)
    if (here.any_global && here.global_inputs[program.arguments + i]) captures[i] = Tensor();
  ProgramModule out = module_of(options, std::move(here), program.arguments, captures, 4096);
  out.backend = &backend;
  return std::make_shared<const ProgramModule>(std::move(out));
}

std::shared_ptr<const ProgramModule> lower_for_file(const Lowered& lowered) {
  const auto& module = static_cast<const ProgramModule&>(*lowered.internal());
  const ProgramPtr program = lowered.program().internal();
  LoweringOptions options;
  options.name = program->name;
  platforms::lower_for(options, nullptr);
  options.devices = module.devices;
  options.mesh = module.mesh;
  // All lies as it did for this process, where captures that were written out are no parameters.
  const std::size_t arguments = program->inputs.size() - lowered.captures().size();
  Expanded::Shardings inputs(program->inputs.size()), outputs = module.result_shardings;
  for (std::size_t i = 0; i < module.parameter_shardings.size(); ++i)
    inputs[size_of(module.parameters[i])] = module.parameter_shardings[i];
  for (std::size_t i = 0; i < module.global_inputs.size(); ++i) {
    if (!module.global_inputs[i]) continue;
    check(i < arguments,
          "save: the program has captured a tensor that lies over processes, {}, which a file "
          "cannot hold; make it an argument",
          to_string(*module.global_inputs[i]));
    inputs[i] = module.global_inputs[i];
  }
  outputs.resize(program->outputs.size());
  for (std::size_t i = 0; i < module.global_results.size(); ++i)
    if (module.global_results[i]) outputs[i] = module.global_results[i];
  Expanded expanded = with_all_expanded({program, std::move(inputs), std::move(outputs)});
  constexpr std::size_t all_written_out = std::numeric_limits<std::size_t>::max();
  return std::make_shared<const ProgramModule>(
      module_of(options, std::move(expanded), arguments, lowered.captures(), all_written_out));
}

/// Refuses results larger than a process can address, at which some builds of XLA divide by zero.
static void require_addressable(const ProgramModule& module) {
  constexpr std::size_t most = std::size_t{1} << 47;
  for (const Type& t : module.results)
    if (t.byte_size() >= most)
      throw Error(ErrorCode::resource_exhausted,
                  fmt::format("there is no memory for a result of type {}", to_string(t)));
}

/// Refuses a program with host functions where the plug-in cannot call them.
static void require_calls(const ProgramModule& module, const Backend& backend) {
  if (module.sites.empty() || backend.used.calls_back) return;
  const SiteSpec& site = *module.sites.front();
  PlaceScope at(site.place);
  const char* remedy = "run it with Mode::staged";
  if (module.partitioned())
    remedy = "one over several devices cannot be cut into stages";
  else if (site.shard.mesh || (site.function && host::is_of_processes(*site.function)))
    remedy = "a shard_map cannot be cut into stages";
  throw Error(
      ErrorCode::unimplemented,
      fmt::format("{}: the plug-in for {} cannot call host functions from a compiled program; {}",
                  host::describe(site), backend.name, remedy));
}

CompiledProgram::CompiledProgram(std::shared_ptr<const ProgramModule> module, std::size_t arguments,
                                 Tensors captures)
    : module_(std::move(module)),
      backend_(module_->backend),
      arguments_(arguments),
      captures_(std::move(captures)),
      targets_(targets_of(module_->text)) {
  refuse_forked();
  require_addressable(*module_);
  if (!backend_) backend_ = &backend_for(module_->devices);
  for (const SitePtr& s : module_->sites) {
    sites_.emplace_back(s, s->function);
    named_ = named_ || (!s->function && s->enters());
    of_processes_ = of_processes_ || (s->function && host::is_of_processes(*s->function));
    reach_ = std::max(reach_, reach_of(*s));
    queues_work_ = queues_work_ || s->memory != Memory::host;
    if (s->call.device >= 0) placed_.push_back(s);
  }
  for (std::size_t i = 0; i < captures_.size() && !module_->global_inputs.empty(); ++i)
    if (const auto& over = module_->global_inputs[arguments_ + i])
      captures_[i] = part_here(captures_[i], *over);
  require_calls(*module_, *backend_);
  if (module_->partitioned())
    partitioned_ = load_partitioned(*module_);
  else
    code_ = compiled_text(module_->text, *backend_);
  host::add_live_hooks(std::string(host::timeline::module_name(module_->text)), module_->sites);
}

CompiledProgram::~CompiledProgram() = default;

const pjrt::Executable& CompiledProgram::executable() const {
  if (partitioned_) return partitioned_->main();
  return code_->main();
}

/// The buffers of one run's arguments, and what keeps them alive until it has been queued.
struct CompiledProgram::Arguments {
  using Keep = std::vector<std::shared_ptr<const void>>;
  detail::SmallVector<PJRT_Buffer*, 16> buffers;
  Keep keep;
  Runs pending;  // whose failure would be this run's too
  Donation donation;
  StagedOperands staged;

  /// `own`: how many of the lane's `dispatching` are this run: 0 where it has taken the lane.
  std::span<PJRT_Buffer* const> collect(const CompiledProgram& program,
                                        std::span<const Tensor* const> arguments, Lane& lane,
                                        int own) {
    const std::size_t n = program.module_->parameters.size();
    buffers.resize(n);
    if (!program.module_->donated.empty()) program.refuse_donated_twice(arguments);
    for (std::size_t i = 0; i < n; ++i) {
      const Tensor& t = program.parameter(i, arguments);
      std::shared_ptr<const void> held;
      buffers[i] = on_lane(t, lane, held, program.takes(i) ? nullptr : &staged)->handle();
      if (held) keep.push_back(std::move(held));
      add_pending(*Access::value(t), pending);
      if (!program.takes(i)) continue;
      donation.take(Access::pointer(t), i);
      // One that is being queued may have the buffer already; who comes now finds it donated. XLA
      // would have both wait: this for that one's use, that one for what was queued before it.
      if (lane.dispatching.load() > own) donation.keep(i);
    }
    return {buffers.data(), n};
  }

  /// What must live until the run is complete: arrays of which other lanes have views. Plug-ins
  /// for devices of their own also let go of a view of the run's own before the device has read it.
  std::shared_ptr<const void> views() {
    if (keep.empty()) [[likely]]
      return {};
    return std::make_shared<const Keep>(std::move(keep));
  }

  /// Throws what an error of XLA came of, if it is known: a failed run that makes an argument, or
  /// another thread that took one's memory.
  void rethrow_cause(const CompiledProgram& program, std::span<const Tensor* const> given) const {
    rethrow_failure(pending);
    for (std::size_t i = 0; i < program.module_->parameters.size(); ++i) {
      const auto input = size_of(program.module_->parameters[i]);
      const bool is_capture = input >= given.size();
      if (!is_capture && !program.takes(i)) detail::refuse_donated(*Access::value(*given[input]));
    }
  }
};

void CompiledProgram::ready_on(const Lane& lane) const {
  const auto reserve = lane.platform().reserve;
  const std::uint64_t bit = std::uint64_t{1} << (lane.device % 64);
  if (!reserve || (readied_.load(std::memory_order_relaxed) & bit)) return;
  reserve(lane.handle, sites_);
  readied_.fetch_or(bit);
}

bool CompiledProgram::takes(std::size_t parameter) const {
  return !module_->donated.empty() &&
         std::ranges::find(module_->donated, module_->parameters[parameter]) !=
             module_->donated.end();
}

const Tensor& CompiledProgram::parameter(std::size_t i,
                                         std::span<const Tensor* const> arguments) const {
  const auto input = size_of(module_->parameters[i]);
  if (input < arguments_) return *arguments[input];
  return captures_[input - arguments_];
}

/// Returns the device that the program names, if it is not the first: a mesh of one device may.
/// Else where the arguments are.
Home CompiledProgram::home(std::span<const Tensor* const> arguments) const {
  const bool is_named = !module_->devices.empty() && module_->devices.front() != 0;
  const Home home =
      is_named ? Home{.device = module_->devices.front(), .put = true} : home_of(arguments);
  if (!several_platforms.load(std::memory_order_relaxed) || backend_->has(home.device)) [[likely]]
    return home;
  check(!home.put,
        "a program that was compiled for {} runs there; its arguments were put on device {}, see "
        "device_put",
        backend_->name, host::device_name(home.device));
  return {.device = backend_->first_device, .put = false};
}

void CompiledProgram::refuse_donated_twice(std::span<const Tensor* const> arguments) const {
  detail::SmallVector<const detail::Value*, 16> given(module_->parameters.size());
  for (std::size_t i = 0; i < given.size(); ++i) given[i] = Access::value(parameter(i, arguments));
  for (std::size_t i = 0; i < given.size(); ++i)
    if (takes(i)) refuse_twice({given.data(), given.size()}, i);
}

/// Makes tensors of a run's buffers. `record`: null if it has ended; `ready`: nobody need ask them.
static void make_results(const Module& module, const std::shared_ptr<const std::string>& targets,
                         ResultBuffers& buffers, const Lane& lane, Home home,
                         const std::shared_ptr<RunRecord>& record, const Runs& pending, bool ready,
                         std::span<Tensor> results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    auto value = std::make_shared<DeviceValue>(module.results[i], buffers.take(i), lane.index,
                                               home.device, record);
    value->placed = home.put;
    value->targets = targets;
    value->after = pending;
    value->ready.store(ready, std::memory_order_relaxed);  // nobody else has seen it yet
    results[i] = Access::make(std::move(value));
  }
}

void CompiledProgram::run(std::span<const Tensor* const> arguments, std::span<Tensor> results,
                          std::shared_ptr<RunRecord> record, RunRequest* request) const {
  if (module_->global_inputs.empty()) [[likely]]
    return run_here(arguments, results, std::move(record), request);
  const auto module = module_;  // a function that is called may drop this program
  std::vector<const Tensor*> here(arguments.begin(), arguments.end());
  Tensors parts;
  parts.reserve(here.size());  // `here` points at them
  for (std::size_t i = 0; i < here.size(); ++i) {
    if (!module->global_inputs[i]) continue;
    parts.push_back(part_here(*here[i], *module->global_inputs[i]));
    here[i] = &parts.back();
  }
  run_here(here, results, std::move(record), request);
  for (std::size_t i = 0; i < results.size(); ++i)
    if (module->global_results[i])
      results[i] = over_processes(results[i], *module->global_results[i]);
}

void CompiledProgram::run_here(std::span<const Tensor* const> arguments, std::span<Tensor> results,
                               std::shared_ptr<RunRecord> record, RunRequest* request) const {
  std::optional<RunRequest> of_part;
  if (!sites_.empty() && !record && !request)
    if (WholeRun whole = WholeRunScope::take(); whole.run) [[unlikely]]
      request = &of_part.emplace(std::move(whole));
  if (partitioned_) [[unlikely]]
    run_partitioned(arguments, results, std::move(record), request);
  else if (sites_.empty() && !record && !request) [[likely]]
    run_plain(arguments, results);
  else
    run_calling(arguments, results, std::move(record), request);
}

/// Queues a run that calls nobody and goes on; where XLA did it at once, the results are ready.
void CompiledProgram::run_plain(std::span<const Tensor* const> arguments,
                                std::span<Tensor> results) const {
  Runtime& runtime = Runtime::get();
  const Home home = this->home(arguments);
  Lane& lane = runtime.pass(home.device);
  const Runtime::Passed passed{lane};
  const auto [executable, named] = code_->on(lane);
  Arguments buffers;
  ResultBuffers out(executable.api(), results.size());
  bool ready = false;
  try {
    const bool timed = host::timeline::on();
    const auto start = timed ? host::timeline::Clock::now() : host::timeline::Clock::time_point();
    pjrt::Event complete;
    const auto in = buffers.collect(*this, arguments, lane, /*own=*/1);
    executable.execute(in, out.span(),
                       {.device = named, .complete = &complete, .keep = buffers.donation.kept()});
    buffers.donation.stands();
    ready = complete.is_ready();
    buffers.staged.settle(lane, complete, ready);
    using host::timeline::Kind;
    if (timed || !ready)
      follow(complete, InterpretedRun::current() ? Kind::stage : Kind::execute,
             host::timeline::module_name(module_->text), home.device, start, buffers.views());
    ready = ready && !complete.error();
  } catch (const Error&) {
    buffers.rethrow_cause(*this, arguments);
    rethrow_naming(targets_);
  }
  make_results(*module_, targets_, out, lane, home, nullptr, buffers.pending, ready, results);
}

// Runs a program that calls back, or one that `start` began (`record` is then the run's, else
// null).
//
// 1. Takes a lane, which no other run has while this one may be in its calls, and readies the
//    record of the run.
// 2. Executes with the arguments' buffers; host functions may run on this thread meanwhile.
// 3. Ends the record when XLA says that it is complete: now, or from XLA's thread later.
//
// Afterwards `results` hold the outputs. Those of a run that goes on know its record, and waiting
// for them throws its failure; a run that has ended badly throws here. Whatever is thrown, the lane
// has been left, and arguments that were donated are gone only if XLA took them.
void CompiledProgram::run_calling(std::span<const Tensor* const> arguments,
                                  std::span<Tensor> results, std::shared_ptr<RunRecord> record,
                                  RunRequest* request) const {
  Runtime& runtime = Runtime::get();
  const Home home = this->home(arguments);
  for (const SitePtr& s : placed_) {
    PlaceScope at(s->place);
    check(s->call.device == home.device,
          "{} is for device {}, but its program runs on device {} alone; give arguments that are "
          "spread over both, or use Mode::staged",
          host::describe(*s), s->call.device, home.device);
  }
  const bool waits = !record;  // what `start` began is for itself
  if (waits) wait_for_earlier(reach_, {&home.device, 1});
  // Made before there is a lane to give back: there may be no memory for them.
  Arguments buffers;
  ResultBuffers out(backend_->plugin->api(), results.size());
  pjrt::Event complete;
  std::optional<host::Deadline> deadline;
  Lane& lane = runtime.take(home.device, !sites_.empty());
  if (record) lane.started.store(true);
  try {
    if (!record && (record = std::move(lane.idle))) record->floats = host::FloatState::now();
    if (!record) record = std::make_shared<RunRecord>(*backend_);
    if (request) request->give(*record, deadline);
    record->begin(shared_from_this(), lane);
  } catch (...) {
    runtime.leave(lane);
    throw;
  }
  try {
    const CompiledText::Choice choice = code_->on(lane);
    const auto in = buffers.collect(*this, arguments, lane, /*own=*/0);
    record->views = buffers.views();  // before XLA has the run: there may be no memory for it
    const host::Wait blocked(record->name());  // as long as XLA runs it on this thread
    choice.executable.execute(in, out.span(),
                              {.context = &record->execute_context(),
                               .device = choice.device,
                               .complete = &complete,
                               .number = record->mark,
                               .keep = buffers.donation.kept()});
    buffers.donation.stands();
    record->await_functions({&complete, 1});
  } catch (...) {
    const RunRecord::Owner owner = record->release();
    buffers.rethrow_cause(*this, arguments);
    const host::Outcome how = record->outcome();
    if (how != host::Outcome::running && how != host::Outcome::done) {
      buffers.donation.stands();
      record->rethrow();
    }
    rethrow_naming(targets_);
  }
  // It is over in time: from here on the deadline must not fail it.
  if (deadline && complete.is_ready() && !record->has_calls_under_way()) deadline.reset();
  // Who started a run without results has nothing else to wait for.
  const auto [ended, owner] =
      RunRecord::finish(record, {&complete, 1}, request || (!waits && results.empty()));
  buffers.staged.settle(lane, complete, ended);
  if (ended && record && record->outcome() != host::Outcome::done) record->rethrow();
  if (!ended && waits) note_under_way(reach_, {&home.device, 1}, lane, record->number);
  make_results(*module_, targets_, out, lane, home, ended ? nullptr : record, buffers.pending,
               ended && !complete.error(), results);
}

}  // namespace postern::internal::run
