// A compiled function called on another device: an equation that means its program, lowered as a
// call whose function runs it there.
#include "site/device_call.h"

#include <postern/devices.h>
#include <postern/jit.h>
#include <postern/shard.h>

#include <optional>

#include "core/mutex.h"
#include "custom/custom.h"
#include "shard/shard_map.h"
#include "site/site.h"
#include "trace/elsewhere.h"
#include "transform/split.h"

namespace postern {
using namespace internal;

void internal::check_device(const CallOptions& options) {
  check(options.device < 0 || options.device < std::ssize(devices()),
        "call '{}': there is no device {}, devices() has {}", options.name, options.device,
        devices().size());
}

namespace {

struct DeviceCallParams {
  static constexpr const char* what = "call";
  ProgramPtr body;
  std::string name;
  int device = 0;
  /// The program as a jitted function, made for the first who calls it from the host.
  struct Jitted {
    Mutex guard;
    ProgramPtr of;
    detail::TensorFunction function;
  };
  std::shared_ptr<Jitted> jitted = std::make_shared<Jitted>();
  auto fields(Fields sink) const {
    return sink.field("name", name).field("device", device).field("body", body).left_out(jitted);
  }
};

ParamsPtr params_of(const Op& op, ProgramPtr body) {
  DeviceCallParams p = op.as<DeviceCallParams>();
  p.body = std::move(body);
  p.jitted = std::make_shared<DeviceCallParams::Jitted>();
  return make_params(std::move(p));
}

Tensors bind_body(const Op& op, const Closed& body, TensorSpan x, bool) {
  return bind_n(op.primitive, params_of(op, body.program), joined({body.captures, x}));
}

/// What rules write is for the platform of the device.
template <class Act>
auto for_device(int device, const Act& act) {
  std::optional<decltype(act())> out;
  elsewhere.trace(device, [&] { out.emplace(act()); });
  return std::move(*out);
}
template <class Act>
auto for_device(const Op& op, const Act& act) {
  return for_device(op.as<DeviceCallParams>().device, act);
}

Jvp device_call_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  return for_device(
      op, [&] { return body_jvp("call", op, *op.as<DeviceCallParams>().body, x, dx, bind_body); });
}
Tensors device_call_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan) {
  return for_device(op, [&] {
    return body_transpose("call", op, *op.as<DeviceCallParams>().body, ct, x, bind_body);
  });
}
Batched device_call_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                          const Tensor& mask) {
  return for_device(op, [&] {
    return body_batch("call", op, *op.as<DeviceCallParams>().body, x, axes, size, mask, bind_body);
  });
}

/// Both halves run on the device.
Primitive::SplitResult device_call_split(const Op& op, TensorSpan x, const std::vector<bool>&) {
  const std::vector<bool> unknown = missing(x);
  const Halves halves =
      for_device(op, [&] { return split(*op.as<DeviceCallParams>().body, unknown); });
  const Tensors known = bind_n(op.primitive, params_of(op, halves.known), kept(x));
  const std::size_t outputs = known.size() - halves.residuals;
  return split_result(op.primitive, params_of(op, halves.unknown), halves.unknown_outputs, known,
                      std::span(known).subspan(outputs), x);
}

/// The program as a function of leaves. One without results gives a number, for its caller has to
/// wait for something.
detail::TensorFunction jitted(const DeviceCallParams& p) {
  auto body = [body = p.body](Tensors x) {
    Tensors results = internal::apply(*body, x);
    if (results.empty()) results.emplace_back(0);
    return results;
  };
  const std::scoped_lock lock(p.jitted->guard);
  if (p.jitted->of != p.body)  // a rule put another in its place
    p.jitted->function = [f = jit(std::move(body), {.name = p.name})](TensorSpan x) {
      return f(Tensors(x.begin(), x.end()));
    };
  p.jitted->of = p.body;
  return p.jitted->function;
}

