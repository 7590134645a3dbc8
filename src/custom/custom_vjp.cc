// custom_vjp: a function with a reverse-mode rule of its own. Its jvp runs the forward rule and
// puts a linear equation in the place of the tangents, which can only be transposed: that runs the
// backward rule.
#include <postern/transforms.h>

#include "core/lists.h"
#include "custom/custom.h"
#include "transform/axis.h"

namespace postern::internal {

namespace {

using detail::Forward;
using detail::ForwardRule;

struct CustomVjpParams {
  static constexpr const char* what = "custom_vjp";
  ProgramPtr body;  // captures, arguments -> results
  std::shared_ptr<const ForwardRule> forward;
  std::size_t captures;
  // The rule is of one call, from which `captures` follows.
  auto fields(Fields sink) const {
    return sink.field("body", body).identity("rule", forward.get()).left_out(captures);
  }
};

/// Residuals, tangents of the differentiable arguments -> those of the differentiable results.
struct PendingParams {
  std::shared_ptr<const TensorFunction>
      backward;  // residuals, cotangents of all results -> cotangents of all arguments
  std::size_t residuals;
  Types arguments, results;  // all of them
  // The rule is of one call, from which the other fields follow.
  auto fields(Fields sink) const {
    return sink.field("results", results)
        .identity("rule", backward.get())
        .left_out(residuals)
        .left_out(arguments);
  }
};

[[noreturn]] void refuse_forward() {
  throw_type_error(
      "custom_vjp gives a derivative in reverse mode only, and this is forward mode (jvp, "
      "linearize, jacfwd, hessian's outer half); give a rule with custom_jvp");
}

Types pending_type(const Params* params, TypeSpan) {
  const Types& results = as<PendingParams>(*params).results;
  return where_marked(results, differentiable(results));
}

Jvp pending_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<PendingParams>();
  if (has_any(dx.first(p.residuals))) refuse_forward();
  Tensors operands(x.begin(), x.end());
  for (std::size_t i = p.residuals; i < x.size(); ++i)
    operands[i] = or_zeros_of(dx[i], x[i].type());
  Tensors y = bind_n(op.primitive, op.params, x);
  return {y, bind_n(op.primitive, op.params, operands)};
}

Tensors pending_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan) {
  const auto& p = op.as<PendingParams>();
  Tensors in = head(x, p.residuals);
  check(has_all(in), "custom_vjp: a residual depends on a tangent");
  const Tensors of_results = placed(differentiable(p.results), ct);
  for (std::size_t i = 0; i < of_results.size(); ++i)
    in.push_back(shown_tangent(of_results[i], p.results[i]));
  const Tensors given = call_user(*p.backward, in);
  check(given.size() == p.arguments.size(),
        "custom_vjp: the backward rule returns {} cotangents for {} argument leaves", given.size(),
        p.arguments.size());
  Tensors out(p.residuals);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const Type& type = p.arguments[i];
    if (!is_differentiable(type.dtype)) continue;
    check(!given[i].has_value() || alike(given[i].type(), type),
          "custom_vjp: the backward rule's cotangent {} must be {} as its argument, got {}", i,
          to_string(type), type_text(given[i]));
    out.push_back(given[i]);
  }
  return out;
}

/// Returns the backward rule for a batch: from residuals of these types with `kept_axes`, (the
/// mask,) and cotangents with their batch axis in front to cotangents of the arguments with theirs;
/// those of arguments that are the same for all elements are summed.
TensorFunction batched_backward(const TensorFunction& backward, Types kept,
                                std::vector<int> kept_axes, const Types& results,
                                const std::vector<int>& argument_axes, std::int64_t size,
                                bool masked) {
  const std::size_t residuals = kept.size();
  for (const Type& t : results) {
    kept.push_back(tangent_type(t));
    kept_axes.push_back(0);
  }
  return batched_function("custom_vjp", backward, std::move(kept), std::move(kept_axes), size,
                          masked, residuals, argument_axes);
}

Types with_axes(Types types, std::span<const int> axes, std::int64_t size) {
  for (std::size_t i = 0; i < types.size(); ++i)
    if (axes[i] >= 0) types[i].dims.insert(types[i].dims.begin() + axes[i], size);
  return types;
}

Batched pending_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                      const Tensor& mask) {
  const auto& p = op.as<PendingParams>();
  const std::vector<int> kept_axes = head(axes, p.residuals);
  std::vector<int> argument_axes;
  std::size_t next = p.residuals;
  for (const Type& t : p.arguments) {
    argument_axes.push_back(-1);
    if (is_differentiable(t.dtype)) argument_axes.back() = axes[next++];
  }
  const Types kept = element_types(x.first(p.residuals), kept_axes);
  TensorFunction backward = batched_backward(*p.backward, kept, kept_axes, p.results, argument_axes,
                                             size, mask.has_value());
  PendingParams of_batch{std::make_shared<const TensorFunction>(std::move(backward)),
                         p.residuals + mask.has_value(),  // the mask is the last of them
                         with_axes(p.arguments, argument_axes, size),
                         with_axes(p.results, std::vector<int>(p.results.size(), 0), size)};
  Tensors operands(x.begin(), x.end());
  if (mask.has_value()) operands.insert(nth(operands, p.residuals), mask);
  return batched_in_front(bind_n(op.primitive, make_params(std::move(of_batch)), operands));
}

