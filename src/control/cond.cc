// cond and switch_: one of several programs, chosen by an index.
#include <postern/control.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "control/cond.h"
#include "core/lists.h"
#include "core/site_spec.h"
#include "lower/collectives.h"
#include "transform/transpose.h"

namespace postern::internal {

Tensors bind_cond(const Tensor& index, std::vector<Closed> branches, TensorSpan operands) {
  const Tensors captures = join_captures(branches);
  CondParams p;
  for (const Closed& b : branches) p.branches.push_back(b.program);
  return bind_n(cond_p, make_params(std::move(p)), joined({list_of(index), captures, operands}));
}

namespace {

Types cond_type(const Params* params, TypeSpan operands) {
  const auto& p = as<CondParams>(*params);
  check(operands[0].dtype == DType::s32 && operands[0].dims.empty(),
        "cond: the index must be s32[], got {}", to_string(operands[0]));
  for (const ProgramPtr& branch : p.branches) {
    check(operands.size() == branch->inputs.size() + 1,
          "cond: {} operands for a branch of {} inputs", operands.size() - 1,
          branch->inputs.size());
    for (std::size_t i = 0; i < branch->inputs.size(); ++i) {
      const Type& type = branch->type(branch->inputs[i]);
      check(alike(operands[i + 1], type), "cond: operand {} must be {}, got {}", i, to_string(type),
            to_string(operands[i + 1]));
    }
  }
  Types out = p.branches[0]->output_types();
  for (const ProgramPtr& branch : p.branches) {
    const Types types = branch->output_types();
    for (std::size_t i = 0; i < out.size(); ++i) out[i].weak = out[i].weak && types[i].weak;
  }
  return out;
}

ParamsPtr cond_with_programs(const Params*, std::span<const ProgramPtr> programs) {
  return make_params(CondParams{{programs.begin(), programs.end()}});
}

/// Traces a branch once more, with `f` behind what it returns.
Closed followed_by(const Closed& branch, const Types& inputs,
                   const std::function<Tensors(Tensors)>& f) {
  return trace_inner("branch", inputs, [&](TensorSpan in) {
    return f(internal::apply(*branch.program, joined({branch.captures, in})));
  });
}

/// Traces branches of which all have the same results, though a rule may give one branch results,
/// such as tangents, that it does not give another. `make(b, own)` traces branch b and marks those
/// that it has; `mask` becomes what any branch has; `widen(results, own)` adds the others, as
/// zeros. A rule runs once for a branch: with two runs a cond n levels deep would have 2^n.
std::vector<Closed> agreeing(
    std::size_t branches, const Types& inputs, std::vector<bool>& mask,
    const std::function<Closed(std::size_t, std::vector<bool>&)>& make,
    const std::function<Tensors(TensorSpan, const std::vector<bool>&)>& widen) {
  std::vector<Closed> out;
  std::vector<std::vector<bool>> own(branches);
  for (std::size_t b = 0; b < branches; ++b) {
    out.push_back(make(b, own[b]));
    join(mask, own[b]);
  }
  for (std::size_t b = 0; b < branches; ++b) {
    if (own[b] == mask) continue;
    out[b] = followed_by(out[b], inputs, [&](TensorSpan y) { return widen(y, own[b]); });
  }
  return out;
}

Jvp cond_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<CondParams>();
  const TensorSpan inputs = x.subspan(1), tangents = dx.subspan(1);  // without the index
  const std::vector<bool> moves = present(tangents);
  const Tensors operands = joined({inputs, kept(tangents)});
  std::vector<bool> results_move;
  auto make = [&](std::size_t b, std::vector<bool>& own) {
    return trace_inner("branch", types_of(operands),
                       [&](TensorSpan in) { return packed_jvp(*p.branches[b], in, moves, own); });
  };
  auto widen = [&](TensorSpan made, const std::vector<bool>& own) {
    const TensorSpan y = made.first(own.size());
    const Tensors dy = placed(own, made.subspan(own.size()));
    return joined({y, or_zeros_like(dy, results_move, types_of(y))});
  };
  std::vector<Closed> branches =
      agreeing(p.branches.size(), types_of(operands), results_move, make, widen);
  const Tensors both = bind_cond(x[0], std::move(branches), operands);
  const std::size_t results = results_move.size();
  return {head(both, results), placed(results_move, std::span(both).subspan(results))};
}

Tensors cond_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types) {
  const auto& p = op.as<CondParams>();
  check(x[0].has_value(), "cond: the index depends on a tangent");
  const TensorSpan inputs = x.subspan(1);  // without the index
  const std::vector<bool> known = present(inputs), arrives = present(ct);
  const Tensors operands = joined({kept(inputs), kept(ct)});
  std::vector<bool> gets;  // by input: it has a cotangent
  auto make = [&](std::size_t b, std::vector<bool>& own) {
    return trace_inner("branch", types_of(operands), [&](TensorSpan in) {
      return packed_transpose(*p.branches[b], in, known, arrives, own);
    });
  };
  Types input_types;
  for (std::size_t i = 1; i < types.size(); ++i) input_types.push_back(types[i]);
  auto widen = [&](TensorSpan made, const std::vector<bool>& own) {
    return or_zeros_like(placed(own, made), gets, input_types);
  };
  std::vector<Closed> branches = agreeing(p.branches.size(), types_of(operands), gets, make, widen);
  Tensors out(1);  // the index has no cotangent
  append(out, placed(gets, bind_cond(x[0], std::move(branches), operands)));
  return out;
}

