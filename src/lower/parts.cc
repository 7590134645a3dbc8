// Long programs in parts. XLA's time to compile a computation grows faster than the number of
// custom calls in it: a chain of 1,000 took 0.7 s, of 4,000 43 s. In functions that XLA is told to
// leave where they are it grows with their number.
//
// A part is a run of a program's equations with a limited number of effects. It is given what its
// equations need of earlier ones, and the token of ordered effects; it gives what later ones need,
// and the token. Numbers are written again in each part, so that XLA still sees them.
#include <algorithm>

#include "core/primitive.h"
#include "lower/lowering.h"
#include "trace/literal.h"

namespace postern::internal {

namespace {

constexpr std::size_t effects_in_a_part = 100;
constexpr std::string_view stays = R"(inlineable = "false")";

struct Part {
  std::size_t begin, end;                // equations
  std::vector<const Equation*> numbers;  // of earlier parts, to be written again in this one
  std::vector<ValueId> inputs = {}, outputs = {};
  bool ordered = false;
};

/// Counts the effects that the equation adds to the computation in which it is written. What loops
/// and branches hold is in computations of its own, what others hold is written where they stand.
std::size_t effects_of(const Equation& e) {
  if (e.primitive->site) return 1;
  if (!has_site(e)) return 0;
  if (e.primitive->control != ControlFlow::none) return 1;
  std::size_t effects = 0;
  for (const ProgramPtr& p : programs_of(*e.params))
    for (const Equation& inner : p->equations) effects += effects_of(inner);
  return effects;
}

/// Cuts a program into parts; into none if it is short enough.
std::vector<Part> parts_of(const Program& program) {
  std::vector<Part> parts;
  std::size_t effects = 0, begin = 0;
  for (std::size_t i = 0; i < program.equations.size(); ++i) {
    effects += effects_of(program.equations[i]);
    if (effects < effects_in_a_part) continue;
    parts.push_back({begin, i + 1, {}});
    begin = i + 1;
    effects = 0;
  }
  if (parts.size() < 2) return {};
  if (begin < program.equations.size()) parts.push_back({begin, program.equations.size(), {}});
  return parts;
}

/// Finds what each part needs of earlier ones, each value once, and what it gives later ones and
/// the program's outputs.
void connect(const Program& program, std::vector<Part>& parts) {
  const auto nowhere = parts.size();  // where the program's inputs are made
  // By value: its equation if it is a number; the part that makes it, and the last one that was
  // given it; whether it is read outside of the part that makes it.
  std::vector<const Equation*> number(program.types.size());
  std::vector<std::size_t> made_in(program.types.size(), nowhere), last_given_to = made_in;
  std::vector<bool> leaves(program.types.size());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    Part& part = parts[p];
    for (std::size_t i = part.begin; i < part.end; ++i) {
      const Equation& e = program.equations[i];
      part.ordered = part.ordered || effect_of(e) == Effect::ordered;
      for (const ValueId v : e.operands) {
        if (made_in[at(v)] == p || last_given_to[at(v)] == p) continue;
        last_given_to[at(v)] = p;
        if (number[at(v)]) {
          part.numbers.push_back(number[at(v)]);
        } else {
          part.inputs.push_back(v);
          leaves[at(v)] = true;
        }
      }
      for (int r = 0; r < e.results; ++r) made_in[at(e.first + r)] = p;
      if (e.primitive == &literal_p) number[at(e.first)] = &e;
    }
  }
  for (const ValueId v : program.outputs) leaves[at(v)] = true;
  for (std::size_t v = 0; v < leaves.size(); ++v)
    if (leaves[v] && made_in[v] != nowhere)
      parts[made_in[v]].outputs.push_back(static_cast<ValueId>(v));
}

}  // namespace

std::string in_one_piece(std::string text) {
  for (std::size_t found = 0; (found = text.find(stays, found)) != std::string::npos;)
    text.erase(found, stays.size());
  return text;
}

std::vector<Ssa> Lowering::apart(Apart what, std::vector<Ssa> inputs, const Body& body) {
  // The token goes in and out as the last input and result, and with it whether it orders calls: in
  // the function as it was here before, here as it is at the function's end.
  const bool takes_token = what.ordered || token_orders_calls_;
  const std::size_t given = inputs.size();
  if (takes_token) {
    what.inputs.push_back({DType::token, {}});
    what.outputs.push_back({DType::token, {}});
    inputs.push_back(token());
  }
  const std::string name = fmt::format("postern_{}_{}", what.name, parts_++);
  bool orders_calls = token_orders_calls_;
  function(name, what.inputs, what.outputs, [&](std::span<const Ssa> x) {
    token_orders_calls_ = orders_calls;
    if (takes_token) set_token(x.back());
    std::vector<Ssa> results = body(x.first(given));
    if (takes_token) results.push_back(token());
    orders_calls = token_orders_calls_;
    return results;
  });
  std::vector<Ssa> results = called(name, inputs, what.inputs, what.outputs, what.attributes);
  if (takes_token) {
    set_token(results.back());
    results.pop_back();
  }
  token_orders_calls_ = orders_calls;
  return results;
}

// A device's own program (a MeshRegion) is told where it runs. Of what XLA partitions it finds out
// itself how it lies, into parts and out of them.
bool Lowering::in_parts(const Program& program) {
  std::vector<Part> parts = parts_of(program);
  if (parts.empty()) return false;
  connect(program, parts);
  const auto define_values = [&](const auto& ids, std::span<const Ssa> values) {
    for (std::size_t i = 0; i < ids.size(); ++i) env_[at(ids[i])] = values[i];
  };
  for (const Part& part : parts) {
    Apart function{"part", {}, {}};
    std::vector<Ssa> given;  // the values from earlier parts, then the indices along mesh axes
    for (const ValueId v : part.inputs) {
      function.inputs.push_back(program.type(v));
      given.push_back(latest(env_[at(v)]));
      mark_read(given.back());
    }
    for (const ValueId v : part.outputs) function.outputs.push_back(program.type(v));
    const std::vector<Ssa> axis_indices = axis_indices_;
    for (const Ssa index : axis_indices) {
      function.inputs.push_back({DType::s32, {}});
      given.push_back(index);
    }
    std::vector<Ssa> numbers;
    for (const Equation* e : part.numbers) numbers.push_back(env_[at(e->first)]);
    const auto body = [&](std::span<const Ssa> x) {
      define_values(part.inputs, x);
      const auto indices = x.subspan(part.inputs.size());
      axis_indices_.assign(indices.begin(), indices.end());
      for (const Equation* e : part.numbers) equation(*e);
      equations(std::span(program.equations).subspan(part.begin, part.end - part.begin));
      std::vector<Ssa> results;
      for (const ValueId v : part.outputs) results.push_back(latest(env_[at(v)]));
      return results;
    };
    function.ordered = part.ordered || token_orders_calls_;
    std::string attributes = fmt::format("mhlo.frontend_attributes = {{{}}}", stays);
    if (mesh_) attributes += where_it_runs(part.outputs.size() + (function.ordered ? 1 : 0), -1);
    function.attributes = attributes;
    const std::vector<Ssa> results = apart(std::move(function), given, body);
    // The body has put names of its own in the place of what both know; of what it made only its
    // results are seen here.
    axis_indices_ = axis_indices;
    define_values(part.inputs, given);
    for (std::size_t i = 0; i < numbers.size(); ++i) env_[at(part.numbers[i]->first)] = numbers[i];
    define_values(part.outputs, results);
  }
  return true;
}

}  // namespace postern::internal
