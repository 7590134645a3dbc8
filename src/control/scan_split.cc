// The split of a loop: one loop of what is known, and a scan of the rest. That of a while is over
// the stores into which the known loop has put what the rest reads of each step.
#include "control/residual_store.h"
#include "control/scan.h"
#include "core/lists.h"
#include "transform/simplify.h"

namespace postern::internal {

namespace {

/// A scan of which only some results are wanted, without the others, without the carry that only
/// those need, and without the operands that nothing needs. `operands` and `results`: the places
/// that its own have among those of the whole scan.
struct Pruned {
  ScanParams p;
  Tensors x;
  std::vector<int> operands, results;

  void keep_operand(TensorSpan whole, std::size_t i) {
    x.push_back(whole[i]);
    operands.push_back(static_cast<int>(i));
  }
};

/// Returns which inputs the body needs for the `wanted` results, to which it adds the carry that
/// they need: what a step reads of the carry, the step before must give.
std::vector<bool> inputs_for(const ScanParams& p, std::vector<bool>& wanted) {
  for (;;) {
    Program body = *p.body;
    body.outputs = where_marked(p.body->outputs, wanted);
    const std::vector<bool> used = used_inputs(body);
    const std::vector<bool> before = wanted;
    for (std::size_t i = 0; i < p.carries; ++i) wanted[i] = wanted[i] || used[p.first_carry() + i];
    if (wanted == before) return used;
  }
}

/// Returns the ranks of the handles of those offloaded outputs that have this mark; the marks of
/// offloaded outputs begin at `first`.
std::vector<int> ranks_of(const std::vector<int>& ranks, const std::vector<bool>& marks,
                          std::size_t first, bool mark) {
  std::vector<int> out;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (marks[first + i] == mark) out.push_back(ranks[i]);
  return out;
}

Pruned prune(const ScanParams& p, TensorSpan x, std::vector<bool> wanted) {
  const std::vector<bool> used = inputs_for(p, wanted);
  Pruned out{p, {}, {}, {}};
  Program body = *p.body;
  body.outputs = where_marked(p.body->outputs, wanted);
  body.inputs.clear();
  out.p.constants = out.p.carries = 0;
  if (p.offloaded) out.keep_operand(x, 0);  // the number of steps
  std::size_t operand = p.first_operand();
  for (std::size_t i = 0; i < p.body->inputs.size(); ++i) {
    const bool is_carry = i >= p.first_carry() && i < p.first_x();
    const bool stays = is_carry ? wanted[i - p.first_carry()] : used[i];
    if (stays) body.inputs.push_back(p.body->inputs[i]);
    if (p.counted && i == p.constants) {  // the step's number, which is no operand
      out.p.counted = stays;
      continue;
    }
    if (stays) {
      out.keep_operand(x, operand);
      out.p.constants += i < p.constants;
      out.p.carries += is_carry;
    }
    ++operand;
  }

  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i]) out.results.push_back(static_cast<int>(i));
  out.p.handle_ranks = ranks_of(p.handle_ranks, wanted, p.carries, true);
  out.p.body = simplify(body);
  return out;
}

/// Splits a body by which constants (with the step's number), carry and xs are unknown. To `carry`
/// it adds what some step makes unknown, which is then unknown in all of them.
Halves split_body(const Program& body, const std::vector<bool>& constants, std::vector<bool>& carry,
                  const std::vector<bool>& xs) {
  for (;;) {
    std::vector<bool> unknown = constants, force = carry;
    unknown.insert(unknown.end(), carry.begin(), carry.end());
    unknown.insert(unknown.end(), xs.begin(), xs.end());
    force.resize(body.outputs.size(), false);
    Halves halves = split(body, unknown, force);
    const std::vector<bool> now = head(halves.unknown_outputs, carry.size());
    if (now == carry) return halves;
    carry = now;
  }
}

