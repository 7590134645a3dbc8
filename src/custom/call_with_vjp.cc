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
  return [options, vjp_fn, n = operands, kept = operands + results](TensorSpan leaves) {
    Tensors in = head(leaves, kept);
    for (std::size_t i = n; i < kept; ++i)
      if (moves(leaves[i])) in.push_back(leaves[kept + i - n]);
    Tensors like;
    std::vector<std::string> names;
    std::string text = "(";
    for (std::size_t i = 0; i < n; ++i) {
      if (!moves(leaves[i])) continue;
      names.push_back(fmt::format("(cotangent of operand {})", i));
      like.push_back(abstract(Type{leaves[i].dtype(), leaves[i].dims()}));
      text += "*,";
    }
    CallOptions named = options;
    named.name += " vjp";
    text += ")";
    Tensors given;
    if (vjp_fn.next())
      given = detail::call_with_vjp(named, like, text, names, vjp_fn.fn(), *vjp_fn.next(), in);
    else
      given = detail::call(named, types_of(like), text, names, vjp_fn.fn(), in);
    Tensors ct(n);
    for (std::size_t i = 0, next = 0; i < n; ++i)
      if (moves(leaves[i])) ct[i] = given[next++];
    return ct;
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
  // Differentiable again: the value is such a call itself.
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
