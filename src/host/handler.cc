// From XLA's call frame to an invocation: fetch the run, index the site, point at the buffers.
#include "host/handler.h"

#include <vector>

#include "core/lists.h"
#include "host/call_frame.h"
#include "host/enter.h"
#include "host/executor.h"
#include "host/sanitizer.h"
#include "pjrt/ffi_frame.h"

namespace postern::internal::host {

std::int64_t run_state_types[most_plugins] = {};
constinit thread_local LastRun last_run;

namespace {

alignas(64) std::byte nothing[64];  // where empty arrays point

using Buffers = std::vector<const XLA_FFI_Buffer*>;

/// Returns the buffers that are no tokens, which programs from elsewhere have wherever they like.
template <class List>
Buffers without_tokens(const List& buffers) {
  Buffers out;
  for (const XLA_FFI_Buffer* b : buffers)
    if (b->dtype != XLA_FFI_DataType_TOKEN) out.push_back(b);
  return out;
}

/// Whether the buffers are as large as the site says, dtype by dtype.
bool fits(const Buffers& operands, const Buffers& results, const HostSite& site) {
  auto is = [](const XLA_FFI_Buffer* b, DType dtype, std::size_t bytes) {
    DType has{};
    std::size_t count = 1;
    for (const std::int64_t d : pjrt::dims_of(b)) count *= size_of(d);
    return pjrt::dtype_of(b, has) && has == dtype && count * byte_width(dtype) == bytes;
  };
  if (operands.size() < site.inputs || results.size() < site.results) return false;
  for (std::size_t i = 0; i < site.operands; ++i)
    if (!is(operands[i], site.leaves[i].dtype, site.buffer_bytes[i])) return false;
  if (site.spec->batch.masked &&
      !is(operands[site.operands], DType::pred, size_of(site.spec->batch.mask_size)))
    return false;
  for (std::size_t i = 0; i < site.results; ++i)
    if (!is(results[i], site.leaves[site.operands + i].dtype, site.buffer_bytes[site.operands + i]))
      return false;
  return true;
}

/// Points at operands, then results; `otherwise` stands for those that are empty.
template <class List>
[[gnu::always_inline]] inline void point_at_buffers(const List& operands, const List& results,
                                                    const HostSite& site, void* otherwise,
                                                    void** buffers) {
  for (std::size_t i = 0; i < site.inputs; ++i)
    buffers[i] = operands[i]->data ? operands[i]->data : otherwise;
  for (std::size_t i = 0; i < site.results; ++i)
    buffers[site.inputs + i] = results[i]->data ? results[i]->data : otherwise;
}

/// Writes whether the run goes on, if the call is one that tells.
void answer(const XLA_FFI_CallFrame* frame, const RunState& run) {
  if (void* const place = answer_in(frame))
    *static_cast<bool*>(place) = !run.stop.load(std::memory_order_relaxed);
}

/// Passes a live hook at which nobody listens.
XLA_FFI_Error* pass_by(XLA_FFI_CallFrame* frame, RunState& run, const HostSite& site) {
  if (run.leaves_zeros) run.passes(site, run.device_of(pjrt::device_ordinal(frame)));
  answer(frame, run);
  const bool stops = run.stop.load(std::memory_order_relaxed) && !run.leaves_zeros;
  call_is_over(&run);
  return stops ? stopped(frame) : nullptr;
}

[[gnu::noinline]] XLA_FFI_Error* handle_specially(XLA_FFI_CallFrame* frame, RunState& run,
                                                  const HostSite& site) try {
  if (site.is_disabled()) return pass_by(frame, run, site);
  const AsCaller floats(run);
  const CallBuffers buffers(frame, site, nothing);
  if (buffers.error) return buffers.error;
  const int device = run.device >= 0 ? run.device : run.device_of(pjrt::device_ordinal(frame));
  const Helpers xla_threads(frame, [](void* from, XLA_FFI_Task* task, void* data) {
    return pjrt::schedule(static_cast<const XLA_FFI_CallFrame*>(from), task, data);
  });
  const bool ok = enter_site({run, site, buffers.data, device});
  answer(frame, run);
  call_is_over(&run);
  if (ok || run.leaves_zeros) return nullptr;
  return stopped(frame);
} catch (...) {  // there is no memory to list the buffers
  keep_failure(run, site, std::max(run.device, 0), std::current_exception(),
               ErrorCode::resource_exhausted);
  return run.leaves_zeros ? nullptr : stopped(frame);
}

/// The short way in a run on several devices.
[[gnu::noinline]] XLA_FFI_Error* handle_on_several(XLA_FFI_CallFrame* frame, RunState& run,
                                                   const HostSite& site) {
  const AsCaller floats(run);
  void* buffers[HostSite::few];
  point_at_buffers(pjrt::operands(frame), pjrt::results(frame), site, nothing, buffers);
  const int device = run.device_of(pjrt::device_ordinal(frame));
  run.enters(site, device);
  run.passes(site, device);
  if (!enter_here(run, site, buffers, device, nullptr)) zero_results(site, buffers);
  answer(frame, run);
  call_is_over(&run);
  return nullptr;
}

template <int plugin>
XLA_FFI_Error* handle_call(XLA_FFI_CallFrame* frame) {
  const Called called = find_called(frame, plugin);
  if (!called.site) [[unlikely]]
    return called.error;
  RunState* const run = called.run;
  const HostSite& site = *called.site;
  if (!site.fast_path || !run->fast_path || run->stop.load(std::memory_order_relaxed)) [[unlikely]]
    return handle_specially(frame, *run, site);
  if (run->leaves_zeros) [[unlikely]]
    return handle_on_several(frame, *run, site);
  const AsCaller floats(*run);
  void* buffers[HostSite::few];
  point_at_buffers(pjrt::operands(frame), pjrt::results(frame), site, nothing, buffers);
  run->enters(site, run->device);
  const bool ok = enter_here(*run, site, buffers, run->device, nullptr);
  call_is_over(run);
  if (ok) [[likely]]
    return nullptr;
  return stopped(frame);
}

template <int plugin>
XLA_FFI_Error* handle_ask(XLA_FFI_CallFrame* frame) {
  const RunQuery query = run_query(frame, plugin);
  if (query.run)
    *static_cast<bool*>(query.answer) = !query.run->stop.load(std::memory_order_relaxed);
  return query.error;
}

constexpr Targets targets[most_plugins] = {{handle_call<0>, handle_ask<0>},
                                           {handle_call<1>, handle_ask<1>},
                                           {handle_call<2>, handle_ask<2>},
                                           {handle_call<3>, handle_ask<3>}};

}  // namespace

CallBuffers::CallBuffers(XLA_FFI_CallFrame* frame, const HostSite& site, void* otherwise)
    : list_(site.buffers) {
  data = list_.data();
  if (!site.spec->from_file) {
    point_at_buffers(pjrt::operands(frame), pjrt::results(frame), site, otherwise, data);
    return;
  }
  const Buffers operands = without_tokens(pjrt::operands(frame)),
                results = without_tokens(pjrt::results(frame));
  if (fits(operands, results, site))
    point_at_buffers(operands, results, site, otherwise, data);
  else
    error =
        pjrt::make_error(frame, ErrorCode::invalid_argument,
                         "postern_call: the call's buffers are not those that its site declares");
}

XLA_FFI_Error* stopped(XLA_FFI_CallFrame* frame) {
  return pjrt::make_error(frame, ErrorCode::aborted,
                          "postern: the run was stopped by a host function");
}

Targets targets_of(int plugin) { return targets[plugin]; }

}  // namespace postern::internal::host
