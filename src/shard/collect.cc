// collect in programs: the identity, but for how its result lies.
#include "ops/family.h"
#include "shard/expansion.h"
#include "shard/shard_map.h"

namespace postern::internal {

namespace {

struct CollectParams {
  int rank;  // who gets it; -1: all
};

/// What all have the same is cut again where it came from, without a message.
Tensors collect_transpose(const Op&, TensorSpan ct, TensorSpan, TypeSpan) { return {ct[0]}; }
void collect_lower(Lowering& out, const Equation& e) { out.define(e, 0, out.operand(e, 0)); }

}  // namespace

constexpr Primitive collect_p =
    linear("collect", nullptr, same_type, collect_transpose, elementwise_batch, collect_lower);
static_assert(complete(collect_p));

int collect_rank(const Equation& e) { return as<CollectParams>(*e.params).rank; }

Tensor collected(const Tensor& x, int rank) {
  check(!current_mesh(),
        "collect: inside shard_map each device has its part; all_gather gives it the others'");
  return bind1(collect_p, make_params(CollectParams{rank}), {x});
}

}  // namespace postern::internal