// --- batching ---

/// Has started calls that all elements share waited for once. An element takes one branch, but all
/// branches are written one behind the other, and a call can be waited for only once: the first
/// branch that waits does, and hands the call's results to the branches behind it.
class SharedWaits {
 public:
  /// A branch in which inputs, the last, stand for what earlier branches have waited for. Its last
  /// `waited` outputs are what it waits for itself, for remember().
  struct Branch {
    Program program;
    Tensors x;
    std::vector<int> axes;
    std::size_t waited = 0;
  };
  Branch without_earlier_waits(const Program& program, TensorSpan x, std::span<const int> axes) {
    Branch b{program, {x.begin(), x.end()}, {axes.begin(), axes.end()}};
    b.program.equations.clear();
    std::set<ValueId> handles;
    for (const Equation& e : program.equations) {
      const std::size_t input = awaited(program, e);
      // A second wait for one call in a branch stays, and is an error when it runs.
      const bool shared = input < x.size() && axes[input] < 0 && !site_of(e)->batch.masked &&
                          handles.insert(e.operands[0]).second;
      const auto earlier = given_.find(input);
      if (shared && earlier != given_.end() && gives(program, e, earlier->second)) {
        append(b.x, earlier->second);
        b.axes.resize(b.x.size(), -1);
        append_results(b.program.inputs, e);
        continue;
      }

      b.program.equations.push_back(e);
      if (!shared || earlier != given_.end()) continue;
      coming_.emplace_back(input, at(e.results));
      append_results(b.program.outputs, e);
      b.waited += at(e.results);
    }
    return b;
  }
  /// Keeps the last outputs of the branch that was made last for those behind it.
  void remember(TensorSpan waited) {
    for (const auto& [input, results] : std::exchange(coming_, {})) {
      given_[input] = head(waited, results);
      waited = waited.subspan(results);
    }
  }

 private:
  /// Which input of the program the equation waits for; the number of inputs: it waits for none.
  static std::size_t awaited(const Program& program, const Equation& e) {
    const bool waits = e.primitive->site && site_of(e)->call.role == SiteCall::Role::wait;
    const auto found =
        waits ? std::ranges::find(program.inputs, e.operands[0]) : program.inputs.end();
    return size_of(found - program.inputs.begin());
  }
  static bool gives(const Program& program, const Equation& e, TensorSpan results) {
    bool same = results.size() == at(e.results);
    for (std::size_t i = 0; same && i < results.size(); ++i)
      same = alike(program.types[at(e.first) + i], results[i].type());
    return same;
  }
  static void append_results(std::vector<ValueId>& to, const Equation& e) {
    for (int r = 0; r < e.results; ++r) to.push_back(e.first + r);
  }

  std::map<std::size_t, Tensors> given_;                     // by input of the branches
  std::vector<std::pair<std::size_t, std::size_t>> coming_;  // inputs, and how much each gives
};

