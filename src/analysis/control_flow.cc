// The parameters of loops, and what all loops have in common.
#include "analysis/control_flow.h"

namespace postern::internal {

FieldChain<8> WhileParams::fields(Fields sink) const {
  return sink.left_out(offloaded)
      .when(offloaded, "tapes", handle_ranks)
      .when(bounded, "bounded", bounded)
      .by([&](FieldSink& of_residuals) { tell_all(residuals, of_residuals); })
      .field("condition", condition)
      // The other inputs of these are carried.
      .left_out(condition_constants)
      .field("body", body)
      .left_out(body_constants);
}

FieldChain<13> ScanParams::fields(Fields sink) const {
  return sink.left_out(offloaded)
      .when(offloaded, "tapes", handle_ranks)
      .when(!frees.empty(), "frees", frees)
      .by([&](FieldSink& of_residuals) {
        if (offloaded) tell_all(residuals, of_residuals);
      })
      .when(!offloaded, "length", length)
      .left_out(counted)
      .when(counted, "start", start)
      .when(counted, "index", index)
      .when(reverse, "reverse", reverse)
      .when(unroll != 1, "unroll", unroll)
      .field("constants", constants)
      .field("carries", carries)
      .field("body", body);
}

Loop loop_of(const Equation& e) {
  if (e.primitive->control == ControlFlow::while_loop) {
    const auto& p = as<WhileParams>(*e.params);
    return {p.condition, p.body,     p.condition_constants, p.body_constants, p.carries(),
            false,       p.offloaded};
  }
  const auto& p = as<ScanParams>(*e.params);
  return {nullptr, p.body, p.first_operand(), p.constants, p.carries, p.counted, p.offloaded};
}

}  // namespace postern::internal
