// Programs: effects, printing, keys, verification.
#include "core/program.h"

#include "core/check.h"
#include "core/lists.h"
#include "core/primitive.h"
#include "core/text.h"
#include "core/value.h"

#include <algorithm>

namespace postern::internal {

namespace {

std::vector<Type> types_of(const Program& program, const std::vector<ValueId>& values) {
  std::vector<Type> types;
  types.reserve(values.size());
  for (ValueId v : values) types.push_back(program.type(v));
  return types;
}

std::string typed_text(const Program& program, ValueId v) {
  return fmt::format("%{}: {}", v, to_string(program.type(v)));
}

/// Appends the equation's line without its end: "%2: f32[3] = sum[axes=[0]] %1  @ digits.cc:7".
void append_equation(const Program& program, const Equation& e, const std::string& platform,
                     std::string& text) {
  std::vector<std::string> results;
  for (int i = 0; i < e.results; ++i) results.push_back(typed_text(program, e.first + i));
  if (e.results) text += fmt::format("{} = ", fmt::join(results, ", "));
  text += e.primitive->name;
  std::string params;
  if (e.params) params = to_string(*e.params);
  if (!params.empty()) text += fmt::format("[{}]", params);
  for (ValueId v : e.operands) text += fmt::format(" %{}", v);
  const Effect effect = effect_of(e);
  if (effect == Effect::unordered) text += "  !unordered";
  if (effect == Effect::ordered) text += "  !ordered";
  if (e.primitive->remark) text += "  " + e.primitive->remark(e.params.get(), platform);
  if (e.place.known()) text += fmt::format("  @ {}", to_string(e.place));
}

/// Appends the program, and behind each equation the programs that it holds, further in.
void append_program(const Program& program, const std::string& platform, const std::string& indent,
                    std::string& text) {
  std::vector<std::string> inputs, outputs;
  for (ValueId v : program.inputs) {
    inputs.push_back(typed_text(program, v));
    if (inputs.size() > program.inputs.size() - program.captures) inputs.back() += " captured";
  }
  std::string name = "program";
  if (!program.name.empty()) name = one_line(program.name);
  text += fmt::format("{}{}({}) {{\n", indent, name, fmt::join(inputs, ", "));
  for (const Equation& e : program.equations) {
    text += indent + "  ";
    append_equation(program, e, platform, text);
    text += "\n";
    if (!e.params) continue;
    for (const ProgramPtr& p : programs_of(*e.params))
      append_program(*p, platform, indent + "    ", text);
  }
  for (ValueId v : program.outputs) outputs.push_back(fmt::format("%{}", v));
  text += fmt::format("{}  return {}\n{}}}\n", indent, fmt::join(outputs, ", "), indent);
}

}  // namespace

std::vector<Type> Program::input_types() const { return types_of(*this, inputs); }
std::vector<Type> Program::output_types() const { return types_of(*this, outputs); }

Effect effect_of(const Equation& e) {
  Effect effect = Effect::pure;
  if (e.primitive->effect) effect = e.primitive->effect(e.params.get());
  if (e.params)
    for (const ProgramPtr& p : programs_of(*e.params)) effect = std::max(effect, effect_of(*p));
  return effect;
}

Effect effect_of(const Program& program) {
  Effect effect = Effect::pure;
  for (const Equation& e : program.equations) effect = std::max(effect, effect_of(e));
  return effect;
}

bool any_equation(const Equation& e, const std::function<bool(const Equation&)>& test) {
  if (test(e)) return true;
  if (!e.params) return false;
  return std::ranges::any_of(programs_of(*e.params),
                             [&](const ProgramPtr& p) { return any_equation(*p, test); });
}
bool any_equation(const Program& program, const std::function<bool(const Equation&)>& test) {
  return std::ranges::any_of(program.equations,
                             [&](const Equation& e) { return any_equation(e, test); });
}

static bool is_site(const Equation& e) { return e.primitive->site || e.primitive->calls; }

bool has_site(const Equation& equation) { return any_equation(equation, is_site); }
bool has_site(const Program& program) { return any_equation(program, is_site); }
bool calls_back(const Program& program) {
  return any_equation(program,
                      [](const Equation& e) { return is_site(e) || e.primitive->may_call; });
}

std::string to_string(const Program& program, const std::string& platform) {
  std::string text;
  append_program(program, platform, "", text);
  return text;
}

// All lists end with a mark, so that no two programs run together to one text.
void append_key(std::string& key, const Program& program) {
  auto append_ids = [&](const std::vector<ValueId>& values) {
    for (ValueId v : values) key += fmt::format("{},", v);
    key += ';';
  };
  auto append_type = [&](ValueId v) {
    key += to_string(program.type(v));
    key += program.type(v).weak ? '~' : ' ';
  };
  for (ValueId v : program.inputs) {
    key += std::to_string(v);
    append_type(v);
  }
  key += '{';
  for (const Equation& e : program.equations) {
    key += fmt::format("{}/{}(", static_cast<const void*>(e.primitive), e.results);
    append_ids(e.operands);
    if (e.params) append_key(key, *e.params);
    for (int i = 0; i < e.results; ++i) append_type(e.first + i);
    key += ')';
  }
  append_ids(program.outputs);
  key += '}';
}

void verify(const Program& program) {
  std::vector<bool> made(program.types.size());  // by value: an input, or a result so far
  auto in_range = [&](ValueId v) { return v >= 0 && size_of(v) < made.size(); };
  for (ValueId v : program.inputs) {
    check(in_range(v), "verify: an input of program '{}' is value %{}, it has {} values",
          program.name, v, made.size());
    made[size_of(v)] = true;
  }
  auto require_made = [&](ValueId v, const char* who) {
    check(in_range(v) && made[size_of(v)],
          "verify: {} of program '{}' uses value %{} before it is made", who, program.name, v);
  };
  std::vector<const Type*> operands;
  for (const Equation& e : program.equations) {
    PlaceScope::Replace here(e.place);
    operands.clear();
    for (ValueId v : e.operands) {
      require_made(v, e.primitive->name);
      operands.push_back(&program.type(v));
    }
    const Types types = e.primitive->type(e.params.get(), {operands.data(), operands.size()});
    check(static_cast<int>(types.size()) == e.results,
          "verify: {} has {} results, its type rule says {}", e.primitive->name, e.results,
          types.size());
    check(e.results == 0 || (in_range(e.first) && in_range(e.first + e.results - 1)),
          "verify: the results of {} are values %{} and on, program '{}' has {} values",
          e.primitive->name, e.first, program.name, made.size());
    for (int i = 0; i < e.results; ++i) {
      const Type &has = program.type(e.first + i), &by_rule = types[size_of(i)];
      check(alike(has, by_rule), "verify: result %{} of {} is {}, its type rule says {}",
            e.first + i, e.primitive->name, to_string(has), to_string(by_rule));
      made[at(e.first + i)] = true;
    }
    if (e.params)
      for (const ProgramPtr& p : programs_of(*e.params)) verify(*p);
  }
  for (ValueId v : program.outputs) require_made(v, "the return");
}

}  // namespace postern::internal
