// Taped loops expanded into while loops with calls of the host.
#include "control/tape.h"

#include <postern/ops.h>

#include "control/scan.h"
#include "core/lists.h"
#include "transform/flatten.h"
#include "transform/simplify.h"

namespace postern {

Type ticket_type(const Type& step, int rank) {
  check(rank <= step.rank(), "a tape of {} has tickets of {} axes", to_string(step), rank);
  return {DType::f64, {step.dims.begin(), step.dims.begin() + rank}};
}

Tensors no_tickets(const Types& steps, const std::vector<int>& ranks) {
  Tensors out;
  for (std::size_t i = 0; i < steps.size(); ++i)
    out.push_back(zeros_of(ticket_type(steps[i], ranks[i])));
  return out;
}

Tensor step_number(std::int64_t k) {
  return full_of({Number::Kind::integer, k, static_cast<double>(k), 0}, count_type());
}

namespace {

/// From the `first` on.
Types last(const Types& types, std::size_t first) { return tail(types, first); }

Tensors with(const Tensor& first, TensorSpan more) {
  Tensors out{first};
  append(out, more);
  return out;
}

/// Carry: the step's number, the loop's carry, the tickets.
Tensors expanded_while(const WhileParams& p, TensorSpan x) {
  const std::size_t carries = p.carries();
  const Tensors cc(x.begin(), nth(x, p.condition_constants)),
      bc(nth(x, p.condition_constants), x.end() - static_cast<std::ptrdiff_t>(carries));
  Tensors carry = with(step_number(0), x.last(carries));
  append(carry, no_tickets(last(p.body->output_types(), carries), p.ticket_ranks));
  auto joined = [&](Tensors constants, TensorSpan in) {
    append(constants, in.subspan(1, carries));
    return constants;
  };
  Types of_condition = types_of(cc), of_body = types_of(bc);
  append(of_condition, types_of(carry));
  append(of_body, types_of(carry));
  const Closed condition = trace_inner("condition", of_condition, [&](TensorSpan in) {
    return postern::apply(*p.condition,
                          joined({in.begin(), in.begin() + std::ssize(cc)}, in.subspan(cc.size())));
  });
  const Closed body = trace_inner("body", of_body, [&](TensorSpan in) {
    const auto mine = in.subspan(bc.size());
    const Tensors y =
        postern::apply(*p.body, joined({in.begin(), in.begin() + std::ssize(bc)}, mine));
    Tensors out = with(add(mine[0], step_number(1)), std::span(y).first(carries));
    append(out,
           write_tapes(mine[0], mine.subspan(1 + carries), std::span(y).subspan(carries), p.tape));
    return out;
  });
  Tensors y = bind_while({}, condition, body, cc, bc, carry);
  std::rotate(y.begin(), y.begin() + 1, y.begin() + 1 + static_cast<std::ptrdiff_t>(carries));
  return y;
}

/// Carry: how many steps are done, the loop's carry, the tickets of what it gives.
Tensors expanded_scan(const ScanParams& p, TensorSpan x) {
  const ScanParts of(p, x);
  const Types in_types = p.body->input_types(), out_types = p.body->output_types();
  Tensors constants = with(x[0], of.constants), carry = with(step_number(0), of.carry);
  append(constants, of.xs);
  append(carry, no_tickets(last(out_types, p.carries), p.ticket_ranks));
  Types types = types_of(constants);
  append(types, types_of(carry));
  const Closed condition = trace_inner("condition", types_of(with(x[0], carry)),
                                       [](TensorSpan in) { return Tensors{less(in[1], in[0])}; });
  const Closed body = trace_inner("body", types, [&](TensorSpan in) {
    const auto mine = in.subspan(constants.size());
    Tensor k = mine[0];
    if (p.reverse) k = subtract(subtract(in[0], step_number(1)), k);
    Tensors inputs(in.begin() + 1, in.begin() + 1 + std::ssize(of.constants));
    if (p.counted) {
      Tensor number = k;
      if (p.start) number = add(number, step_number(p.start));
      inputs.push_back(convert(number, p.index));
    }
    append(inputs, mine.subspan(1, p.carries));
    append(inputs, read_tapes(k, in.subspan(1 + of.constants.size(), of.xs.size()),
                              last(in_types, p.first_x()), p.tape));
    const Tensors y = postern::apply(*p.body, inputs);
    Tensors out = with(add(mine[0], step_number(1)), std::span(y).first(p.carries));
    append(out,
           write_tapes(k, mine.subspan(1 + p.carries), std::span(y).subspan(p.carries), p.tape));
    return out;
  });
  Tensors y = bind_while({}, condition, body, std::span(x).first(1), constants, carry);
  Tensors freed;
  for (std::size_t i = 0; i < p.frees.size(); ++i)
    if (p.frees[i]) freed.push_back(of.xs[i]);
  if (!freed.empty()) free_tapes(y[0], freed, p.tape);
  y.erase(y.begin());
  return y;
}

bool is_taped(const Equation& e) {
  return e.primitive == &taped_while_p || e.primitive == &taped_scan_p;
}

/// Marks the tapes that loops of this program make and only one of them reads, by that one. Of two
/// readers XLA may choose which comes first.
void mark_freed(Program& program) {
  struct Use {
    std::size_t count = 0, equation = 0, operand = 0;
  };
  std::vector<Use> uses(program.types.size());
  std::vector<bool> made(program.types.size());
  for (std::size_t i = 0; i < program.equations.size(); ++i) {
    const Equation& e = program.equations[i];
    for (std::size_t j = 0; j < e.operands.size(); ++j)
      uses[at(e.operands[j])] = {uses[at(e.operands[j])].count + 1, i, j};
    if (!is_taped(e)) continue;
    std::size_t first = 0;
    if (e.primitive == &taped_scan_p)
      first = as<ScanParams>(*e.params).carries;
    else
      first = as<WhileParams>(*e.params).carries() + 1;
    for (std::size_t r = first; r < at(e.results); ++r) made[at(e.first) + r] = true;
  }
  for (const ValueId v : program.outputs) made[at(v)] = false;
  for (std::size_t v = 0; v < made.size(); ++v) {
    const Use& use = uses[v];
    if (!made[v] || use.count != 1) continue;
    Equation& e = program.equations[use.equation];
    if (e.primitive != &taped_scan_p) continue;
    ScanParams p = as<ScanParams>(*e.params);
    const std::size_t first_x = p.first_operand() + p.constants + p.carries;
    if (use.operand < first_x) continue;
    p.frees.resize(p.xs());
    p.frees[use.operand - first_x] = true;
    e.params = make_params(std::move(p));
  }
}

/// What stands for a taped loop until it is flattened into its program.
struct ExpandedParams {
  ProgramPtr body;
  void fields(FieldSink& sink) const { sink("body", body); }
};
constexpr Primitive expanded_p{.name = "expanded", .transparent = true};

ProgramPtr expansion(const Equation& e, std::span<const Type> operands) {
  PlaceScope::Replace place(e.place);
  const Closed closed = trace_program("taped", operands, [&](TensorSpan x) {
    if (e.primitive == &taped_while_p) return expanded_while(as<WhileParams>(*e.params), x);
    return expanded_scan(as<ScanParams>(*e.params), x);
  });
  check(closed.captures.empty(), "a taped loop uses a tensor from outside of its program");
  return simplify(*closed.program);
}

}  // namespace

void lower_taped(Lowering& out, const Equation& e) {
  Types types;
  std::vector<Ssa> inputs;
  for (std::size_t i = 0; i < e.operands.size(); ++i) {
    types.push_back(out.operand_type(e, i));
    inputs.push_back(out.operand(e, i));
  }
  const std::vector<Ssa> results = out.inlined(*expansion(e, types), inputs);
  out.define_all(e, results);
}

ProgramPtr with_tapes_expanded(const ProgramPtr& program) {
  if (!any_equation(*program, is_taped)) return program;
  Program out = *program;
  mark_freed(out);
  for (Equation& e : out.equations) {
    if (!any_equation(e, is_taped)) continue;
    std::vector<ProgramPtr> programs = programs_of(*e.params);
    for (ProgramPtr& p : programs) p = with_tapes_expanded(p);
    if (e.primitive->with_programs) e.params = e.primitive->with_programs(e.params.get(), programs);
    if (!is_taped(e)) continue;
    Types types;
    for (const ValueId v : e.operands) types.push_back(out.type(v));
    e.params = make_params(ExpandedParams{expansion(e, types)});
    e.primitive = &expanded_p;
  }
  return std::make_shared<const Program>(
      flattened(out, [](const Equation& e) { return e.primitive == &expanded_p; }));
}

}  // namespace postern