/// Batches a cond of which each element has an index of its own: all branches run for all elements,
/// calls in them for the elements that take them, and each element's results are selected.
Batched select_branches(const CondParams& p, const Tensor& index, TensorSpan x,
                        std::span<const int> axes, std::int64_t size, const Tensor& mask) {
  Tensors chosen;
  SharedWaits waits;
  for (std::size_t b = 0; b < p.branches.size(); ++b) {
    const Tensor takes = equal(index, full(index.type(), static_cast<std::int32_t>(b)));
    Tensor alive = takes;
    if (mask.has_value()) alive = logical_and(mask, takes);
    const SharedWaits::Branch branch = waits.without_earlier_waits(*p.branches[b], x, axes);
    auto [y, from] =
        batch_of(branch.program, shielded(branch.x, branch.axes, alive), branch.axes, size, alive);
    waits.remember(std::span(y).last(branch.waited));
    y.resize(y.size() - branch.waited);

    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] = move_batch(y[i], from[i], 0, size);
      if (b > 0) y[i] = select_elements(takes, y[i], chosen[i]);
    }
    chosen = std::move(y);
  }
  return batched_in_front(std::move(chosen));
}

Batched cond_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                   const Tensor& mask) {
  const auto& p = op.as<CondParams>();
  const TensorSpan inputs = x.subspan(1);
  const auto input_axes = axes.subspan(1);
  if (axes[0] >= 0) return select_branches(p, x[0], inputs, input_axes, size, mask);
  std::vector<bool> mapped;  // by result: some branch gives it a batch axis, so all have to
  auto make = [&](std::size_t b, std::vector<bool>& own) {
    return trace_inner("branch", types_of(inputs), [&](TensorSpan in) {
      auto [y, from] = batch_of(*p.branches[b], in, input_axes, size, mask);
      for (int a : from) own.push_back(a >= 0);
      for (std::size_t i = 0; i < y.size(); ++i)
        if (own[i]) y[i] = move_batch(y[i], from[i], 0, size);
      return std::move(y);
    });
  };
  auto widen = [&](TensorSpan made, const std::vector<bool>& own) {
    Tensors y(made.begin(), made.end());
    for (std::size_t i = 0; i < y.size(); ++i)
      if (mapped[i] && !own[i]) y[i] = move_batch(y[i], -1, 0, size, mask);
    return y;
  };
  std::vector<Closed> branches = agreeing(p.branches.size(), types_of(inputs), mapped, make, widen);
  Tensors y = bind_cond(x[0], std::move(branches), inputs);
  return {std::move(y), axes_where(mapped)};
}

// --- running ---

void cond_lower(Lowering& out, const Equation& e) {
  const auto& p = as<CondParams>(*e.params);
  const std::vector<Ssa> inputs = out.operands(e, 1);
  Types types;
  for (int i = 0; i < e.results; ++i) types.push_back(out.result_type(e, i));
  Ssa index = out.operand(e, 0);
  // Devices that meet in a branch must not be led apart by a failure, see while_lower: if the run
  // of any of them has failed, all take the first branch.
  if (const auto axes = axes_met(out, p.branches); !axes.empty()) {
    const Type flag{DType::pred, {}}, number{DType::s32, {}};
    const Ssa all_go_on = everywhere(out, ask_run(out, {index, Lowering::type(number)}), axes);
    const Ssa first = out.constant("0", number);
    index = out.op("select", {all_go_on, index, first}, {&flag, &number, &number}, number);
  }
  const std::vector<Ssa> results =
      write_case(out, index, p.branches.size(), types, effect_of(e) == Effect::ordered,
                 [&](std::size_t b) { return out.inlined(*p.branches[b], inputs); });
  out.define_all(e, results);
}

Tensors cond_evaluate(const Op& op, TensorSpan x) {
  const auto& p = op.as<CondParams>();
  return evaluator.program(p.branches[at(x[0].item<std::int32_t>())], x.subspan(1));
}

