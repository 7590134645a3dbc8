// linear_call: a linear function with a transpose of its own.
#include <postern/transforms.h>

#include "core/lists.h"
#include "custom/custom.h"

namespace postern::internal {

namespace {

struct LinearCallParams {
  static constexpr const char* what = "linear_call";
  ProgramPtr body;                                  // captures, residuals, x -> y
  std::shared_ptr<const TensorFunction> transpose;  // residuals, ct -> cotangents of x
  std::size_t captures, residuals;
  std::size_t first_x() const { return captures + residuals; }
  // The transpose is of one call, from which the numbers follow.
  auto fields(Fields sink) const {
    return sink.field("body", body)
        .identity("transpose", transpose.get())
        .left_out(captures)
        .left_out(residuals);
  }
};

/// Returns y, and for its tangent the same call of the tangents of x, in which it is linear.
/// Captures, residuals and leaves of x that are not differentiable stay as they are.
Jvp linear_call_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<LinearCallParams>();
  refuse_captured("linear_call", dx, p.captures);
  check(!has_any(dx.first(p.first_x())),
        "linear_call: a residual is differentiated, but the function has a derivative by its "
        "linear argument only");
  Tensors tangents(x.begin(), x.end());
  for (std::size_t i = p.first_x(); i < x.size(); ++i)
    if (is_differentiable(x[i].dtype())) tangents[i] = or_zeros_of(dx[i], x[i].type());
  return {bind_n(op.primitive, op.params, x), bind_n(op.primitive, op.params, tangents)};
}

/// Calls the user's transpose; empty are the cotangents of what has none.
Tensors transposed(const LinearCallParams& p, TensorSpan residuals_and_ct) {
  const Types inputs = p.body->input_types(), types = tail(inputs, p.first_x());
  Tensors given = call_user(*p.transpose, residuals_and_ct);
  check(given.size() == types.size(),
        "linear_call: the transpose returns {} cotangents for {} leaves", given.size(),
        types.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!is_differentiable(types[i].dtype)) given[i] = Tensor();
    check(!given[i].has_value() || alike(given[i].type(), types[i]),
          "linear_call: the transpose's cotangent {} must be {} as its argument, got {}", i,
          to_string(types[i]), type_text(given[i]));
  }
  return given;
}

/// Returns whether the program calls a function that has no derivative.
bool calls_bare(const Program& program) {
  return std::ranges::any_of(program.equations, [](const Equation& e) {
    const Primitive& p = *e.primitive;
    if (const SiteSpec* site = site_of(e)) return !site->is_tap();
    if (p.transparent && !p.split) return false;  // it has rules in the place of its program's
    return e.params && std::ranges::any_of(programs_of(*e.params), [](const ProgramPtr& inner) {
             return calls_bare(*inner);
           });
  });
}

/// Returns the transpose of what linear_call_transpose writes: the body. Its leaves are the first
/// `known` that both have (captures, residuals, arguments that are not differentiable), then the
/// arguments that `moves` marks; other differentiable arguments are zero.
TensorFunction body_as_transpose(const LinearCallParams& p, std::size_t known,
                                 const std::vector<bool>& moves) {
  return [body = p.body, first_x = p.first_x(), known, moves](TensorSpan leaves) {
    Tensors in = head(leaves, first_x);
    std::size_t next_known = first_x, next_moved = known;
    for (const bool is_moved : moves) {
      const Type& type = body->type(body->inputs[in.size()]);
      if (!is_differentiable(type.dtype))
        in.push_back(leaves[next_known++]);
      else
        in.push_back(is_moved ? leaves[next_moved++] : zeros_of(type));
    }
    return internal::apply(*body, in);
  };
}