/// Marks the values of a body that are the same in each step, so that they may be computed once
/// before the loop: pure functions of its first `constants` inputs. If the loop may have no step,
/// those of an inner while are not: for these constants it might never end.
std::vector<bool> same_in_each_step(const Program& body, std::size_t constants, bool may_be_none) {
  const auto may_not_end = [](const Equation& inner) {
    return inner.primitive->control == ControlFlow::while_loop;
  };
  std::vector<bool> same(body.types.size());
  for (std::size_t i = 0; i < constants; ++i) same[at(body.inputs[i])] = true;
  for (const Equation& e : body.equations) {
    const bool may_run_once = !e.primitive->distinct && effect_of(e) == Effect::pure &&
                              !(may_be_none && any_equation(e, may_not_end));
    const bool is_same =
        may_run_once && std::ranges::all_of(e.operands, [&](ValueId v) { return same[at(v)]; });
    for (int i = 0; i < e.results; ++i) same[at(e.first + i)] = is_same;
  }
  return same;
}

/// Computes such `values` of `body` from its first inputs, `constants`. Where there are no `steps`
/// (empty: there are some) no cotangent may come back through them, as none comes from a loop
/// without steps: the constants are shielded, unless a cotangent of 0 stays 0 anyway.
Tensors hoisted(const Program& body, const std::vector<bool>& same,
                const std::vector<ValueId>& values, Tensors constants, const Tensor& steps) {
  if (values.empty()) return {};
  Program out;
  out.name = "hoisted";
  out.types = body.types;
  out.inputs = head(body.inputs, constants.size());
  for (const Equation& e : body.equations)
    if (e.results > 0 && same[at(e.first)]) out.equations.push_back(e);
  out.outputs = values;
  const ProgramPtr program = simplify(out);
  if (steps.has_value() && !std::ranges::all_of(program->equations, keeps_zeros)) {
    const Tensor some = reshape(greater(steps, step_number(0)), {1});
    for (Tensor& t : constants) t = shielded(t, -1, some);
  }
  return internal::apply(*program, constants);
}

/// Returns, by value, which input of the program it is; the number of inputs for none.
std::vector<std::size_t> input_numbers(const Program& program) {
  std::vector<std::size_t> out(program.types.size(), program.inputs.size());
  for (std::size_t i = 0; i < program.inputs.size(); ++i) out[at(program.inputs[i])] = i;
  return out;
}

using Source = Primitive::SplitResult::Source;

/// Inputs of the unknown half that are of one kind, and what each is given.
struct Given {
  std::vector<ValueId> inputs;
  std::vector<Source> from;

  void add(ValueId input, Source source) {
    inputs.push_back(input);
    from.push_back(std::move(source));
  }
};

/// The scan of what is unknown, while it is put together.
struct Rest {
  Given constants, carry, xs;
  ValueId number = -1;  // the input that is the step's number, if there is one
  // Residuals that are the same in each step: values of the known half, inputs of the unknown half.
  std::vector<ValueId> early, early_in;

  /// The operands of that scan. `steps`: of one that is offloaded.
  std::vector<Source> operands(const Tensor& steps) {
    std::vector<Source> out;
    if (steps.has_value()) out.push_back({steps});
    for (Given* given : {&constants, &carry, &xs})
      std::ranges::move(given->from, std::back_inserter(out));
    return out;
  }

  /// A scan of `half` like `p`, its body's inputs in the order that a scan gives them.
  ScanParams params(const ScanParams& p, Program half) const {
    half.inputs = constants.inputs;
    if (number >= 0) half.inputs.push_back(number);
    append(half.inputs, carry.inputs);
    append(half.inputs, xs.inputs);
    ScanParams out = p;
    out.body = simplify(half);
    out.counted = number >= 0;
    out.constants = constants.inputs.size();
    out.carries = carry.inputs.size();
    return out;
  }
};

/// What the scan of the known half is given, and which of its body's outputs are no residuals.
struct Known {
  Tensors constants, carry, xs;
  std::size_t outputs;
  bool counted, offloaded, may_be_none;  // of the loop: it may have no step
};

