// Runs that the host drives, and the invocations of their sites.
#include "run/interpreted.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/known_programs.h"
#include "core/lists.h"
#include "core/result_types.h"
#include "core/thread_end.h"
#include "host/enter.h"
#include "host/live.h"
#include "host/pending.h"
#include "host/process_call.h"
#include "host/registry.h"
#include "host/run_end.h"
#include "host/run_observer.h"
#include "host/timeline.h"
#include "run/array.h"
#include "run/compiled.h"
#include "run/ordered.h"
#include "run/residual_store.h"
#include "run/run_record.h"
#include "run/runtime.h"
#include "shard/shard_map.h"

namespace postern::internal::run {

namespace {

constinit thread_local InterpretedRun* this_run = nullptr;

/// Adds a site, once, however often it stands in the program.
void add_site(InterpretedSites& to, const SitePtr& site) {
  const bool is_new = to.index.emplace(site.get(), to.list.size()).second;
  if (!is_new) return;
  // Derivatives have changed what it shows since it was written: site_lower checks it too.
  if (site->tap.derivatives) check_signature(*site);
  to.list.emplace_back(site, site->function);
  const bool is_found_by_name = site->enters() && !site->function;
  to.named |= is_found_by_name;
}

}  // namespace

InterpretedSites::InterpretedSites(const SitePtr& site) { add_site(*this, site); }
InterpretedSites::InterpretedSites(ProgramPtr of)
    : of_processes(std::ranges::any_of(meshes_of(*of), spans_processes)), program(std::move(of)) {
  any_equation(*program, [&](const Equation& e) {
    if (e.primitive->site) add_site(*this, as<SiteParams>(*e.params).site);
    return false;
  });
  host::add_live_hooks(program->name, specs());
  add_known_program(program->name, program);
}

std::string InterpretedSites::text() const {
  if (!program) return host::describe(*list.at(0).spec);
  return to_string(*program, std::string(platforms::current().name));
}

std::vector<SitePtr> InterpretedSites::specs() const {
  std::vector<SitePtr> out;
  for (const host::HostSite& site : list) out.push_back(site.spec);
  return out;
}

InterpretedRun::InterpretedRun(std::shared_ptr<const InterpretedSites> of, StagedPrograms* family)
    : sites_(std::move(of)), family_(family) {}

InterpretedRun* InterpretedRun::current() { return this_run; }
InterpretedRun::Scope::Scope(InterpretedRun* run) : Scoped(this_run, run) {}

void InterpretedRun::begin() {
  open();
  if (number == 0) number = Runtime::get().next_run();
  set_of_processes(sites_->of_processes);
  begins_here();
  if (!observer) observer = host::current_observer();
  if (observer) observed_run = observer->begin_run(sites_->text());
  if ((sites_->named || own_functions) && (!observer || observer->enters_functions())) {
    auto served = std::make_shared<InterpretedSites>(*sites_);
    served->list = host::resolve_names(sites_->list, own_functions.get());
    sites_ = std::move(served);
  }
  sites = sites_->list.data();
  site_count = sites_->list.size();
  owner = sites_;
}

Tensors InterpretedRun::interpret(const std::function<Tensors()>& body) {
  std::shared_ptr<void> in_flight;  // barriers wait for it; what `start` began has that already
  if (started == 0) in_flight = Runtime::keep_open(started = Runtime::get().add_started());
  const host::Wait waits(name());
  struct End {  // its functions go with the run, not with who waits for it
    InterpretedRun& run;
    ~End() {
      run.finish_calls();
      run.close();
      run.owner.reset();
      run.sites_.reset();
    }
  } ends{*this};
  begin();
  const Scope scope(this);
  const ProgramPtr program = sites_->program;
  std::optional<host::timeline::Span> span;
  if (program) span.emplace(host::timeline::Kind::execute, program->name, default_device(), number);
  const Uncancelled here;  // as while a compiled program runs: the thread ends behind the run
  broken = true;           // until all went well
  try {
    Tensors results = body();
    if (stop.load()) rethrow();
    host::meet_at_end(*this);
    broken = false;
    return results;
  } catch (const std::exception& e) {
    ends_early(e.what());
    stop_calls();
    throw;
  } catch (...) {
    stop_calls();
    throw;
  }
}

void InterpretedRun::check_going() {
  if (!stop.load() && is_late()) fail_late();
  if (stop.load(std::memory_order_relaxed)) [[unlikely]]
    rethrow();
}

void InterpretedRun::run_part(const CompiledProgram& program,
                              std::span<const Tensor* const> arguments, std::span<Tensor> results) {
  auto part = std::make_shared<RunRecord>(program.backend());
  part->part_of = shared_from_this();
  part->observer = observer;
  try {
    const Part joined(*this, part);
    const Scope apart(nullptr);  // what its functions run is their own affair
    program.run(arguments, results, part);
  } catch (...) {
    if (stop.load()) rethrow();
    throw;
  }
}

const host::HostSite* InterpretedRun::find(const SiteSpec& site) const {
  const auto found = sites_->index.find(&site);
  if (found == sites_->index.end()) return nullptr;
  return &sites_->list[found->second];
}

namespace {

/// Returns where a call outside of programs is: where the first operand is that was put somewhere.
int device_of(const SiteSpec& spec, TensorSpan operands) {
  if (spec.call.device >= 0) {
    check_device(spec.call.device);
    return spec.call.device;
  }
  for (const Tensor& t : operands) {
    const Tensor* const one = &t;
    if (const Home home = home_of({&one, 1}); home.put) return home.device;
  }
  return default_device();
}

void refuse_depth(const SiteSpec& spec, int device) {
  const host::Nesting* nested = host::nesting();
  const int limit = Runtime::get().config().max_reentry;
  if (!nested || nested->depth < limit) return;
  throw CallbackError(
      ErrorCode::reentry,
      fmt::format("{} is nested {} levels deep, {} are allowed (Config::max_reentry)",
                  host::describe(spec), nested->depth, limit),
      Site{spec.name, spec.place}, device, nullptr);
}

/// Throws the run's failure; outside of programs, for a handle not to be had, its TypeError alone.
[[noreturn]] void rethrow_to_caller(host::RunState& run, const SiteSpec& spec) {
  if (!run.outside || spec.call.role != SiteCall::Role::wait) run.rethrow();
  try {
    run.rethrow();
  } catch (const CallbackError& failure) {
    const bool is_mistake = failure.code() == ErrorCode::failed_precondition;
    try {
      if (is_mistake && failure.cause()) std::rethrow_exception(failure.cause());
    } catch (const TypeError& cause) {
      throw TypeError(fmt::format("{}: {}", host::describe(spec), cause.what()));
    } catch (...) {  // of another kind: then as any failure
    }
    throw;
  }
}

}  // namespace

std::shared_ptr<InterpretedRun> InterpretedRun::begin_alone(const SitePtr& spec,
                                                            InterpretedRun* whole) {
  const SiteCall::Role role = spec->call.role;
  auto alone = std::make_shared<InterpretedRun>(std::make_shared<const InterpretedSites>(spec));
  if (whole) {
    alone->number = whole->number;
    whole->hand_on(*alone);
    alone->observer = whole->observer;
    alone->share_calls(*whole);
  }
  alone->outside = !whole && role != SiteCall::Role::whole;
  alone->begin();
  if (alone->outside && role == SiteCall::Role::start)
    alone->under_way = Runtime::keep_open(Runtime::get().add_started());
  return alone;
}

// Fires a site here and now, with operands that are known: one outside of every program, or one of
// a program that we step through ourselves. Finds the run that it belongs to, or makes one for it
// alone; brings the operands to host memory; makes room for the results; and enters the function.
// Afterwards the results, which for a tap are its operands, are in host memory and in their dtypes'
// ranges. Throws a CallbackError where sites are nested too deep, and the run's failure if the
// function fails or ends the run.
Tensors invoke_now(const Primitive& primitive, const ParamsPtr& params, TensorSpan operands) {
  const SitePtr& spec = as<SiteParams>(*params).site;
  const int device = device_of(*spec, operands);
  InterpretedRun* const whole = this_run;  // null: outside of every program
  std::span<const int> devices;            // of all
  if (whole) devices = {&device, 1};
  wait_for_earlier(reach_of(*spec), devices);
  refuse_depth(*spec, device);
  const host::HostSite* site = nullptr;
  if (whole) site = whole->find(*spec);
  InterpretedRun* run = whole;
  std::shared_ptr<InterpretedRun> alone;
  if (!site) {  // outside, or written by a rule while the program runs
    alone = InterpretedRun::begin_alone(spec, whole);
    run = alone.get();
    site = run->sites;
  }
  const bool starts = run->outside && spec->call.role == SiteCall::Role::start;
  const bool ends_here = !whole && !run->outside;  // else it may go on without who invokes it
  struct End {
    InterpretedRun* run;
    ~End() {
      if (run) run->close();
    }
  } const end{ends_here ? run : nullptr};

  if (site->is_disabled()) {
    if (run->stop.load()) run->rethrow();
    return head(operands, spec->operands.size());
  }
  std::vector<const Type*> types;
  std::vector<std::shared_ptr<const void>> keep;
  std::vector<void*> buffers;
  for (const Tensor& t : operands) {
    types.push_back(&t.type());
    keep.push_back(host_bytes(t, "an operand"));
    buffers.push_back(const_cast<void*>(keep.back().get()));
  }
  Tensors results;
  if (spec->is_tap()) {
    results = head(operands, spec->operands.size());
  } else {
    for (const Type& t : result_types(primitive, params.get(), {types.data(), types.size()})) {
      std::shared_ptr<void> bytes = detail::aligned_bytes(t.byte_size());
      if (starts) std::memset(bytes.get(), 0, t.byte_size());  // handles of nothing
      buffers.push_back(bytes.get());
      results.push_back(
          detail::Access::make(std::make_shared<detail::HostValue>(t, std::move(bytes))));
    }
  }
  const host::FloatScope as_caller(run->floats);
  PlaceScope::Replace at({});                  // what the function does has places of its own,
  const InterpretedRun::Scope apart(nullptr);  // and what it runs is its own affair
  const bool entered = host::enter_site(
      {.run = *run, .site = *site, .data = buffers.data(), .device = device, .unpacked = true});
  if (starts) std::ranges::for_each(results, own_calls);  // some may have begun before a failure
  if (!entered) {
    if (whole && whole->stop.load()) whole->rethrow();
    rethrow_to_caller(*run, *spec);
  }
  return results;
}

}  // namespace postern::internal::run