/// Gives all branches one type for each result: where dtypes differ and one is weak, what they
/// promote to.
void unify_results(const char* what, std::vector<Closed>& branches, const Types& inputs) {
  Types common = branches[0].program->output_types();
  std::vector<std::size_t> stated(common.size());  // the branch that a dtype in `common` is of
  for (std::size_t b = 1; b < branches.size(); ++b) {
    const Types types = branches[b].program->output_types();
    check(types.size() == common.size(), "{}: branch 0 returns {} leaves, branch {} {}", what,
          common.size(), b, types.size());
    for (std::size_t i = 0; i < types.size(); ++i) {
      const bool same = types[i].dtype == common[i].dtype || types[i].weak || common[i].weak;
      check(same && types[i].dims == common[i].dims,
            "{}: result {} is {} in branch {} and {} in branch {}; branches must return the same "
            "types",
            what, i, to_string(common[i]), stated[i], to_string(types[i]), b);
      const DType before = common[i].dtype;
      common[i].dtype = promote(what, common[i], types[i]).dtype;
      if (common[i].dtype != before) stated[i] = b;
      common[i].weak = common[i].weak && types[i].weak;
    }
  }
  for (Closed& c : branches) {
    const auto of_one_dtype = [](const Type& a, const Type& b) { return a.dtype == b.dtype; };
    if (std::ranges::equal(c.program->output_types(), common, of_one_dtype)) continue;
    c = followed_by(c, inputs, [&](Tensors y) {
      for (std::size_t i = 0; i < y.size(); ++i) y[i] = fit(y[i], common[i]);
      return y;
    });
  }
}

}  // namespace

std::vector<Ssa> write_case(Lowering& out, Ssa index, std::size_t branches, const Types& types,
                            bool ordered,
                            const std::function<std::vector<Ssa>(std::size_t)>& branch) {
  if (ordered) out.token();  // made outside, if there is none yet
  std::vector<std::string> texts;
  for (const Type& type : types) texts.push_back(Lowering::type(type));
  if (ordered) texts.push_back(Lowering::token_type);
  std::vector<Ssa> results = out.fresh(texts.size());
  out.write("    {}\"stablehlo.case\"(%{}) (", Lowering::assigned(results), index.id);
  for (std::size_t b = 0; b < branches; ++b) {
    if (b) out.write(", ");
    out.region({}, [&](std::span<const Ssa>) {
      std::vector<Ssa> values = branch(b);
      if (ordered) values.push_back(out.token());
      return Lowering::typed(values, texts);
    });
  }
  out.write(") : (tensor<i32>) -> ({})\n", fmt::join(texts, ", "));
  if (ordered) {
    out.set_token(results.back());
    results.pop_back();
  }
  return results;
}

constexpr Primitive cond_p{.name = "cond",
                           .type = cond_type,
                           .jvp = cond_jvp,
                           .transpose = cond_transpose,
                           .linear = Linear::jointly,
                           .split = cond_split,
                           .with_programs = cond_with_programs,
                           .control = ControlFlow::branches,
                           .batch = cond_batch,
                           .lower = cond_lower,
                           .evaluate = cond_evaluate};

}  // namespace postern::internal

namespace postern {
using namespace internal;

detail::Tensors detail::cond(const char* what, const Tensor& choice,
                             const std::vector<TensorFunction>& functions, const Tensors& operands,
                             const Place& place) {
  PlaceScope at_place(place);
  const bool is_switch = std::string_view(what) == "switch_";
  const bool is_scalar = choice.has_value() && choice.rank() == 0;
  if (is_switch)
    check(is_scalar && is_integer(choice.dtype()),
          "{}: the index must be an integer scalar, got {}", what, type_text(choice));
  else
    check(is_scalar && choice.dtype() == DType::pred,
          "{}: the condition must be a pred scalar, got {}", what, type_text(choice));
  check(!functions.empty(), "{}: at least one branch is needed", what);

  Tensor index = convert(choice, DType::s32);
  if (is_switch) {
    // Clamped before it is narrowed, which could bring an index from outside into the range, and
    // after it is widened, since the last branch's number may not fit the narrow dtype.
    const Tensor wide = byte_width(choice.dtype()) < 4 ? index : choice;
    const auto last = static_cast<std::int32_t>(functions.size()) - 1;
    index = convert(minimum(maximum(wide, 0), last), DType::s32);
  }
  std::vector<Closed> branches;
  for (const TensorFunction& f : functions)
    branches.push_back(trace_user_inner("branch", types_of(operands), f));
  unify_results(what, branches, types_of(operands));
  return bind_cond(index, std::move(branches), operands);
}

}  // namespace postern