/// The call that the equation is when it runs. Its function reads and writes its caller's memory.
SiteSpec site_of(const DeviceCallParams& p, const Place& place) {
  SiteSpec s;
  s.name = p.name;
  s.place = place;
  s.effect = effect_of(*p.body);
  s.operands = p.body->input_types();
  s.results = p.body->output_types();
  auto call = [f = jitted(p), device = p.device](std::span<const AnyView> operands,
                                                 std::span<const AnyMutableView> results) {
    Tensors x;
    for (const AnyView& v : operands) x.push_back(Tensor::borrow(v.type(), v.data(), nullptr));
    const Tensors y = elsewhere.call(device, f, x, true);
    for (std::size_t i = 0; i < results.size(); ++i) y[i].read(results[i].data());
    if (results.empty()) y[0].block_until_ready();
  };
  s.function = Callee(std::move(call), place).function();
  return s;
}

void device_call_lower(Lowering& out, const Equation& e) {
  Equation call = e;
  call.primitive = &site_p;
  call.params = make_params(SiteParams{
      std::make_shared<const SiteSpec>(site_of(as<DeviceCallParams>(*e.params), e.place))});
  site_p.lower(out, call);
}

/// The host needs no site to run it: operands and results go from device to device.
Tensors device_call_evaluate(const Op& op, TensorSpan x) {
  const auto& p = op.as<DeviceCallParams>();
  Tensors results = elsewhere.call(p.device, jitted(p), x, false);
  if (p.body->outputs.empty()) {
    results[0].block_until_ready();
    results.clear();
  }
  return results;
}

constexpr Primitive device_call_p{.name = "call_on_device",
                                  .type = body_type<DeviceCallParams>,
                                  .jvp = device_call_jvp,
                                  .transpose = device_call_transpose,
                                  .linear = Linear::jointly,
                                  .split = device_call_split,
                                  .with_programs = body_with_programs<DeviceCallParams>,
                                  .batch = device_call_batch,
                                  .lower = device_call_lower,
                                  .evaluate = device_call_evaluate,
                                  .calls = true};

}  // namespace

int internal::device_of_call(const Equation& equation) {
  if (equation.primitive != &device_call_p) return -1;
  return as<DeviceCallParams>(*equation.params).device;
}
const std::string& internal::name_of_call(const Equation& equation) {
  return as<DeviceCallParams>(*equation.params).name;
}

detail::Tensors detail::call_on_device(const CallOptions& options, const Types& out,
                                       const TensorFunction& f, const Tensors& x) {
  PlaceScope at(options.place);
  check(options.timeout.count() == 0 && options.warn_after.count() == 0 && !options.partitioned &&
            options.vmap == VmapMethod::sequential && options.effect == Effect::pure,
        "call '{}': a compiled function takes its effects and rules from what it does; of the "
        "options only name and device have a meaning",
        options.name);
  check(!current_mesh(),
        "call '{}': inside shard_map every device runs its own part; a compiled function cannot be "
        "sent elsewhere",
        options.name);
  check_device(options);
  const auto trace = [&] { return trace_user_inner("call", types_of(x), f); };
  const Closed body = options.device < 0 ? trace() : for_device(options.device, trace);
  const Types made = body.program->output_types();
  check(made.size() == out.size(), "call '{}': expected {} results, the function returns {}",
        options.name, out.size(), made.size());
  for (std::size_t i = 0; i < out.size(); ++i)
    check(made[i].dtype == out[i].dtype && made[i].dims == out[i].dims,
          "call '{}': result {} was declared {}, the function returns {}", options.name, i,
          to_string(out[i]), to_string(made[i]));
  const Tensors operands = joined({body.captures, x});
  if (options.device < 0) return internal::apply(*body.program, operands);
  return bind_n(device_call_p,
                make_params(DeviceCallParams{body.program, options.name, options.device}),
                operands);
}

}  // namespace postern
