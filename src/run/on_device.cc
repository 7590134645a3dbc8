// A function of one device, called with what lies anywhere.
#include <postern/shard.h>

#include "host/run_state.h"
#include "run/array.h"
#include "run/evaluator.h"
#include "run/interpreted.h"
#include "run/run_record.h"

namespace postern::internal::run {

using detail::Access, detail::Value;

namespace {

/// Returns the tensor where a program of that lane takes it, not `placed`: a program of one device
/// refuses what was put on another. One over several devices is gathered on the host.
Tensor as_operand_on(const Lane& lane, const Tensor& tensor) {
  const std::shared_ptr<const Value>& value = Access::pointer(tensor);
  if (value->kind == Value::Kind::sharded)
    return Access::make(std::make_shared<detail::HostValue>(
        value->type, host_bytes(tensor, "an operand of a call on another device")));
  if (value->kind != Value::Kind::device) return tensor;
  const auto& array = static_cast<const DeviceValue&>(*value);
  if (array.device == lane.device && !array.placed) return tensor;
  return Access::make(placed_on(value->type, seen_on(value, lane), lane));
}

/// Returns the run that a function called now is a part of; of a site's, the run around that, which
/// observes the site's invocation alone.
WholeRun whole_run(bool in_site) {
  if (in_site) return {host::run_around().lock(), nullptr};
  if (InterpretedRun* const run = InterpretedRun::current())
    return {run->shared_from_this(), run->observer};
  return {};
}

}  // namespace

// Memory of one device goes by the plug-ins' transfers: within a client nobody waits for it,
// between platforms that compute in the host's memory nothing is copied.
Tensors call_on_device(int device, const detail::TensorFunction& f, TensorSpan x, bool in_site) {
  check_device(device);
  const Lane& lane = Runtime::get().lane(device);
  Tensors operands;
  for (const Tensor& t : x) operands.push_back(as_operand_on(lane, t));
  const DeviceScope scope(device, Place{});
  const WholeRun whole = whole_run(in_site);
  const WholeRunScope part(whole);
  const InterpretedRun::Scope apart(nullptr);  // what its functions run is their own affair
  try {
    return f(operands);
  } catch (const CallbackError& e) {
    if (!whole.run || !whole.run->stop.load()) throw;
    if (!in_site) whole.run->rethrow();  // the whole run ends, and says why
    if (e.code() == ErrorCode::cancelled) throw host::RunIsOver();  // the site has not failed
    throw;
  }
}

void trace_for_device(int device, const std::function<void()>& act) {
  check_device(device);
  const AtDevice there(device);
  act();
}

}  // namespace postern::internal::run
