// custom_jvp: a function with a forward-mode rule of its own.
#include <postern/transforms.h>

#include "core/lists.h"
#include "custom/custom.h"
#include "transform/flatten.h"
#include "transform/transpose.h"

namespace postern::internal {

namespace {

struct CustomJvpParams {
  static constexpr const char* what = "custom_jvp";
  ProgramPtr body;                             // captures, arguments -> results
  std::shared_ptr<const TensorFunction> rule;  // arguments, tangents -> results, tangents
  std::size_t captures;
  // The rule is of one call, from which `captures` follows.
  auto fields(Fields sink) const {
    return sink.field("body", body).identity("rule", rule.get()).left_out(captures);
  }
};

/// Calls the rule, of the arguments and their tangents, and refuses what does not fit the function.
Tensors checked_rule(const CustomJvpParams& p, TensorSpan arguments) {
  Tensors out = call_user(*p.rule, arguments);
  const Types types = p.body->output_types();
  check(out.size() == 2 * types.size(),
        "custom_jvp: the rule returns {} leaves, required are {} values and as many tangents",
        out.size(), types.size());
  for (std::size_t i = 0; i < types.size(); ++i) {
    const Tensor &y = out[i], &dy = out[i + types.size()];
    check(is_of(y, types[i]),
          "custom_jvp: the rule's value {} must be {} as the function's, got {}", i,
          to_string(types[i]), type_text(y));
    check(!is_differentiable(types[i].dtype) || !dy.has_value() || alike(dy.type(), types[i]),
          "custom_jvp: the rule's tangent {} must be {} as its value, got {}", i,
          to_string(types[i]), type_text(dy));
  }
  return out;
}

Jvp custom_jvp_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<CustomJvpParams>();
  refuse_captured("custom_jvp", dx, p.captures);
  Tensors arguments = tail(x, p.captures);
  for (std::size_t i = p.captures; i < x.size(); ++i)
    arguments.push_back(shown_tangent(dx[i], x[i].type()));
  const Tensors out = checked_rule(p, arguments);
  return {head(out, out.size() / 2), tail(out, out.size() / 2)};
}

/// Transposes one that the rule of another applies to a tangent: the function's own program says
/// whether that is linear.
Tensors custom_jvp_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan) {
  return transpose_of(without_rules(*op.as<CustomJvpParams>().body), x, ct);
}

Batched custom_jvp_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                         const Tensor& mask) {
  const auto& p = op.as<CustomJvpParams>();
  Closed body = batched_body("custom_jvp", *p.body, x, axes, size, mask);
  Types types = element_types(x.subspan(p.captures), axes.subspan(p.captures));
  std::vector<int> rule_axes = tail(axes, p.captures);
  const std::size_t arguments = types.size();
  const bool masked = mask.has_value();
  // Under a mask each element has its own tangent of what all share: what comes back along those of
  // dead elements, perhaps nan, is not added to it.
  std::vector<bool> spread;
  for (std::size_t i = 0; i < arguments; ++i) {
    spread.push_back(masked && rule_axes[i] < 0 && is_differentiable(types[i].dtype));
    types.push_back(tangent_type(types[i]));
    rule_axes.push_back(spread[i] ? 0 : rule_axes[i]);
  }
  TensorFunction batched =
      batched_function("custom_jvp", *p.rule, types, rule_axes, size, masked, arguments,
                       std::vector<int>(2 * p.body->outputs.size(), 0));
  // The batched rule is given arguments, (the mask,) tangents, (what stands for the mask's).
  auto rule = std::make_shared<const TensorFunction>(
      [batched, arguments, masked, spread = std::move(spread), size](TensorSpan leaves) {
        Tensors in(leaves.begin(), leaves.end());
        for (std::size_t i = 0; i < arguments; ++i) {
          Tensor& tangent = in[arguments + masked + i];
          if (spread[i]) tangent = move_batch(tangent, -1, 0, size, in[arguments]);
        }
        return batched(in);
      });
  const Tensors operands = joined({body.captures, x, list_of(mask)});
  CustomJvpParams of_batch{body.program, std::move(rule), p.captures + body.captures.size()};
  return batched_in_front(bind_n(op.primitive, make_params(std::move(of_batch)), operands));
}

}  // namespace

constexpr Primitive custom_jvp_p{.name = "custom_jvp",
                                 .type = body_type<CustomJvpParams>,
                                 .jvp = custom_jvp_jvp,
                                 .transpose = custom_jvp_transpose,
                                 .linear = Linear::jointly,
                                 .with_programs = body_with_programs<CustomJvpParams>,
                                 .transparent = true,
                                 .batch = custom_jvp_batch,
                                 .lower = body_lower<CustomJvpParams>,
                                 .evaluate = body_evaluate<CustomJvpParams>};

Program without_rules(const Program& program) {
  return flattened(program, [](const Equation& e) {
    return e.primitive->transparent &&
           (e.primitive->transpose == nullptr || e.primitive == &custom_jvp_p);
  });
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

detail::Tensors detail::custom_jvp(const TensorFunction& f, const TensorFunction& rule,
                                   const Tensors& x, const Place& place) {
  PlaceScope at(place);
  return bind_custom<CustomJvpParams>(custom_jvp_p, f, rule, x);
}

}  // namespace postern
