// From XLA's call frame on a GPU to an invocation.
#include "platform/gpu/handler.h"

#include "host/call_frame.h"
#include "pjrt/ffi.h"
#include "platform/gpu/enter.h"

namespace postern::internal::gpu {

namespace {

const Driver* own_driver = nullptr;  // set before handlers are registered
const Driver* instead = nullptr;     // of tests

/// Has the device write, in the order of its stream, whether the run goes on.
XLA_FFI_Error* answer(XLA_FFI_CallFrame* frame, const host::RunState& run, void* place) {
  if (own_driver->fill(place, !run.stop.load(std::memory_order_relaxed), 1,
                       pjrt::stream_of(frame)) == 0)
    return nullptr;
  return pjrt::make_error(frame, ErrorCode::internal,
                          "postern: the GPU's driver failed to write whether the run goes on");
}

template <int plugin>
XLA_FFI_Error* handle_call(XLA_FFI_CallFrame* frame) {
  const host::Called called = host::find_called(frame, plugin);
  if (!called.site) return called.error;
  host::RunState& run = *called.run;
  const host::HostSite& site = *called.site;
  const host::AsCaller floats(run);
  const host::CallBuffers buffers(frame, site, nullptr);
  if (buffers.error) return buffers.error;
  const int device = run.device >= 0 ? run.device : run.device_of(pjrt::device_ordinal(frame));
  bool goes_on = false;
  if (site.is_disabled()) {
    if (run.leaves_zeros) run.passes(site, device);
    goes_on = !run.stop.load(std::memory_order_relaxed);
  } else {
    goes_on = enter_site(*own_driver, run, site, buffers.data, device, pjrt::stream_of(frame));
  }
  if (!goes_on && !run.leaves_zeros) return host::stopped(frame);
  if (void* const place = host::answer_in(frame)) return answer(frame, run, place);
  return nullptr;
}

template <int plugin>
XLA_FFI_Error* handle_ask(XLA_FFI_CallFrame* frame) {
  const host::RunQuery query = host::run_query(frame, plugin);
  if (query.run) return answer(frame, *query.run, query.answer);
  return query.error;
}

constexpr host::Targets targets[host::most_plugins] = {{handle_call<0>, handle_ask<0>},
                                                       {handle_call<1>, handle_ask<1>},
                                                       {handle_call<2>, handle_ask<2>},
                                                       {handle_call<3>, handle_ask<3>}};

}  // namespace

void register_handlers(const pjrt::Plugin& plugin, int number, const Driver& functions,
                       std::string_view xla_platform) {
  own_driver = &functions;
  pjrt::register_handler(plugin, host::call_target, targets[number].call, xla_platform);
  pjrt::register_handler(plugin, host::recorded_target, targets[number].call, xla_platform,
                         pjrt::command_buffer_compatible);
  pjrt::register_handler(plugin, host::ask_target, targets[number].ask, xla_platform);
}

void stand_in(const Driver* functions) { instead = functions; }
const Driver* stood_in() { return instead; }

}  // namespace postern::internal::gpu
