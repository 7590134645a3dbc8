// custom_linear_solve: the solution of a linear system, which is differentiated as what it is and
// not as how it is found. Derivatives and transposes are such systems again, as in JAX.
#include <postern/transforms.h>

#include "control/control.h"
#include "core/lists.h"
#include "custom/custom.h"
#include "transform/linearize.h"

namespace postern::internal {

namespace {

constexpr const char* solve_name = "custom_linear_solve";

/// All programs take the captures, then leaves like b, and give leaves like b.
struct LinearSolveParams {
  static constexpr const char* what = solve_name;
  ProgramPtr body;  // solves
  ProgramPtr matvec;
  ProgramPtr transpose_body, vecmat;  // null: it was not said how the transpose is solved
  std::size_t captures;
  auto fields(Fields sink) const {
    return sink.field("solve", body)
        .field("matvec", matvec)
        .when(vecmat != nullptr, "transpose_solve", transpose_body)
        .when(vecmat != nullptr, "vecmat", vecmat)
        .left_out(captures);  // the other inputs of the programs are as many as their outputs
  }
};

ParamsPtr linear_solve_with_programs(const Params* params, std::span<const ProgramPtr> programs) {
  LinearSolveParams p = as<LinearSolveParams>(*params);
  p.body = programs[0];
  p.matvec = programs[1];
  if (p.vecmat) {
    p.transpose_body = programs[2];
    p.vecmat = programs[3];
  }
  return make_params(std::move(p));
}

/// Differentiates y with A y = b, where A depends on the captures: A dy = db - dA y, which is
/// solved by the same functions.
Jvp linear_solve_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<LinearSolveParams>();
  const auto captures = x.first(p.captures), captures_move = dx.first(p.captures);
  Tensors y = bind_n(op.primitive, op.params, x);
  Tensors right = tail(dx, p.captures);
  if (has_any(captures_move)) {
    const Tensors da_y =
        jvp_of(*p.matvec, joined({captures, y}), joined({captures_move, Tensors(y.size())})).second;
    for (std::size_t i = 0; i < da_y.size(); ++i)
      if (da_y[i].has_value()) right[i] = add_any(right[i], -da_y[i]);
  }
  if (!has_any(right)) return {y, Tensors(y.size())};
  const Tensors operands = joined({captures, filled(right, types_of(y))});
  return {std::move(y), bind_n(op.primitive, op.params, operands)};
}

Tensors linear_solve_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types) {
  LinearSolveParams p = op.as<LinearSolveParams>();
  check(p.vecmat != nullptr,
        "custom_linear_solve: reverse mode needs transpose_solve, or .symmetric where matvec is "
        "its own transpose");
  Tensors operands = head(x, p.captures);
  check(has_all(operands), "custom_linear_solve: what its functions capture depends on a tangent");
  for (std::size_t i = 0; i < ct.size(); ++i)
    operands.push_back(or_zeros_of(ct[i], types[p.captures + i]));
  std::swap(p.body, p.transpose_body);
  std::swap(p.matvec, p.vecmat);
  const std::size_t captures = p.captures;
  Tensors out(captures);
  append(out, bind_n(op.primitive, make_params(std::move(p)), operands));
  return out;
}

Batched linear_solve_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                           const Tensor& mask) {
  const auto& p = op.as<LinearSolveParams>();
  const bool masked = mask.has_value();
  Tensors operands(x.begin(), x.end());
  std::vector<int> from(axes.begin(), axes.end());
  for (std::size_t i = p.captures; i < x.size(); ++i) {
    operands[i] = move_batch(x[i], axes[i], 0, size, mask);
    from[i] = 0;
  }
  // All programs are to take the same captures: what each of them captures now, the captures before
  // and, last, the mask.
  std::vector<Closed> bodies;
  for (const ProgramPtr& program : programs_of(*op.params))
    bodies.push_back(batched_body(solve_name, *program, operands, from, size, mask));
  Tensors all = joined({join_captures(bodies), operands});
  const std::size_t captures = bodies[0].captures.size() + p.captures;
  std::vector<ProgramPtr> programs;
  for (const Closed& c : bodies)
    programs.push_back(masked ? with_mask_at(*c.program, captures) : c.program);
  if (masked) all.insert(nth(all, captures), mask);
  LinearSolveParams of_batch =
      as<LinearSolveParams>(*linear_solve_with_programs(op.params.get(), programs));
  of_batch.captures = captures + masked;
  return batched_in_front(bind_n(op.primitive, make_params(std::move(of_batch)), all));
}

