// call_with_vjp: a host function with a derivative on the host.
#include <postern/transforms.h>

#include "core/lists.h"
#include "custom/custom.h"

namespace postern::internal {

namespace {

bool moves(const Tensor& t) { return is_differentiable(t.dtype()); }

}  // namespace

TensorFunction host_cotangents(const CallOptions& options, const HostVjp& vjp_fn,
                               std::size_t operands, std::size_t results) {
  return [options, vjp_fn, operands, results](TensorSpan leaves) {
    // The function is given the operands, the results, and the cotangents of those that have one.
    const std::size_t first_cotangent = operands + results;
    Tensors in = head(leaves, first_cotangent);
    for (std::size_t i = 0; i < results; ++i)
      if (moves(leaves[operands + i])) in.push_back(leaves[first_cotangent + i]);

    // It gives the cotangents of the operands that have one.
    std::vector<bool> operand_moves;
    Tensors like;
    std::vector<std::string> paths;
    std::string structure = "(";
    for (std::size_t i = 0; i < operands; ++i) {
      operand_moves.push_back(moves(leaves[i]));
      if (!operand_moves[i]) continue;
      paths.push_back(fmt::format("(cotangent of operand {})", i));
      like.push_back(abstract(Type{leaves[i].dtype(), leaves[i].dims()}));
      structure += "*,";
    }
    structure += ")";
    CallOptions named = options;
    named.name += " vjp";
    const Callee& fn = vjp_fn.fn();
    if (!vjp_fn.next())
      return placed(operand_moves, detail::call(named, types_of(like), structure, paths, fn, in));
    return placed(operand_moves,
                  detail::call_with_vjp(named, like, structure, paths, fn, *vjp_fn.next(), in));
  };
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

Tensors detail::call_with_vjp(const CallOptions& options, const Tensors& out,
                              const std::string& structure, const std::vector<std::string>& paths,
                              const Callee& fn, const HostVjp& vjp_fn, const Tensors& operands) {
  PlaceScope at(fn.place());
  auto run = [options, types = types_of(out), structure, paths, fn](TensorSpan x) {
    return detail::call(options, types, structure, paths, fn, Tensors(x.begin(), x.end()));
  };
  const TensorFunction backward = host_cotangents(options, vjp_fn, operands.size(), out.size());
  // The value is such a call itself, so that what is differentiated once can be again.
  auto forward = [=, out_leaves = out](TensorSpan x) {
    const Tensors arguments(x.begin(), x.end());
    Forward f{detail::call_with_vjp(options, out_leaves, structure, paths, fn, vjp_fn, arguments),
              arguments, backward};
    append(f.residuals, f.results);
    return f;
  };
  return detail::custom_vjp(TensorFunction(run), ForwardRule(forward), operands, fn.place());
}

}  // namespace postern
