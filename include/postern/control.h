// Control flow inside programs: branches and loops whose course is decided while the program runs.
// Bodies are traced once; calls and taps inside fire on the path that is taken, once for each step.
// Tensors that a body captures are the same in each step.
//
// A carry is any container. A body takes it whole or, if it is a tuple, part by part, and must give
// back the same structure and types; a C++ number in a carry adopts the dtype that the body gives.
//
// Every function throws TypeError, while it is traced, for a carry that changes its type, for
// operands, conditions and results other than said, and for options out of range.
#pragma once
#include <postern/detail/control_core.h>

namespace postern {

/// Returns then_fn(operands...) where `pred`, a pred scalar, holds, else else_fn(operands...).
/// Under vmap with a pred for each element both run, each for the elements that take it. Both must
/// return the same container of the same types.
///
///   auto half_or_more = [](pn::Tensor n) {
///     return pn::cond(n % 2 == 0, [](pn::Tensor x) { return x / 2; },
///                     [](pn::Tensor x) { return 3 * x + 1; }, n);
///   };
///   const pn::Tensor six = half_or_more(12);  // 6
template <class Then, class Else, class... Operands>
auto cond(const Operand& pred, Then then_fn, Else else_fn, const Operands&... operands) {
  return [&]<class... B>(const B&... x) {
    detail::Branches<detail::branch_result<Then, B...>, B...> branches;
    branches.add(std::move(else_fn), "cond: the second branch", pred.place(), x...);
    branches.add(std::move(then_fn), "cond: the second branch", pred.place(), x...);
    const detail::Tensors y = detail::cond("cond", pred.tensor(), branches.functions,
                                           detail::leaves_of(x...), pred.place());
    return detail::with_leaves(**branches.like, y);
  }(detail::held(operands)...);
}

/// Returns branches[index](operands...), for an integer scalar index, clamped into range.
/// `branches`: a tuple, or a vector or array of functions, at least one, that return the same
/// container of the same types.
///
///   const auto branches = std::tuple{[](pn::Tensor x) { return pn::sin(x); },
///                                    [](pn::Tensor x) { return pn::square(x); }};
///   const pn::Tensor nine = pn::switch_(1, branches, 3.0f);  // 9
template <class Functions, class... Operands>
auto switch_(const Operand& index, const Functions& branches, const Operands&... operands) {
  return [&]<class... B>(const B&... x) {
    detail::Branches<detail::switch_result<Functions, B...>, B...> flat;
    detail::each_branch(
        branches, [&](const auto& f) { flat.add(f, "switch_: a branch", index.place(), x...); });
    const detail::Tensors y = detail::cond("switch_", index.tensor(), flat.functions,
                                           detail::leaves_of(x...), index.place());
    return detail::with_leaves(**flat.like, y);
  }(detail::held(operands)...);
}

/// What a while_loop keeps for its derivative in reverse mode. While it runs forward each step
/// leaves its residuals, what the derivative needs of it, in the host's memory; going back takes
/// them again. They are gone when nobody reads them any more, at the latest when the run ends.
struct WhileOptions {
  int keep_every = 1;      // keep the carry of every so many steps, and compute those between again
  std::size_t memory = 0;  // bytes that one execution of the loop may keep; 0: no limit
  std::string file = {};   // what is over the limit goes to a file whose name begins so, one for
                           // all loops of a run; deleted with the residuals. Empty: an error
};

/// Loops: init; while (condition(carry)) carry = body(carry). `condition` gives a pred scalar.
/// Derivatives in both modes; see WhileOptions for what reverse mode keeps, of which too much fails
/// the run (resource_exhausted). Under vmap it runs until the last element is done.
///
///   const auto [n, power] = pn::while_loop(  // the first power of 3 from 1000 on
///       [](pn::Tensor, pn::Tensor p) { return p < 1000; },
///       [](pn::Tensor i, pn::Tensor p) { return std::tuple{i + 1, 3 * p}; }, std::tuple{0, 1});
template <class Condition, class Body, class Carry>
auto while_loop(Condition condition, Body body, const Carry& init, const WhileOptions& options = {},
                Place place = Place::current()) {
  const auto carry = detail::held(init);
  return detail::with_leaves(
      carry,
      detail::while_loop(
          detail::flat_body(std::move(condition), carry, "while_loop: the condition", place, false),
          detail::flat_body(std::move(body), carry, "while_loop: the carry", place, true),
          detail::leaves_of(carry), detail::paths_of(carry), options, place));
}

/// Loops: for (i = lower; i < upper; ++i) carry = body(i, carry). i is s32, or s64 when a bound
/// needs it. With bounds known while tracing (numbers) it is a scan, else a while_loop. `unroll`:
/// so many steps in one. A known bound that does not fit s64 is a TypeError; one that is not known
/// counts as s64's largest number, so that between two of them there are no steps.
///
///   const pn::Tensor sum = pn::fori_loop(
///       0, 5, [](pn::Tensor i, pn::Tensor s) { return s + i; }, 0);
template <class Body, class Carry>
auto fori_loop(const Operand& lower, const Operand& upper, Body body, const Carry& init,
               int unroll = 1) {
  const auto carry = detail::held(init);
  return detail::with_leaves(
      carry,
      detail::fori_loop(lower.tensor(), upper.tensor(),
                        detail::flat_body(std::move(body), carry, "fori_loop: the carry",
                                          lower.place(), true, Tensor()),
                        detail::leaves_of(carry), detail::paths_of(carry), unroll, lower.place()));
}

struct ScanOptions {
  int unroll = 1;        // so many steps in one
  bool reverse = false;  // from the last x to the first; outputs stay where their x is
  std::optional<std::int64_t> length = {};  // needed only without xs
};

/// Scans over the first axis of the leaves of xs: pair{carry, y} = f(carry, x). Returns pair{last
/// carry, stacked y}: each leaf of y with one more axis in front. Derivatives in both modes.
///
///   const auto [last, sums] = pn::scan(
///       [](pn::Tensor sum, pn::Tensor x) { return std::pair{sum + x, sum + x}; }, 0.0f,
///       pn::tensor<float>({1, 2, 3}));
///   const pn::Tensor each = sums;  // [1 3 6]
template <class F, class Carry, class Xs>
auto scan(F f, const Carry& init, const Xs& xs, const ScanOptions& options = {},
          Place place = Place::current()) {
  return detail::scan_over(std::move(f), init, xs, options, place);
}
/// Scans without xs: pair{carry, y} = f(carry), `options.length` times.
template <class F, class Carry>
auto scan(F f, const Carry& init, const ScanOptions& options, Place place = Place::current()) {
  return detail::scan_over(
      [f = std::move(f)](auto& carry, std::tuple<>&) { return detail::call_with_carry(f, carry); },
      init, std::tuple<>(), options, place);
}

/// Returns the stacked f(x) over the first axis of the leaves of xs, one after another: vmap in
/// constant memory.
///
///   const pn::Tensor x = pn::tensor<float>({{1, 2}, {3, 4}});
///   const pn::Tensor y = pn::map([](pn::Tensor row) { return pn::sum(row); }, x);  // [3 7]
template <class F, class Xs>
auto map(F f, const Xs& xs, const ScanOptions& options = {}, Place place = Place::current()) {
  return detail::scan_over(
             [f = std::move(f)](std::tuple<>&, auto& x) {
               return std::pair{std::tuple<>(), detail::call_with_carry(f, x)};
             },
             std::tuple<>(), xs, options, place, "map")
      .second;
}

}  // namespace postern
