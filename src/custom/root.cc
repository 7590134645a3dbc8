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

/// f(m, x(m)) = 0, so f_x dx = -f_m dm; m are the captures.
Tensors root_of(const std::shared_ptr<const Root>& root, const Tensors& arguments) {
  const auto rule = [root](TensorSpan in) {
    const std::size_t count = in.size() / 2;
    const Tensors y = root_of(root, head(in, count));
    Tensors at_y(in.begin(), nth(in, root->captures)), moves;
    append(moves, in.subspan(count, root->captures));
    append(at_y, y);
    moves.resize(at_y.size());
    const Tensors df = jvp_of(*root->f, at_y, moves).second;
    for (std::size_t i = 0; i < y.size(); ++i) at_y.push_back(or_zeros_of(df[i], y[i].type()));
    Tensors out = y;
    for (const Tensor& dx : internal::apply(*root->tangent, at_y)) out.push_back(-dx);
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
  Types twice = types;
  append(twice, types);
  const Closed of_tangent = trace_user_inner(root_name, twice, [&](TensorSpan in) {
    const std::size_t first = of_f.captures.size();
    Tensors point = of_f.captures;
    append(point, in.first(types.size()));
    std::vector<bool> moves(first);
    moves.resize(point.size(), true);
    const Linearized near =
        linearized({of_f.program, {}}, point, moves, std::vector<bool>(types.size(), true));
    const auto push = [&](TensorSpan dx) {
      Tensors all(first);
      append(all, like_solution(root_name, "the argument of f's derivative", types,
                                {dx.begin(), dx.end()}));
      Tensors dy = near.push(all);
      for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = or_zeros_of(dy[i], types[i]);
      return dy;
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
