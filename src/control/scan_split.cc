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

/// A residual: the value in the known half, the input of the unknown one.
struct Residual {
  ValueId value, input;
};

/// The scan of what is unknown, while it is put together.
struct Rest {
  Given constants, carry, xs;
  ValueId number = -1;          // the input that is the step's number, if there is one
  std::vector<Residual> early;  // those that are the same in each step

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

/// A loop's body in two halves, and what is known of what goes into it.
struct SplitBody {
  Halves halves;
  std::vector<bool> unknown_carry;
  Tensors constants, carry, xs;  // known ones: what the known half is given
  std::size_t outputs;           // of the known half, without the residuals
  std::vector<bool> same;        // by value of the known half: see same_in_each_step
};

/// Splits the body of a loop by which constants, carry and xs are unknown. A carry that some step
/// makes unknown is then unknown in all of them.
SplitBody split_body(const Pruned& whole) {
  const ScanParams& p = whole.p;
  const ScanParts of(p, whole.x);
  std::vector<bool> constants = missing(of.constants), before;
  if (p.counted) constants.push_back(false);
  const std::vector<bool> xs = missing(of.xs);
  SplitBody out;
  out.unknown_carry = missing(of.carry);
  do {
    before = out.unknown_carry;
    std::vector<bool> unknown = constants, force = before;
    unknown.insert(unknown.end(), before.begin(), before.end());
    unknown.insert(unknown.end(), xs.begin(), xs.end());
    force.resize(p.body->outputs.size(), false);
    out.halves = split(*p.body, unknown, force);
    out.unknown_carry = head(out.halves.unknown_outputs, p.carries);
  } while (out.unknown_carry != before);
  out.constants = kept(of.constants);
  out.carry = where_marked(of.carry, out.unknown_carry, false);
  out.xs = kept(of.xs);
  out.outputs = out.halves.known->outputs.size() - out.halves.residuals;
  const bool may_be_none = p.offloaded || p.length == 0;  // steps
  out.same = same_in_each_step(*out.halves.known, out.constants.size(), may_be_none);
  return out;
}

/// Gives the residuals of the known half to `rest`, each in the cheapest way: an operand as it is,
/// the step's number, or, where it is the same in each step, computed once (give_hoisted).
/// Returns those for which nothing but one value for each step will do. A slice from a store is one
/// of them too: the unknown half does not read that store again, since a store with one reader is
/// freed behind it and has a cotangent that is no sum.
std::vector<Residual> give_residuals(const ScanParams& p, const SplitBody& known, Rest& rest) {
  const Halves& halves = known.halves;
  const Program& body = *halves.known;
  const std::size_t number = known.constants.size(),  // the input that is the step's number
      first_x = number + p.counted + known.carry.size();
  const std::vector<std::size_t> inputs = input_numbers(body);
  std::vector<Residual> stacked;
  for (std::size_t r = 0; r < halves.residuals; ++r) {
    const ValueId v = body.outputs[known.outputs + r], in = halves.unknown->inputs[r];
    const std::size_t input = inputs[at(v)];
    if (input < number) {
      rest.constants.add(in, {known.constants[input]});
    } else if (p.counted && input == number) {
      rest.number = in;
    } else if (!p.offloaded && input >= first_x && input < body.inputs.size()) {
      rest.xs.add(in, {known.xs[input - first_x]});
    } else if (known.same[at(v)]) {
      rest.early.push_back({v, in});
    } else {
      stacked.push_back({v, in});
    }
  }
  return stacked;
}

/// Computes what is the same in each step from the known constants, and gives it to `rest`. Where
/// there are no `steps` (empty: there are some) no cotangent may come back through it, as none
/// comes from a loop without steps: the constants are shielded, unless a cotangent of 0 stays 0
/// anyway.
void give_hoisted(const SplitBody& known, const Tensor& steps, Rest& rest) {
  if (rest.early.empty()) return;
  const Program& body = *known.halves.known;
  Program hoisted;
  hoisted.name = "hoisted";
  hoisted.types = body.types;
  hoisted.inputs = head(body.inputs, known.constants.size());
  for (const Equation& e : body.equations)
    if (e.results > 0 && known.same[at(e.first)]) hoisted.equations.push_back(e);
  for (const Residual& r : rest.early) hoisted.outputs.push_back(r.value);
  const ProgramPtr program = simplify(hoisted);
  Tensors constants = known.constants;
  if (steps.has_value() && !std::ranges::all_of(program->equations, keeps_zeros)) {
    const Tensor some = reshape(greater(steps, step_number(0)), {1});
    for (Tensor& t : constants) t = shielded(t, -1, some);
  }
  const Tensors once = internal::apply(*program, constants);
  for (std::size_t i = 0; i < once.size(); ++i) rest.constants.add(rest.early[i].input, {once[i]});
}

/// Returns the known half as a loop like `p`, which gives `stacked` in the place of its residuals.
ScanParams known_half(const ScanParams& p, const SplitBody& known,
                      const std::vector<Residual>& stacked) {
  Program body = *known.halves.known;
  body.outputs.resize(known.outputs);
  for (const Residual& r : stacked) body.outputs.push_back(r.value);
  ScanParams out = p;
  out.body = simplify(body);
  out.handle_ranks = ranks_of(p.handle_ranks, known.halves.unknown_outputs, p.carries, false);
  if (p.offloaded) out.handle_ranks.resize(out.handle_ranks.size() + stacked.size(), 0);
  return out;
}

/// Gives `rest` the unknown operands, which the unknown half takes behind its residuals, and the
/// carry that is known before the first step and unknown after it.
void give_unknown_operands(const Pruned& whole, const SplitBody& known, Rest& rest) {
  const ScanParams& p = whole.p;
  const ScanParts of(p, whole.x);
  std::size_t next = known.halves.residuals;
  auto unknown_input = [&] { return known.halves.unknown->inputs[next++]; };
  auto source = [&](std::size_t i) { return Source{whole.x[i], whole.operands[i]}; };
  const std::size_t first = p.first_operand(), first_carry = first + p.constants,
                    first_x = first_carry + p.carries;
  for (std::size_t i = 0; i < p.constants; ++i)
    if (!of.constants[i].has_value()) rest.constants.add(unknown_input(), source(first + i));
  for (std::size_t i = 0; i < p.carries; ++i)
    if (known.unknown_carry[i]) rest.carry.add(unknown_input(), source(first_carry + i));
  for (std::size_t i = 0; i < of.xs.size(); ++i)
    if (!of.xs[i].has_value()) rest.xs.add(unknown_input(), source(first_x + i));
}

/// Returns what a split rule does for a loop of so many results. `given`: the outputs of the known
/// half and the values of `stacked`, as it has run for so many `steps` (of one that is offloaded).
Primitive::SplitResult with_rest(const Pruned& whole, const SplitBody& known, std::size_t results,
                                 TensorSpan given, const std::vector<Residual>& stacked,
                                 const Tensor& steps, Rest rest) {
  for (std::size_t i = 0; i < stacked.size(); ++i)
    rest.xs.add(stacked[i].input, {given[known.outputs + i]});
  give_unknown_operands(whole, known, rest);
  const std::vector<bool>& unknown = known.halves.unknown_outputs;
  Primitive::SplitResult out;
  out.known.resize(results);
  for (std::size_t i = 0, next_known = 0; i < whole.results.size(); ++i) {
    if (unknown[i])
      out.results.push_back(whole.results[i]);
    else
      out.known[at(whole.results[i])] = given[next_known++];
  }
  ScanParams second = rest.params(whole.p, *known.halves.unknown);
  second.handle_ranks = ranks_of(whole.p.handle_ranks, unknown, whole.p.carries, true);
  out.primitive = &scan_primitive(second.offloaded);
  out.params = make_params(std::move(second));
  out.operands = rest.operands(steps);
  return out;
}

/// Returns a while as a scan of its body, offloaded, of which it does not know the steps yet.
Pruned as_scan(const WhileParams& p, TensorSpan x) {
  Pruned out{scan_of_body(p), {Tensor()}, {-1}, {}};
  for (std::size_t i = p.condition_constants; i < x.size(); ++i) out.keep_operand(x, i);
  for (std::size_t i = 0; i < p.body->outputs.size(); ++i) {
    const bool is_handle = i >= p.carries();  // they come behind the number of steps
    out.results.push_back(static_cast<int>(i + is_handle));
  }
  return out;
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
  const Tensor steps = at_if(all.offloaded, operands, 0);
  check(!all.offloaded || steps.has_value(), "scan: the number of steps depends on a tangent");
  const Pruned whole = prune(all, operands, wanted);
  const SplitBody known = split_body(whole);
  Rest rest;
  const std::vector<Residual> stacked = give_residuals(whole.p, known, rest);
  const bool has_none = !whole.p.offloaded && whole.p.length == 0;
  give_hoisted(known, has_none ? step_number(0) : steps, rest);
  const ScanParams first = known_half(whole.p, known, stacked);
  Tensors given;
  const bool does_nothing = first.body->outputs.empty() && effect_of(*first.body) == Effect::pure;
  if (!does_nothing)
    given = bind_scan(first, {first.body, {}}, known.constants, known.carry, known.xs, steps);
  return with_rest(whole, known, wanted.size(), given, stacked, steps, std::move(rest));
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
  const WhileParts of(p, x);
  const Pruned whole = as_scan(p, x);
  const SplitBody known = split_body(whole);
  std::vector<bool> condition_unknown = missing(of.condition_constants);
  condition_unknown.insert(condition_unknown.end(), known.unknown_carry.begin(),
                           known.unknown_carry.end());
  const Halves condition = split(*p.condition, condition_unknown);
  check(!condition.unknown_outputs[0], "while_loop: the condition depends on a tangent");

  Rest rest;
  const std::vector<Residual> stacked = give_residuals(whole.p, known, rest);
  const ScanParams first = known_half(whole.p, known, stacked);
  WhileParams offloaded;
  offloaded.residuals = p.residuals;
  offloaded.offloaded = true;
  offloaded.handle_ranks = first.handle_ranks;
  Tensors given = bind_while(offloaded, {condition.known, {}}, {first.body, {}},
                             kept(of.condition_constants), known.constants, known.carry);
  // Behind the carry comes the number of steps.
  const auto count = nth(given, known.carry.size());
  const Tensor steps = *count;
  given.erase(count);
  give_hoisted(known, steps, rest);

  const std::size_t results = p.carries() + p.offloaded + p.ys();
  Primitive::SplitResult out =
      with_rest(whole, known, results, given, stacked, steps, std::move(rest));
  if (p.offloaded) out.known[p.carries()] = steps;
  return out;
}

}  // namespace postern::internal