/// A residual that each step computes anew: the value in the known half, the input of the unknown.
struct Stacked {
  ValueId value, input;
};

/// Gives the residuals of the known half to `rest`, each in the cheapest way: an operand as it is,
/// the step's number, or, where it is the same in each step, computed once (give_hoisted).
/// Returns those for which nothing but one value for each step will do. A slice from a store is one
/// of them too: the unknown half does not read that store again, since a store with one reader is
/// freed behind it and has a cotangent that is no sum.
std::vector<Stacked> give_residuals(const Halves& halves, const Known& known, Rest& rest) {
  const Program& body = *halves.known;
  const std::size_t number = known.constants.size(),  // the input that is the step's number
      first_x = number + known.counted + known.carry.size();
  const std::vector<std::size_t> inputs = input_numbers(body);
  const std::vector<bool> same = same_in_each_step(body, known.constants.size(), known.may_be_none);
  std::vector<Stacked> stacked;
  for (std::size_t r = 0; r < halves.residuals; ++r) {
    const ValueId v = body.outputs[known.outputs + r], in = halves.unknown->inputs[r];
    const std::size_t input = inputs[at(v)];
    if (input < number) {
      rest.constants.add(in, {known.constants[input]});
    } else if (known.counted && input == number) {
      rest.number = in;
    } else if (!known.offloaded && input >= first_x && input < body.inputs.size()) {
      rest.xs.add(in, {known.xs[input - first_x]});
    } else if (same[at(v)]) {
      rest.early.push_back(v);
      rest.early_in.push_back(in);
    } else {
      stacked.push_back({v, in});
    }
  }
  return stacked;
}

/// Gives `rest` what is the same in each step. `steps`: how many, where the loop may have none.
void give_hoisted(const Halves& halves, const Known& known, const Tensor& steps, Rest& rest) {
  const std::vector<bool> same =
      same_in_each_step(*halves.known, known.constants.size(), known.may_be_none);
  const Tensors once = hoisted(*halves.known, same, rest.early, known.constants, steps);
  for (std::size_t i = 0; i < once.size(); ++i) rest.constants.add(rest.early_in[i], {once[i]});
}

/// The known half that gives `stacked` in the place of its residuals.
Program stacking(const Halves& halves, const Known& known, const std::vector<Stacked>& stacked) {
  Program body = *halves.known;
  body.outputs.resize(known.outputs);
  for (const Stacked& s : stacked) body.outputs.push_back(s.value);
  return body;
}

/// Binds the known half as a scan of its own, unless nobody reads it and it does nothing. Returns
/// its outputs, then those of `stacked`, one value for each step.
Tensors run_known(ScanParams p, const Halves& halves, const Known& known,
                  const std::vector<Stacked>& stacked, const Tensor& steps) {
  const Program body = stacking(halves, known, stacked);
  if (body.outputs.empty() && effect_of(body) == Effect::pure) return {};
  p.handle_ranks = ranks_of(p.handle_ranks, halves.unknown_outputs, p.carries, false);
  if (p.offloaded) p.handle_ranks.resize(p.handle_ranks.size() + stacked.size(), 0);
  return bind_scan(p, {simplify(body), {}}, known.constants, known.carry, known.xs, steps);
}

