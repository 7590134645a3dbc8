// The part of the transformations that does not depend on types: functions of leaves.
#pragma once
#include <postern/detail/api.h>
#include <postern/detail/transform_tree.h>

namespace postern {

struct CallOptions;
struct GradOptions;
struct RecomputeOptions;
class HostVjp;

namespace detail {

struct LinearMap;  // a function near a point: kept by what vjp, linearize, linear_transpose return

struct Values {
  Tensors results, derivatives;
};

/// Returns values and tangents of all leaves. Tangents of leaves that are not differentiable are
/// ignored, and given back as pred zeros.
POSTERN_API Values jvp(const TensorFunction& f, const Tensors& x, const Tensors& dx,
                       const Place& place);
/// Returns values, and the derivative by each active leaf (the others are empty). With `aux` only
/// the first result is differentiated.
POSTERN_API Values value_and_grad(const char* what, const TensorFunction& f, const Tensors& x,
                                  const std::vector<bool>& active, bool aux,
                                  const GradOptions& options, const Place& place);
POSTERN_API std::shared_ptr<const LinearMap> linearize(const char* what, const TensorFunction& f,
                                                       const Tensors& x);
/// Returns the map that `f` is, for leaves of these types; of the leaves only the types are looked
/// at.
POSTERN_API std::shared_ptr<const LinearMap> linear_transpose(const TensorFunction& f,
                                                              const Tensors& x);
POSTERN_API const Tensors& results_of(const LinearMap& map);
POSTERN_API Tensors push(const LinearMap& map, const Tensors& tangents);
POSTERN_API Tensors pull(const LinearMap& map, const Tensors& cotangents);
/// Returns for each result leaf and each active leaf of x, in this order, an array of shape result
/// + x.
POSTERN_API Tensors jacobian(bool forward, const TensorFunction& f, const Tensors& x,
                             const std::vector<bool>& active, const GradOptions& options,
                             const Place& place);
/// Maps; `out_axes` is asked when `f` has been traced.
POSTERN_API Tensors vmap(const TensorFunction& f, const Tensors& x, const std::vector<int>& axes,
                         FunctionRef<std::vector<int>()> out_axes, std::optional<std::int64_t> size,
                         const std::string& axis_name, const Place& place);

POSTERN_API Tensors vectorize(const TensorFunction& f, const std::string& signature,
                              const Tensors& x, const Place& place);

/// Takes a rule (x, dx) -> (y, dy), leaves one after another.
POSTERN_API Tensors custom_jvp(const TensorFunction& f, const TensorFunction& rule,
                               const Tensors& x, const Place& place);

/// What a forward rule gives: the results, what is kept for the backward rule, and that rule, from
/// kept values and cotangents to cotangents.
struct Forward {
  Tensors results, residuals;
  TensorFunction backward;
};
using ForwardRule = Function<Forward(std::span<const Tensor>)>;
POSTERN_API Tensors custom_vjp(const TensorFunction& f, const ForwardRule& forward,
                               const Tensors& x, const Place& place);
/// Takes f(residuals, x); transpose(residuals, ct).
POSTERN_API Tensors linear_call(const TensorFunction& f, const TensorFunction& transpose,
                                const Tensors& residuals, const Tensors& x, const Place& place);
/// Solves map(x) = b for x.
using Solver = Function<Tensors(const TensorFunction& map, std::span<const Tensor> b)>;
/// Solves; without `transpose_solve` there is no reverse mode, unless `symmetric`.
POSTERN_API Tensors custom_linear_solve(const TensorFunction& matvec, const Solver& solve,
                                        const Solver& transpose_solve, bool symmetric,
                                        const Tensors& b, const Place& place);
POSTERN_API Tensors custom_root(const TensorFunction& f, const Solver& solve,
                                const Solver& tangent_solve, const Tensors& initial,
                                const Place& place);
POSTERN_API Tensors call_with_vjp(const CallOptions& options, const Tensors& out,
                                  const std::string& structure,
                                  const std::vector<std::string>& paths, const Callee& fn,
                                  const HostVjp& vjp_fn, const Tensors& operands);
POSTERN_API Tensors checkpoint(const TensorFunction& f, const RecomputeOptions& options,
                               const Tensors& x, const Place& place);
POSTERN_API Tensor stop_gradient(const Tensor& x, const Place& place);

}  // namespace detail
}  // namespace postern
