// From XLA's call frame to a firing: fetch the run, index the site, point at the buffers.
#include "host/handler.h"

#include <vector>

#include "host/fire.h"
#include "pjrt/ffi_frame.h"

namespace postern::host {

std::int64_t run_state_type = 0;

namespace {

alignas(64) std::byte nothing[64];  // where empty arrays point

using Buffers = std::vector<const XLA_FFI_Buffer*>;

/// Programs from elsewhere have their tokens wherever they like.
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
    for (const std::int64_t d : pjrt::dims_of(b)) count *= static_cast<std::size_t>(d);
    return pjrt::dtype_of(b, has) && has == dtype && count * byte_width(dtype) == bytes;
  };
  if (operands.size() < site.inputs || results.size() < site.results) return false;
  for (std::size_t i = 0; i < site.operands; ++i)
    if (!is(operands[i], site.leaves[i].dtype, site.buffer_bytes[i])) return false;
  if (site.spec->masked && !is(operands[site.operands], DType::pred, static_cast<std::size_t>(site.spec->mask_size))) return false;
  for (std::size_t i = 0; i < site.results; ++i)
    if (!is(results[i], site.leaves[site.operands + i].dtype, site.buffer_bytes[site.operands + i])) return false;
  return true;
}

XLA_FFI_Error* stopped(XLA_FFI_CallFrame* frame) {
  return pjrt::make_error(frame, ErrorCode::aborted, "postern: the run was stopped by a host function");
}

/// Fills `buffers` with where the operands, the mask and the results are.
template <class List>
[[gnu::always_inline]] inline void point_at_buffers(const List& operands, const List& results, const HostSite& site, void** buffers) {
  for (std::size_t i = 0; i < site.inputs; ++i) buffers[i] = operands[i]->data ? operands[i]->data : nothing;
  for (std::size_t i = 0; i < site.results; ++i) buffers[site.inputs + i] = results[i]->data ? results[i]->data : nothing;
}

[[gnu::noinline]] XLA_FFI_Error* handle_specially(XLA_FFI_CallFrame* frame, RunState& run, const HostSite& site) {
  void* small[HostSite::few];
  std::vector<void*> large;
  if (site.buffers > HostSite::few) large.resize(site.buffers);
  void** const buffers = large.empty() ? small : large.data();
  if (site.unchecked) {
    const Buffers operands = without_tokens(pjrt::operands(frame)), results = without_tokens(pjrt::results(frame));
    if (!fits(operands, results, site))
      return pjrt::make_error(frame, ErrorCode::invalid_argument, "postern_call: the call's buffers are not those that its site declares");
    point_at_buffers(operands, results, site, buffers);
  } else {
    point_at_buffers(pjrt::operands(frame), pjrt::results(frame), site, buffers);
  }
  const int device = run.device >= 0 ? run.device : run.device_of(pjrt::device_ordinal(frame));
  if ((site.packed ? fire_packed(run, site, buffers, device) : fire(run, site, buffers, device)) || run.poison) return nullptr;
  return stopped(frame);
}

}  // namespace

XLA_FFI_Error* handle_call(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start && pjrt::answer_metadata(frame)) [[unlikely]]
    return nullptr;
  auto* run = static_cast<RunState*>(pjrt::user_data(frame, run_state_type));
  if (!run) [[unlikely]]
    return pjrt::make_error(frame, ErrorCode::failed_precondition, "postern_call: the program was not started by Postern");
  const std::int64_t* index = pjrt::int_attribute(frame, 0, site_attribute);
  if (!index || static_cast<std::size_t>(*index) >= run->site_count) [[unlikely]]
    return pjrt::make_error(frame, ErrorCode::internal, "postern_call: the program names a site that its run does not have");
  const HostSite& site = run->sites[*index];
  // Ordered effects bring a token behind their operands and results.
  if (pjrt::operands(frame).size() < site.inputs || pjrt::results(frame).size() < site.results) [[unlikely]]
    return pjrt::make_error(frame, ErrorCode::internal, "postern_call: the call's buffers are not those of its site");
  if (!site.quick || !run->quick || run->stop.load(std::memory_order_relaxed)) [[unlikely]]
    return handle_specially(frame, *run, site);
  void* buffers[HostSite::few];
  point_at_buffers(pjrt::operands(frame), pjrt::results(frame), site, buffers);
  run->current.store(&site, std::memory_order_release);
  if (enter_here(*run, site, buffers, run->device, nullptr)) [[likely]]
    return nullptr;
  return stopped(frame);
}

XLA_FFI_Error* handle_goes_on(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start && pjrt::answer_metadata(frame)) [[unlikely]]
    return nullptr;
  const auto* run = static_cast<const RunState*>(pjrt::user_data(frame, run_state_type));
  const auto results = pjrt::results(frame);
  if (!run || results.size() != 1 || !results[0]->data) [[unlikely]]
    return pjrt::make_error(frame, ErrorCode::failed_precondition, "postern_goes_on: the program was not started by Postern");
  *static_cast<bool*>(results[0]->data) = !run->stop.load(std::memory_order_relaxed);
  return nullptr;
}

}  // namespace postern::host