/// Gives `rest` the unknown operands, which the unknown half takes behind its residuals, and the
/// carry that is known before the first step and unknown after it.
void give_unknown_operands(const Pruned& whole, const Halves& halves,
                           const std::vector<bool>& unknown_carry, Rest& rest) {
  const ScanParams& p = whole.p;
  const ScanParts of(p, whole.x);
  std::size_t next = halves.residuals;
  auto unknown_input = [&] { return halves.unknown->inputs[next++]; };
  auto source = [&](std::size_t i) { return Source{whole.x[i], whole.operands[i]}; };
  const std::size_t first = p.first_operand(), first_carry = first + p.constants,
                    first_x = first_carry + p.carries;
  for (std::size_t i = 0; i < p.constants; ++i)
    if (!of.constants[i].has_value()) rest.constants.add(unknown_input(), source(first + i));
  for (std::size_t i = 0; i < p.carries; ++i)
    if (unknown_carry[i]) rest.carry.add(unknown_input(), source(first_carry + i));
  for (std::size_t i = 0; i < of.xs.size(); ++i)
    if (!of.xs[i].has_value()) rest.xs.add(unknown_input(), source(first_x + i));
}

}  // namespace

// Given the operands, of which those that are unknown are empty, and which results are wanted.
//
// 1. Drops the results that nobody wants, and the carry that only they need.
// 2. Splits the body into what the known inputs decide and the rest. A carry that some step makes
//    unknown is unknown in all, so this repeats until no more of it becomes so.
// 3. Gives the residuals, which the rest reads of the known half, as cheaply as each allows; for
//    what is left the known half is one scan, bound here, that stacks them.
// 4. Writes the rest as a second scan, of those residuals and the unknown operands.
//
// The result holds the known results, in the places of the whole equation, and the second scan,
// which is not bound yet. Both run the same steps in the same direction. Throws what binding does.
Primitive::SplitResult scan_split(const Op& op, TensorSpan operands,
                                  const std::vector<bool>& wanted) {
  const ScanParams& all = op.as<ScanParams>();
  Tensor steps;
  if (all.offloaded) steps = operands[0];
  check(!all.offloaded || steps.has_value(), "scan: the number of steps depends on a tangent");
  const Pruned whole = prune(all, operands, wanted);
  const ScanParts of(whole.p, whole.x);
  std::vector<bool> constants = missing(of.constants), unknown_carry = missing(of.carry);
  if (whole.p.counted) constants.push_back(false);
  const Halves halves = split_body(*whole.p.body, constants, unknown_carry, missing(of.xs));

  const bool has_none = !whole.p.offloaded && whole.p.length == 0;
  const Known known{kept(of.constants),
                    where_marked(of.carry, unknown_carry, false),
                    kept(of.xs),
                    halves.known->outputs.size() - halves.residuals,
                    whole.p.counted,
                    whole.p.offloaded,
                    has_none || whole.p.offloaded};
  Rest rest;
  const std::vector<Stacked> stacked = give_residuals(halves, known, rest);
  give_hoisted(halves, known, has_none ? step_number(0) : steps, rest);
  const Tensors results = run_known(whole.p, halves, known, stacked, steps);
  for (std::size_t i = 0; i < stacked.size(); ++i)
    rest.xs.add(stacked[i].input, {results[known.outputs + i]});
  give_unknown_operands(whole, halves, unknown_carry, rest);

  Primitive::SplitResult out;
  out.known.resize(wanted.size());
  for (std::size_t i = 0, next_known = 0; i < whole.results.size(); ++i) {
    if (halves.unknown_outputs[i])
      out.results.push_back(whole.results[i]);
    else
      out.known[at(whole.results[i])] = results[next_known++];
  }
  ScanParams second = rest.params(whole.p, *halves.unknown);
  second.handle_ranks =
      ranks_of(whole.p.handle_ranks, halves.unknown_outputs, whole.p.carries, true);
  out.primitive = &scan_primitive(op.primitive.calls);
  out.params = make_params(std::move(second));
  out.operands = rest.operands(steps);
  return out;
}

