// What functions with rules of their own share: equations that mean a program they hold.
#pragma once
#include <postern/transforms.h>

#include "analysis/rewrite.h"
#include "ops/family.h"
#include "transform/alive.h"
#include "transform/batch.h"
#include "transform/jvp.h"
#include "transform/walk.h"

namespace postern::internal {

extern const Primitive linear_call_p, custom_jvp_p, custom_vjp_tangent_p;

/// Returns the map that `f` is, for leaves of these types (see linear_transpose). Throws TypeError
/// where it is not linear, beginning with `what`.
std::shared_ptr<const detail::LinearMap> linear_map(const char* what, const TensorFunction& f,
                                                    TensorSpan like);

/// Returns the cotangents of a call's differentiable operands by a function on the host, from the
/// leaves of its operands, its results, and their cotangents; see call_with_vjp.
TensorFunction host_cotangents(const CallOptions& options, const HostVjp& vjp_fn,
                               std::size_t operands, std::size_t results);

/// Refuses a function with a rule of its own that gives what stands for a started call: a handle
/// has no derivative, and that of the call would be quietly zero.
void refuse_handles(const char* what, const Program& body);

/// Leaves out what is differentiated by a rule of its own and has no transpose but its program's.
Program without_rules(const Program& program);

/// Refuses operands that the program's inputs do not fit; the types of its outputs.
Types program_type(const char* what, const Program& program, TypeSpan operands);

/// Returns the result types of a primitive whose parameters P have the field `body`: the equation
/// is that program.
template <class P>
Types body_type(const Params* params, TypeSpan operands) {
  const auto& p = as<P>(*params);
  return program_type(P::what, *p.body, operands);
}
template <class P>
void body_lower(Lowering& out, const Equation& e) {
  out.define_all(e, out.inlined(*as<P>(*e.params).body, out.operands(e)));
}
template <class P>
Tensors body_evaluate(const Op& op, TensorSpan x) {
  return evaluator.program(op.as<P>().body, x);
}

/// Binds the operation with another body: `x` behind the body's captures. `again`: the body
/// computes what was computed before.
using Rebind = Tensors (*)(const Op& op, const Closed& body, TensorSpan x, bool again);
// Gives the rules of an equation that means its program: that program's, by the same operation with
// another body.
Jvp body_jvp(const char* what, const Op& op, const Program& body, TensorSpan x, TensorSpan dx,
             Rebind rebind);
Tensors body_transpose(const char* what, const Op& op, const Program& body, TensorSpan ct,
                       TensorSpan x, Rebind rebind);
Batched body_batch(const char* what, const Op& op, const Program& body, TensorSpan x,
                   std::span<const int> axes, std::int64_t size, const Tensor& mask, Rebind rebind);

/// Binds a user's function that has a rule of its own. P is {body, rule, number of captures}.
template <class P, class Rule>
Tensors bind_custom(const Primitive& primitive, const TensorFunction& f, Rule rule,
                    const Tensors& x) {
  const Closed body = trace_user_inner(P::what, types_of(x), f);
  refuse_handles(P::what, *body.program);
  const Tensors operands = joined({body.captures, x});
  P p{body.program, std::make_shared<const Rule>(std::move(rule)), body.captures.size()};
  return bind_n(primitive, make_params(std::move(p)), operands);
}

/// Calls a function that the user wrote: its operations have places of their own.
template <class F>
auto call_user(const F& f, TensorSpan x) {
  PlaceScope::Replace none{Place{}};
  return f(x);
}

/// Returns `body` for a batch: its inputs as `x` with `axes`, then the mask if there is one; all
/// outputs with the batch axis in front.
Closed batched_body(const char* what, const Program& body, TensorSpan x, std::span<const int> axes,
                    std::int64_t size, const Tensor& mask);
/// Returns the same for inputs of these types, the mask's last if `masked`.
Closed batched_body(const char* what, const Program& body, const Types& types,
                    std::span<const int> axes, std::int64_t size, bool masked);

/// Returns a function of leaves of these types for a batch: leaves with these axes, if `masked`
/// with the mask among them as leaf `mask_place`, to outputs with axis `out_axes[i]` (-1: summed
/// over the batch).
TensorFunction batched_function(const char* what, TensorFunction f, Types types,
                                std::vector<int> axes, std::int64_t size, bool masked,
                                std::size_t mask_place, std::vector<int> out_axes);

/// Moves a program's last input, the mask of batched_body, to `place` among the inputs.
ProgramPtr with_mask_at(const Program& program, std::size_t place);

/// Returns types of one element of a batch.
Types element_types(TensorSpan x, std::span<const int> axes);

// --- of custom_linear_solve and custom_root: functions from leaves to leaves of the same types

/// Returns the types of the leaves of what is solved for, all float or complex.
Types solution_types(const char* caller, const char* name, TensorSpan leaves);
/// Returns `leaves`, refused unless of these types; numbers adopt them.
Tensors like_solution(const char* caller, const char* name, const Types& types, Tensors leaves);
/// Returns a traced function as one to be called by what solves.
TensorFunction function_of(const char* caller, const char* name, const Closed& program,
                           const Types& types);

/// Throws when a tensor that the function captured, the first `count`, is differentiated.
void refuse_captured(const char* what, TensorSpan dx, std::size_t count);

}  // namespace postern::internal