/// Writes the user's transpose. Where that calls a function without a derivative it is bound as a
/// linear_call in its turn, whose transpose is the body; else its operations are written as they
/// are, and have derivatives of their own.
Tensors linear_call_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types) {
  const auto& p = op.as<LinearCallParams>();
  Tensors in = head(x, p.first_x());
  check(has_all(in), "linear_call: a residual depends on a tangent");
  for (std::size_t i = p.first_x(); i < x.size(); ++i)
    if (!is_differentiable(types[i].dtype)) in.push_back(x[i]);
  const std::size_t known = in.size();
  const Types results = p.body->output_types();
  for (std::size_t i = 0; i < ct.size(); ++i) in.push_back(shown_tangent(ct[i], results[i]));
  std::vector<bool> moves;  // the arguments that get a cotangent
  const Closed back = trace_inner("linear_call", types_of(in), [&](TensorSpan all) {
    Tensors residuals_and_ct = between(all, p.captures, p.first_x());
    append(residuals_and_ct, all.subspan(known));
    const Tensors given = transposed(p, residuals_and_ct);
    moves = present(given);
    return kept(given);
  });
  const Tensors operands = joined({back.captures, in});
  Tensors cotangents;
  if (calls_bare(*back.program)) {
    LinearCallParams backward{
        back.program, std::make_shared<const TensorFunction>(body_as_transpose(p, known, moves)),
        back.captures.size(), known};
    cotangents = bind_n(op.primitive, make_params(std::move(backward)), operands);
  } else {
    cotangents = internal::apply(*back.program, operands);
  }
  Tensors out(p.first_x());
  append(out, placed(moves, cotangents));
  return out;
}

Batched linear_call_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                          const Tensor& mask) {
  const auto& p = op.as<LinearCallParams>();
  // The mask, if there is one, becomes the last residual.
  Closed body = batched_body("linear_call", *p.body, x, axes, size, mask);
  const std::size_t residuals = p.residuals;
  Types types =
      element_types(x.subspan(p.captures, residuals), axes.subspan(p.captures, residuals));
  std::vector<int> rule_axes = between(axes, p.captures, p.first_x());
  for (const Type& t : p.body->output_types()) {
    types.push_back(tangent_type(t));
    rule_axes.push_back(0);
  }
  const bool masked = mask.has_value();
  auto transpose = std::make_shared<const TensorFunction>(
      batched_function("linear_call", *p.transpose, types, rule_axes, size, masked, residuals,
                       tail(axes, p.first_x())));
  const std::size_t captures = p.captures + body.captures.size();
  if (masked) body.program = with_mask_at(*body.program, captures + residuals);
  const Tensors operands =
      joined({body.captures, x.first(p.first_x()), list_of(mask), x.subspan(p.first_x())});
  LinearCallParams of_batch{body.program, std::move(transpose), captures, residuals + masked};
  return batched_in_front(bind_n(op.primitive, make_params(std::move(of_batch)), operands));
}

}  // namespace

constexpr Primitive linear_call_p{.name = "linear_call",
                                  .type = body_type<LinearCallParams>,
                                  .jvp = linear_call_jvp,
                                  .transpose = linear_call_transpose,
                                  .linear = Linear::jointly,
                                  .with_programs = body_with_programs<LinearCallParams>,
                                  .transparent = true,
                                  .batch = linear_call_batch,
                                  .lower = body_lower<LinearCallParams>,
                                  .evaluate = body_evaluate<LinearCallParams>};

}  // namespace postern::internal

namespace postern {
using namespace internal;

detail::Tensors detail::linear_call(const TensorFunction& f, const TensorFunction& transpose,
                                    const Tensors& residuals, const Tensors& x,
                                    const Place& place) {
  PlaceScope at(place);
  const Tensors arguments = joined({residuals, x});
  const Closed body = trace_user_inner("linear_call", types_of(arguments), f);
  const Tensors operands = joined({body.captures, arguments});
  LinearCallParams p{body.program, std::make_shared<const TensorFunction>(transpose),
                     body.captures.size(), residuals.size()};
  return bind_n(linear_call_p, make_params(std::move(p)), operands);
}

}  // namespace postern