// Given the operands, of which those that are unknown are empty: the constants of the condition and
// of the body, and the carry. Which results are wanted it does not look at.
//
// 1. Splits the body, again until no more of the carry becomes unknown, as scan_split does.
// 2. Refuses a condition that reads what is unknown by then: the known loop ends by it.
// 3. Gives the residuals as cheaply as each allows, and binds the known loop, which counts its
//    steps and puts the other residuals in stores, a value for each step.
// 4. Writes the rest as a scan of so many steps, of those stores and the unknown operands. It comes
//    last because only the known loop has the number of steps and the handles of the stores.
//
// The result holds the known results, in the places of the whole equation, and the scan, which is
// not bound yet. Throws for such a condition, and what binding does.
Primitive::SplitResult while_split(const Op& op, TensorSpan x, const std::vector<bool>&) {
  const auto& p = op.as<WhileParams>();
  const std::size_t first_carry = p.condition_constants + p.body_constants, carries = p.carries();
  const WhileParts of(p, x);
  std::vector<bool> unknown_carry = missing(of.carry);
  const Halves halves = split_body(*p.body, missing(of.body_constants), unknown_carry, {});
  std::vector<bool> condition_unknown = missing(of.condition_constants);
  condition_unknown.insert(condition_unknown.end(), unknown_carry.begin(), unknown_carry.end());
  const Halves condition = split(*p.condition, condition_unknown);
  check(!condition.unknown_outputs[0], "while_loop: the condition depends on a tangent");

  const Known known{kept(of.body_constants),
                    where_marked(of.carry, unknown_carry, false),
                    {},
                    halves.known->outputs.size() - halves.residuals,
                    false,
                    true,
                    true};
  Rest rest;
  const std::vector<Stacked> stacked = give_residuals(halves, known, rest);

  WhileParams offloaded;
  offloaded.residuals = p.residuals;
  offloaded.offloaded = true;
  offloaded.handle_ranks = ranks_of(p.handle_ranks, halves.unknown_outputs, carries, false);
  const std::size_t known_ys = offloaded.handle_ranks.size();
  offloaded.handle_ranks.resize(known_ys + stacked.size(), 0);
  const Tensors results =
      bind_while(offloaded, {condition.known, {}}, {simplify(stacking(halves, known, stacked)), {}},
                 kept(of.condition_constants), known.constants, known.carry);
  const Tensor& steps = results[known.carry.size()];
  give_hoisted(halves, known, steps, rest);
  const auto handles = std::span(results).subspan(known.carry.size() + 1);

  std::size_t next = halves.residuals;  // behind them the unknown half takes its own operands
  auto unknown_input = [&] { return halves.unknown->inputs[next++]; };
  auto source = [&](std::size_t i) { return Source{x[i], static_cast<int>(i)}; };
  for (std::size_t i = p.condition_constants; i < first_carry; ++i)
    if (!x[i].has_value()) rest.constants.add(unknown_input(), source(i));
  for (std::size_t i = 0; i < carries; ++i)
    if (unknown_carry[i]) rest.carry.add(unknown_input(), source(first_carry + i));
  for (std::size_t i = 0; i < stacked.size(); ++i)
    rest.xs.add(stacked[i].input, {handles[known_ys + i]});

  // Results: the carry, the number of steps, handles.
  Primitive::SplitResult out;
  out.known.resize(carries + p.offloaded + p.ys());
  std::size_t known_carry = 0, known_handle = 0;
  for (std::size_t i = 0; i < p.body->outputs.size(); ++i) {
    std::size_t result = i;
    if (i >= carries) ++result;  // behind the number of steps
    if (halves.unknown_outputs[i])
      out.results.push_back(static_cast<int>(result));
    else if (i < carries)
      out.known[result] = results[known_carry++];
    else
      out.known[result] = handles[known_handle++];
  }
  if (p.offloaded) out.known[carries] = steps;
  ScanParams like;
  like.offloaded = true;
  like.residuals = p.residuals;
  like.index = count_type().dtype;
  ScanParams scan = rest.params(like, *halves.unknown);
  scan.handle_ranks = ranks_of(p.handle_ranks, halves.unknown_outputs, carries, true);
  out.primitive = &offloaded_scan_p;
  out.params = make_params(std::move(scan));
  out.operands = rest.operands(steps);
  return out;
}

}  // namespace postern::internal
