// What the handlers of all platforms make of XLA's call frame.
#pragma once
#include <postern/detail/small_vector.h>

#include "host/float_state.h"
#include "host/handler.h"
#include "host/run_state.h"
#include "pjrt/ffi_frame.h"

namespace postern::internal::host {

/// The run and the site that a frame of `postern_call` is for; without a site, the error to return,
/// which is null where XLA has asked for metadata alone.
struct Called {
  RunState* run = nullptr;
  const HostSite* site = nullptr;
  XLA_FFI_Error* error = nullptr;
};

/// The run of this thread's last call, and how XLA computes on the thread meanwhile. XLA looks for
/// a run's state in a hash table, which takes as long as all that the handler does.
struct LastRun {
  std::int64_t id = 0;  // 0: of a run that XLA may call as it calls another
  RunState* state = nullptr;
  FloatState floats;
};
extern constinit thread_local LastRun last_run;

/// Returns the state of the run that a frame of that plug-in is of; null if Postern did not start
/// it.
[[gnu::always_inline]] inline RunState* run_of(const XLA_FFI_CallFrame* frame, int plugin) {
  const std::int64_t id = pjrt::run_id(frame);
  if (id > 0 && id == last_run.id) [[likely]]
    return last_run.state;
  auto* const run = static_cast<RunState*>(pjrt::user_data(frame, run_state_types[plugin]));
  const bool known = run && id > 0 && run->mark == id;
  last_run = {known ? id : 0, run, FloatState::now()};
  return run;
}

[[gnu::always_inline]] inline Called find_called(XLA_FFI_CallFrame* frame, int plugin) {
  if (frame->extension_start && pjrt::answer_metadata(frame)) [[unlikely]]
    return {};
  RunState* const run = run_of(frame, plugin);
  if (!run) [[unlikely]]
    return {.error = pjrt::make_error(frame, ErrorCode::failed_precondition,
                                      "postern_call: the program was not started by Postern")};
  const std::int64_t* index = pjrt::int_attribute(frame, 0, site_attribute);
  if (!index || size_of(*index) >= run->site_count) [[unlikely]]
    return {.error = pjrt::make_error(
                frame, ErrorCode::internal,
                "postern_call: the program names a site that its run does not have")};
  const HostSite& site = run->sites[*index];
  // Allows for a token that ordered effects bring behind their operands and results.
  if (pjrt::operands(frame).size() < site.inputs || pjrt::results(frame).size() < site.results)
      [[unlikely]]
    return {.error =
                pjrt::make_error(frame, ErrorCode::internal,
                                 "postern_call: the call's buffers are not those of its site")};
  return {run, &site, nullptr};
}

/// For a call of a run of which this thread's last frame was: the thread computes as the one that
/// asked for the run, as long as this lives.
struct AsCaller : FloatScope {
  explicit AsCaller(const RunState& run) : FloatScope(run.floats, last_run.floats) {}
};

/// Where the operands, the mask and the results of a call are; `otherwise` stands for those that
/// are empty. Buffers of a site that is from a file are compared with it: `error` is set when they
/// differ.
struct CallBuffers {
  CallBuffers(XLA_FFI_CallFrame* frame, const HostSite& site, void* otherwise);
  CallBuffers(const CallBuffers&) = delete;
  void** data;
  XLA_FFI_Error* error = nullptr;

 private:
  detail::SmallVector<void*, HostSite::few> list_;
};

/// Returns where a call that tells whether its run goes on does so; null for others.
inline void* answer_in(const XLA_FFI_CallFrame* frame) {
  if (!pjrt::int_attribute(frame, 2, tells_attribute)) [[likely]]
    return nullptr;
  const auto results = pjrt::results(frame);
  for (std::size_t i = results.size(); i-- > 0;)  // a token may follow
    if (results[i]->dtype == XLA_FFI_DataType_PRED) return results[i]->data;
  return nullptr;
}

/// The same for a frame of `ask_target`, and its run.
struct RunQuery {
  const RunState* run = nullptr;
  void* answer = nullptr;
  XLA_FFI_Error* error = nullptr;
};
inline RunQuery run_query(XLA_FFI_CallFrame* frame, int plugin) {
  if (frame->extension_start && pjrt::answer_metadata(frame)) [[unlikely]]
    return {};
  const RunState* const run = run_of(frame, plugin);
  const auto results = pjrt::results(frame);
  if (run && results.size() == 1 && results[0]->dtype == XLA_FFI_DataType_PRED && results[0]->data)
    return {run, results[0]->data, nullptr};
  return {.error = pjrt::make_error(frame, ErrorCode::failed_precondition,
                                    "postern_goes_on: the program was not started by Postern, or "
                                    "asks for no pred")};
}

/// Returns what ends a run that must not go on.
XLA_FFI_Error* stopped(XLA_FFI_CallFrame* frame);

}  // namespace postern::internal::host