constexpr Primitive linear_solve_p{.name = "custom_linear_solve",
                                   .type = body_type<LinearSolveParams>,
                                   .jvp = linear_solve_jvp,
                                   .transpose = linear_solve_transpose,
                                   .linear = Linear::jointly,
                                   .with_programs = linear_solve_with_programs,
                                   .transparent = true,
                                   .batch = linear_solve_batch,
                                   .lower = body_lower<LinearSolveParams>,
                                   .evaluate = body_evaluate<LinearSolveParams>};

}  // namespace

Types solution_types(const char* caller, const char* name, TensorSpan leaves) {
  Types out;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    check(leaves[i].has_value(), "{}: leaf {} of {} is an empty Tensor, one without a value",
          caller, i, name);
    const Type& type = leaves[i].type();
    check(is_differentiable(type.dtype), "{}: leaf {} of {} must be float or complex, got {}",
          caller, i, name, to_string(type));
    out.push_back({type.dtype, type.dims});
  }
  return out;
}

Tensors like_solution(const char* caller, const char* name, const Types& types, Tensors leaves) {
  check(leaves.size() == types.size(), "{}: {} has {} leaves, required are {}", caller, name,
        leaves.size(), types.size());
  for (std::size_t i = 0; i < types.size(); ++i) {
    check(leaves[i].has_value(), "{}: leaf {} of {} is an empty Tensor", caller, i, name);
    const Type got = leaves[i].type();
    check((got.dtype == types[i].dtype || got.weak) && got.dims == types[i].dims,
          "{}: leaf {} of {} must be {}, got {}", caller, i, name, to_string(types[i]),
          to_string(got));
    if (got.dtype != types[i].dtype) leaves[i] = fit(leaves[i], types[i]);
  }
  return leaves;
}

TensorFunction function_of(const char* caller, const char* name, const Closed& program,
                           const Types& types) {
  return
      [caller, argument = fmt::format("the argument of {}", name), program, types](TensorSpan x) {
        const Tensors leaves = like_solution(caller, argument.c_str(), types, {x.begin(), x.end()});
        return internal::apply(*program.program, joined({program.captures, leaves}));
      };
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

detail::Tensors detail::custom_linear_solve(const TensorFunction& matvec, const Solver& solve,
                                            const Solver& transpose_solve, bool symmetric,
                                            const Tensors& b, const Place& place) {
  PlaceScope at(place);
  const Types types = solution_types(solve_name, "b", b);
  // Traces how a solver finds the solution for a linear map, whose name is for errors.
  auto solved = [&](const char* name, const Solver& by, const Closed& map, const char* map_name) {
    return trace_user_inner(solve_name, types, [&](TensorSpan in) {
      return like_solution(solve_name, name, types,
                           by(function_of(solve_name, map_name, map, types), in));
    });
  };
  const Closed forward = trace_user_inner(solve_name, types, [&](TensorSpan in) {
    return like_solution(solve_name, "matvec", types, matvec(in));
  });
  auto transposed_matvec = [&](TensorSpan ct) {
    Tensors like;
    for (const Type& type : types) like.push_back(abstract(type));
    const auto map = linear_map("custom_linear_solve: matvec",
                                function_of(solve_name, "matvec", forward, types), like);
    return filled(map->of.pull(ct), types);
  };

  std::vector<Closed> all{solved("solve", solve, forward, "matvec"), forward};
  const Solver& solve_back = symmetric && !transpose_solve ? solve : transpose_solve;
  if (solve_back) {
    const Closed backward = symmetric ? forward : trace_inner(solve_name, types, transposed_matvec);
    all.push_back(solved("transpose_solve", solve_back, backward, "the transpose of matvec"));
    all.push_back(backward);
  }
  const Tensors captures = join_captures(all);
  LinearSolveParams p{all[0].program, all[1].program, nullptr, nullptr, captures.size()};
  if (solve_back) {
    p.transpose_body = all[2].program;
    p.vecmat = all[3].program;
  }
  return bind_n(linear_solve_p, make_params(std::move(p)), joined({captures, b}));
}

}  // namespace postern