void pending_lower(Lowering&, const Equation&) { refuse_forward(); }
Tensors pending_evaluate(const Op&, TensorSpan) { refuse_forward(); }

Jvp custom_vjp_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<CustomVjpParams>();
  refuse_captured("custom_vjp", dx, p.captures);
  const TensorSpan arguments = x.subspan(p.captures);
  const Types types = p.body->output_types();
  Forward forward = call_user(*p.forward, arguments);
  check(forward.results.size() == types.size(),
        "custom_vjp: the forward rule returns {} values, the function {}", forward.results.size(),
        types.size());
  for (std::size_t i = 0; i < types.size(); ++i) {
    const Tensor& y = forward.results[i];
    check(is_of(y, types[i]),
          "custom_vjp: the forward rule's value {} must be {} as the function's, got {}", i,
          to_string(types[i]), type_text(y));
  }
  Tensors operands = forward.residuals;
  for (std::size_t i = p.captures; i < x.size(); ++i)
    if (is_differentiable(x[i].dtype())) operands.push_back(or_zeros_of(dx[i], x[i].type()));
  PendingParams pending{std::make_shared<const TensorFunction>(std::move(forward.backward)),
                        forward.residuals.size(), types_of(arguments), types};
  const Tensors tangents = bind_n(custom_vjp_tangent_p, make_params(std::move(pending)), operands);
  Tensors dy = placed(differentiable(types), tangents);
  return {std::move(forward.results), std::move(dy)};
}

/// Returns the forward rule for a batch: from arguments with these axes, then the mask if `masked`,
/// to results with the batch axis in front, residuals with theirs where the rule leaves them, and
/// the backward rule for these.
ForwardRule batched_forward(const ForwardRule& forward, Types types, std::vector<int> axes,
                            std::int64_t size, bool masked) {
  return [=, axis = BatchScope::current()](TensorSpan leaves) {
    const Tensor mask = at_if(masked, leaves, axes.size());
    Forward one;  // of one element
    const AxisScope named(axis);
    const BatchScope batching(axis);
    const Closed closed = trace_user("custom_vjp", types, [&](TensorSpan in) {
      one = forward(in);
      return joined({one.results, one.residuals});
    });
    const auto [y, from] = batch_of(closed, leaves.first(axes.size()), axes, size, mask);

    const std::size_t results = one.results.size();
    Forward out;
    for (std::size_t i = 0; i < results; ++i)
      out.results.push_back(move_batch(y[i], from[i], 0, size, mask));
    out.residuals = tail(y, results);
    out.backward = batched_backward(one.backward, types_of(one.residuals), tail(from, results),
                                    types_of(one.results), axes, size, masked);
    if (masked) {
      out.residuals.push_back(mask);
      out.backward = [backward = out.backward](TensorSpan in) {
        Tensors given = backward(in);
        given.emplace_back();  // the mask, an argument of the batched function, has no cotangent
        return given;
      };
    }
    return out;
  };
}

Batched custom_vjp_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                         const Tensor& mask) {
  const auto& p = op.as<CustomVjpParams>();
  Closed body = batched_body("custom_vjp", *p.body, x, axes, size, mask);
  auto forward = std::make_shared<const ForwardRule>(
      batched_forward(*p.forward, element_types(x.subspan(p.captures), axes.subspan(p.captures)),
                      tail(axes, p.captures), size, mask.has_value()));
  const Tensors operands = joined({body.captures, x, list_of(mask)});
  CustomVjpParams of_batch{body.program, std::move(forward), p.captures + body.captures.size()};
  return batched_in_front(bind_n(op.primitive, make_params(std::move(of_batch)), operands));
}

constexpr Primitive custom_vjp_p{.name = "custom_vjp",
                                 .type = body_type<CustomVjpParams>,
                                 .jvp = custom_vjp_jvp,
                                 .with_programs = body_with_programs<CustomVjpParams>,
                                 .transparent = true,
                                 .batch = custom_vjp_batch,
                                 .lower = body_lower<CustomVjpParams>,
                                 .evaluate = body_evaluate<CustomVjpParams>};
static_assert(complete(custom_vjp_p));

}  // namespace

constexpr Primitive custom_vjp_tangent_p{.name = "custom_vjp_tangent",
                                         .type = pending_type,
                                         .jvp = pending_jvp,
                                         .transpose = pending_transpose,
                                         .linear = Linear::jointly,
                                         .batch = pending_batch,
                                         .lower = pending_lower,
                                         .evaluate = pending_evaluate};

}  // namespace postern::internal

namespace postern {
using namespace internal;

detail::Tensors detail::custom_vjp(const TensorFunction& f, const ForwardRule& forward,
                                   const Tensors& x, const Place& place) {
  PlaceScope at(place);
  return bind_custom<CustomVjpParams>(custom_vjp_p, f, forward, x);
}

}  // namespace postern
