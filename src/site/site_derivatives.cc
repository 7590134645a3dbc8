// Derivatives through sites. A call has none of its own. A tap passes tangents on; one that asks
// for derivatives shows values and tangents together under jvp, and when reverse mode splits that,
// first the values and later, transposed, the cotangents.
#include <algorithm>

#include "core/lists.h"
#include "ops/family.h"
#include "site/site.h"
#include "transform/jvp.h"
#include "transform/split.h"
#include "transform/walk.h"

namespace postern::internal {

namespace {

Tensors bind_site(SiteSpec s, TensorSpan x) {
  return bind_n(site_p, params_of_own(std::move(s)), x);
}

/// Returns the same tap on leaves `first`, `first + 1`, ... `last - 1`.
SiteSpec part(const SiteSpec& s, std::size_t first, std::size_t last) {
  SiteSpec out = s;
  out.operands = between(s.operands, first, last);
  if (s.trees.operand_paths.size() == s.operands.size())
    out.trees.operand_paths = between(s.trees.operand_paths, first, last);
  return out;
}

/// Shows values and tangents in one invocation: the operands of that tap are the n values, then a
/// tangent of each, which may be zero, then the mask, if any.
Jvp show_tangents(const SiteSpec& s, TensorSpan x, TensorSpan dx) {
  const std::size_t n = s.operands.size();
  SiteSpec both = s;
  both.tap.transforms.push_back("jvp");
  ++both.tap.paired;
  Tensors operands = head(x, n);
  for (std::size_t i = 0; i < n; ++i) {
    const bool moves = is_differentiable(x[i].dtype());
    operands.push_back(moves ? or_zeros_of(dx[i], x[i].type()) : no_tangent(x[i].type()));
    both.operands.push_back({operands.back().dtype(), operands.back().dims()});
    if (s.trees.operand_paths.size() == n)
      both.trees.operand_paths.push_back(s.trees.operand_paths[i]);
  }
  if (s.batch.masked) operands.push_back(x[n]);
  const Tensors shown = bind_site(std::move(both), operands);
  Tensors dy(n);
  for (std::size_t i = 0; i < n; ++i)
    if (dx[i].has_value()) dy[i] = shown[n + i];
  return {head(shown, n), std::move(dy)};
}

/// Leaves a site with these parameters to later, on the operands of `x` behind those that another
/// has `shown`, which are results that are known by now.
Primitive::SplitResult wait_with(ParamsPtr params, Tensors shown, TensorSpan x) {
  const SiteSpec& s = *as<SiteParams>(*params).site;
  const std::size_t first = shown.size(),
                    last = first + (s.is_tap() ? s.operands.size() : s.results.size());
  Primitive::SplitResult out;
  out.primitive = &site_p;
  for (std::size_t i = first; i < x.size(); ++i)
    out.operands.push_back({x[i], static_cast<int>(i)});
  out.known = std::move(shown);
  for (std::size_t i = first; i < last; ++i) {
    // A tap does not change what it is shown, so what was known stays so; nobody takes it from the
    // site, whose own result for it is none of the equation's.
    out.known.push_back(at_if(s.is_tap(), x, i));
    out.results.push_back(out.known[i].has_value() ? -1 : static_cast<int>(i));
  }
  out.params = std::move(params);
  return out;
}

[[noreturn]] void refuse_call(const SiteSpec& s, const char* why) {
  PlaceScope::Replace at(s.place);
  throw_type_error(fmt::format("call '{}' {}", s.name, why));
}

}  // namespace

Jvp site_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const SiteSpec& s = *op.as<SiteParams>().site;
  const std::size_t n = s.operands.size();
  const bool moves = has_any(dx.first(n));
  if (s.is_tap() && s.tap.derivatives && moves) return show_tangents(s, x, dx);
  if (s.is_tap()) return {bind_n(op.primitive, op.params, x), head(dx, n)};
  const bool gives_numbers =
      std::ranges::any_of(s.made(), [](const Type& t) { return is_differentiable(t.dtype); });
  if (moves && gives_numbers)
    refuse_call(s,
                "has no derivative, and an operand is differentiated: give it a rule with "
                "custom_vjp, custom_jvp or call_with_vjp, or put stop_gradient around its operands "
                "if none is meant");
  Tensors y = bind_n(op.primitive, op.params, x);
  const std::size_t results = y.size();
  return {std::move(y), Tensors(results)};
}

// Cuts a tap of values and tangents (show_tangents) in two where all values are known: they are
// shown now, the tangents later. Any other site waits, as a whole, for what is unknown.
Primitive::SplitResult site_split(const Op& op, TensorSpan x, const std::vector<bool>&) {
  const SiteSpec& s = *op.as<SiteParams>().site;
  const std::size_t n = s.operands.size(), half = n / 2;
  // A batch behind the jvp has told of the axes of all leaves at once.
  const bool in_two = s.tap.paired > 0 && s.tap.transforms.back() == "jvp";
  if (!in_two || !has_all(x.first(half))) return wait_with(op.params, {}, x);
  SiteSpec values = part(s, 0, half), tangents = part(s, half, n);
  values.tap.transforms.pop_back();
  --values.tap.paired;
  tangents.tap.paired = 0;
  Tensors operands = head(x, half);
  if (s.batch.masked) operands.push_back(x[n]);
  Tensors shown = bind_site(std::move(values), operands);
  return wait_with(params_of_own(std::move(tangents)), std::move(shown), x);
}

// Of taps: shows the cotangents in the places of the tangents, which are the operands without a
// value, and passes them on. What was a value stays one.
Tensors site_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types) {
  const SiteSpec& s = *op.as<SiteParams>().site;
  if (!s.is_tap())
    refuse_call(s,
                "is applied to a tangent, and reverse mode needs its transpose: give it one with "
                "linear_call");
  const std::size_t n = s.operands.size();
  SiteSpec back = s;
  back.tap.transforms.push_back("transpose");
  back.tap.paired = 0;
  Tensors operands(x.begin(), x.end());
  for (std::size_t i = 0; i < n; ++i)
    if (!x[i].has_value()) operands[i] = or_zeros_of(ct[i], types[i]);
  const Tensors shown = bind_site(std::move(back), operands);
  Tensors out(x.size());
  for (std::size_t i = 0; i < n; ++i)
    if (!x[i].has_value() && ct[i].has_value()) out[i] = shown[i];
  return out;
}

}  // namespace postern::internal
