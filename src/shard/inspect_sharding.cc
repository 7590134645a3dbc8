// inspect_sharding as an operation: the identity, of which run/inspect asks XLA.
#include "shard/inspect_sharding.h"

#include <postern/shard.h>

#include "core/check.h"
#include "lower/lowering.h"
#include "ops/family.h"
#include "shard/shard_map.h"

namespace postern::internal {

namespace {

struct InspectParams {
  std::shared_ptr<const std::function<void(const Sharding&)>> tell;
  auto fields(Fields sink) const { return sink.identity("tell", tell.get()); }
};

std::pair<Tensors, Tensors> inspect_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  return {bind_n(op.primitive, op.params, x), {dx[0]}};
}
Batched inspect_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t,
                      const Tensor&) {
  return {bind_n(op.primitive, op.params, x), {axes[0]}};
}
void inspect_lower(Lowering& out, const Equation& e) { out.define(e, 0, out.operand(e, 0)); }
Tensors inspect_evaluate(const Op& op, TensorSpan x) {
  (*op.as<InspectParams>().tell)(sharding_of(x[0]).value_or(on_one_device(x[0].device())));
  return {x[0]};
}

/// The value is inspected also when nobody needs it.
Effect inspect_effect(const Params*) { return Effect::unordered; }

}  // namespace

constexpr Primitive inspect_sharding_p{.name = "inspect_sharding",
                                       .type = same_type,
                                       .jvp = inspect_jvp,
                                       .batch = inspect_batch,
                                       .lower = inspect_lower,
                                       .evaluate = inspect_evaluate,
                                       .effect = inspect_effect,
                                       .distinct = true};

const std::function<void(const Sharding&)>& inspector_of(const Equation& equation) {
  return *as<InspectParams>(*equation.params).tell;
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

Tensor inspect_sharding(const Tensor& x, std::function<void(const Sharding&)> tell, Place place) {
  PlaceScope at(place);
  check(x.has_value(), "inspect_sharding: the Tensor is empty, it was never given a value");
  check(tell != nullptr, "inspect_sharding: the function is null");
  check(!current_mesh(),
        "inspect_sharding: inside shard_map each device has its part; inspect what goes in or "
        "comes out");
  auto shared = std::make_shared<const std::function<void(const Sharding&)>>(std::move(tell));
  return bind1(inspect_sharding_p, make_params(InspectParams{std::move(shared)}), {x});
}

}  // namespace postern
