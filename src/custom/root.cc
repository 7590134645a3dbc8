// custom_root: where a function is zero, differentiated by the implicit function theorem.
#include <postern/transforms.h>

#include "control/control.h"
#include "core/lists.h"
#include "custom/custom.h"
#include "transform/linearize.h"

namespace postern {
using namespace internal;

namespace {

constexpr const char* root_name = "custom_root";

/// All programs take the captures first.
struct Root {
  ProgramPtr f;        // x -> f(x)
  ProgramPtr solve;    // initial -> x
  ProgramPtr tangent;  // x, y -> dx with f'(x) dx = y
  std::size_t captures;
};

/// Solves for x(m), where m are the captures, the first arguments; the others are the initial
/// guess. Since f(m, x(m)) = 0, the tangent dx solves f_x dx = -f_m dm.
Tensors root_of(const std::shared_ptr<const Root>& root, const Tensors& arguments) {
  const auto rule = [root](TensorSpan in) {
    const std::size_t count = in.size() / 2;  // arguments, and as many tangents
    const Tensors x = root_of(root, head(in, count));
    const auto m = in.first(root->captures), dm = in.subspan(count, root->captures);
    const Tensors point = joined({m, x});
    const Tensors df = jvp_of(*root->f, point, joined({dm, Tensors(x.size())})).second;
    const Tensors right = filled(df, types_of(x));
    Tensors out = x;
    for (const Tensor& dx : internal::apply(*root->tangent, joined({point, right})))
      out.push_back(-dx);
    return out;
  };
  const auto solve = [root](TensorSpan in) { return internal::apply(*root->solve, in); };
  return detail::custom_jvp(solve, rule, arguments, PlaceScope::current());
}

}  // namespace

detail::Tensors detail::custom_root(const TensorFunction& f, const Solver& solve,
                                    const Solver& tangent_solve, const Tensors& initial,
                                    const Place& place) {
  PlaceScope at(place);
  const Types types = solution_types(root_name, "the initial guess", initial);
  const Closed of_f = trace_user_inner(root_name, types, [&](TensorSpan in) {
    return like_solution(root_name, "what f gives", types, f(in));
  });
  const Closed of_solve = trace_user_inner(root_name, types, [&](TensorSpan in) {
    return like_solution(root_name, "what solve gives", types,
                         solve(function_of(root_name, "f", of_f, types), in));
  });
  Types point_and_right = types;
  append(point_and_right, types);
  const Closed of_tangent = trace_user_inner(root_name, point_and_right, [&](TensorSpan in) {
    const std::size_t captures = of_f.captures.size();
    const Tensors point = joined({of_f.captures, in.first(types.size())});
    std::vector<bool> moves(captures);
    moves.resize(point.size(), true);
    const Linearized near_x =
        linearized({of_f.program, {}}, point, moves, std::vector<bool>(types.size(), true));
    const auto push = [&](TensorSpan dx) {
      const Tensors direction =
          like_solution(root_name, "the argument of f's derivative", types, {dx.begin(), dx.end()});
      return filled(near_x.push(joined({Tensors(captures), direction})), types);
    };
    return like_solution(root_name, "what tangent_solve gives", types,
                         tangent_solve(push, in.subspan(types.size())));
  });
  std::vector<Closed> all{of_f, of_solve, of_tangent};
  Tensors arguments = join_captures(all);
  auto root = std::make_shared<const Root>(
      Root{all[0].program, all[1].program, all[2].program, arguments.size()});
  append(arguments, initial);
  return root_of(root, arguments);
}

}  // namespace postern
