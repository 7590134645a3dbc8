// Entering host functions: what every execution of a site comes to.
//
// enter_site() goes through the site's stages, of which the last enters the function; with none it
// does so itself. Nothing here throws through XLA: a failure is kept in the run, which ends by it.
#include "host/enter.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "host/bad_result.h"
#include "host/timeline.h"

namespace postern::internal::host {

constinit thread_local std::int64_t one_of_many = -1;

TapInfo Invocation::info(detail::StopState* stop) const {
  TapInfo told = site.info(device, stop);
  told.run = run.number;
  told.context = run.context;
  told.sink = run.sink;
  told.element = element;
  told.stream = stream;
  told.mask = mask;
  return told;
}

namespace {

/// Returns the code of the run's failure, by the exception that is being handled, which `site`
/// threw; ok: it is no failure. The code is about the site: what a user's function lets through of
/// something else, as of a run that it has started, is no more than that it threw.
ErrorCode code_of_thrown(const HostSite& site) noexcept {
  try {
    throw;
  } catch (const RunIsOver&) {
    return ErrorCode::ok;
  } catch (const BadResult&) {
    return ErrorCode::bad_result;
  } catch (const NoAnswer&) {
    return ErrorCode::timeout;
  } catch (const CallbackError& e) {
    switch (e.code()) {
      case ErrorCode::reentry:       // nested too deep, or it would wait for itself
      case ErrorCode::closed:        // nobody serves it any more
      case ErrorCode::unregistered:  // nobody has it
        return e.code();
      default: return ErrorCode::threw;  // the failure of another run
    }
  } catch (const Error& e) {
    // Functions of the library (HostSite::is_ours) know what is wrong with them. And whoever serves
    // a function, as c/bridge does, may find that its results do not fit.
    if (site.is_ours || e.code() == ErrorCode::bad_result) return e.code();
    return ErrorCode::threw;
  } catch (...) {
    return ErrorCode::threw;
  }
}

std::exception_ptr thread_end() {
  return std::make_exception_ptr(Error(ErrorCode::failed_precondition, ended_its_thread));
}

}  // namespace

bool enter_function(const HostSite& site, const detail::Firing& firing, std::exception_ptr& error,
                    ErrorCode& code) noexcept {
  enters_users_code();
  try {
    if (keeps_thread([&] { site.invoke(site.object, firing); })) return true;
    code = ErrorCode::threw;
    error = thread_end();
  } catch (...) {
    error = std::current_exception();
    code = code_of_thrown(site);
  }
  return false;
}

void keep_failure(RunState& run, const HostSite& site, int device, const std::exception_ptr& error,
                  ErrorCode code) noexcept {
  if (code == ErrorCode::ok) return;
  try {  // of a result that does not fit the library says so: nothing of the user's was thrown
    run.fail(code, site, device, code == ErrorCode::bad_result ? nullptr : error, describe(error),
             one_of_many);
  } catch (...) {
    run.request(Outcome::failed);  // not even memory for the text
  }
}

bool keep_thrown(RunState& run, const HostSite& site, int device) noexcept {
  keep_failure(run, site, device, std::current_exception(), code_of_thrown(site));
  return false;
}

bool keep_exhausted(const Invocation& i) noexcept {
  keep_failure(i.run, i.site, i.device, std::current_exception(), ErrorCode::resource_exhausted);
  return false;
}

bool keep_thread_end(RunState& run, const HostSite& site, int device) noexcept {
  keep_failure(run, site, device, thread_end(), ErrorCode::threw);
  return false;
}

void zero_results(const HostSite& site, void* const* buffers) noexcept {
  for (std::size_t i = 0; i < site.results; ++i)
    std::memset(buffers[site.inputs + i], 0, site.buffer_bytes[site.operands + i]);
}

namespace {

/// Calls `enter` if the run goes on, with what all invocations have in common around it: the run is
/// told, the timeline has a span, and results that nobody has written become zeros.
template <class Enter>
bool begin(const Invocation& i, const Enter& enter) noexcept {
  RunState& run = i.run;
  const SiteSpec& spec = *i.site.spec;
  bool ok = false;
  if (!run.stop.load(std::memory_order_relaxed)) {
    run.enters(i.site, i.device);
    const timeline::Span span(spec.is_tap() ? timeline::Kind::tap : timeline::Kind::call, spec.name,
                              i.device, run.number);
    ok = enter();
  }
  if (!ok && run.leaves_zeros && !i.on_device) zero_results(i.site, i.data);
  return ok;
}

/// Enters the function on this thread. False when it failed, or has asked for the end of its run.
bool enter_at_once(const Invocation& i) noexcept {
  RunState& run = i.run;
  run.floats.set();  // the function before it, of a batch, may have left others
  if (!i.site.wants_info) return enter_here(run, i.site, i.data, i.device, nullptr);
  const TapInfo info = i.info(&run);
  if (!enter_here(run, i.site, i.data, i.device, &info)) return false;
  if (!run.end.load(std::memory_order_relaxed)) [[likely]]
    return true;
  run.request(Outcome::stopped);
  return false;
}

bool begin_next(const Stage& stage, Invocation& i) noexcept {
  return begin(i, [&] { return stage.next->enter(i); });
}

/// Stands behind all others.
const StageRow function_stage = {
    .enter = [](const Stage&, Invocation& i) noexcept { return enter_at_once(i); }};

}  // namespace

const StageRow begin_stage = {.enter = begin_next, .of_runs = true};

/// Returns the positive number by which a site's options ask for the stage; 0 where they do not.
static std::int64_t option_of(const Attributes& options, const StageRow& row) {
  if (!row.option) return 0;
  const auto found = options.items().find(row.option);
  if (found == options.items().end()) return 0;
  const auto* const number = std::get_if<std::int64_t>(&found->second);
  return number ? std::max(*number, std::int64_t{0}) : 0;
}

void check_stage_options(const Attributes& options) {
  for (const auto& option : options.items()) {
    const auto has_it = [&](const StageRow* row) {
      return row->option && option.first == row->option && option_of(options, *row) > 0;
    };
    check(std::ranges::any_of(all_stages, has_it),
          "a site's option '{}' is none that taps have, or out of range: {}", option.first,
          to_string(options));
  }
}

// The chain grows from the function outwards, so the rows are taken from the last to the first.
void make_stages(HostSite& site, std::span<const StageRow* const> rows) {
  auto chain = std::make_shared<const Stage>(Stage{function_stage, 0, {}, {}});
  bool any_asked = false, leaves_are_seen = false;
  for (auto at = rows.rbegin(); at != rows.rend(); ++at) {
    const StageRow* const row = *at;
    const std::int64_t number = option_of(site.spec->tap.options, *row);
    const bool asked = row->applies ? row->applies(site) : number > 0;
    if (!asked && !row->of_runs) continue;
    auto prepared = row->prepare ? row->prepare(site) : nullptr;
    chain = std::make_shared<const Stage>(Stage{*row, number, std::move(prepared), chain});
    any_asked = any_asked || asked;
    leaves_are_seen = leaves_are_seen || (asked && row->sees_leaves);
  }
  site.stages = std::move(chain);
  site.direct = !any_asked;
  site.fetched = site.spec->tap.async && !leaves_are_seen;
}

bool enter_site(Invocation i) noexcept {
  if (!i.site.direct || i.run.is_special()) return i.site.stages->enter(i);
  return begin(i, [&] {
    i.count();
    return enter_at_once(i);
  });
}

}  // namespace postern::internal::host
