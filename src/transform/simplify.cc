// Simplification in one pass forward (merging) and one backward (dropping).
#include "transform/simplify.h"

#include <algorithm>
#include <unordered_map>

#include "core/primitive.h"

namespace postern::internal {

namespace {

void append_number(std::string& key, std::int64_t value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Equal pure equations become one: operands are renamed first, so that chains merge too.
void merge(Program& program) {
  std::vector<ValueId> same(program.types.size());
  for (std::size_t v = 0; v < same.size(); ++v) same[v] = static_cast<ValueId>(v);
  std::unordered_map<std::string, ValueId> seen;
  std::string key;
  for (Equation& e : program.equations) {
    for (ValueId& v : e.operands) v = same[at(v)];
    if (e.primitive->distinct || effect_of(e) != Effect::pure) continue;
    key.clear();
    append_number(key, reinterpret_cast<std::intptr_t>(e.primitive));
    for (ValueId v : e.operands) append_number(key, v);
    if (e.params) append_key(key, *e.params);
    const auto [found, fresh] = seen.try_emplace(key, e.first);
    if (!fresh)
      for (int i = 0; i < e.results; ++i) same[at(e.first + i)] = found->second + i;
  }
  for (ValueId& v : program.outputs) v = same[at(v)];
}

}  // namespace

bool makes_any(const Equation& e, const std::vector<bool>& marked) {
  const auto first = marked.begin() + e.first;
  return std::find(first, first + e.results, true) != first + e.results;
}

bool is_needed(const Equation& e, const std::vector<bool>& needed) {
  return makes_any(e, needed) || effect_of(e) != Effect::pure;
}

std::vector<bool> needed_values(const Program& program) {
  std::vector<bool> needed(program.types.size());
  for (ValueId v : program.outputs) needed[at(v)] = true;
  for (std::size_t i = program.equations.size(); i-- > 0;) {
    const Equation& e = program.equations[i];
    if (!is_needed(e, needed)) continue;
    for (ValueId v : e.operands) needed[at(v)] = true;
  }
  return needed;
}

std::vector<bool> used_inputs(const Program& program) {
  const std::vector<bool> needed = needed_values(program);
  std::vector<bool> used;
  for (ValueId v : program.inputs) used.push_back(needed[at(v)]);
  return used;
}

ProgramPtr simplify(const Program& program) {
  Program merged = program;
  merge(merged);
  const std::vector<bool> needed = needed_values(merged);
  // Values are numbered anew, without gaps.
  Program out;
  out.name = merged.name;
  out.captures = merged.captures;
  std::vector<ValueId> renamed(merged.types.size(), -1);
  auto take = [&](ValueId v) {
    renamed[at(v)] = static_cast<ValueId>(out.types.size());
    out.types.push_back(std::move(merged.types[at(v)]));
    return renamed[at(v)];
  };
  for (ValueId v : merged.inputs) out.inputs.push_back(take(v));
  for (Equation& e : merged.equations) {
    if (!is_needed(e, needed)) continue;
    for (ValueId& v : e.operands) v = renamed[at(v)];
    const ValueId old = e.first;
    e.first = static_cast<ValueId>(out.types.size());
    for (int r = 0; r < e.results; ++r) take(old + r);
    out.equations.push_back(std::move(e));
  }
  for (ValueId v : merged.outputs) out.outputs.push_back(renamed[at(v)]);
  return std::make_shared<const Program>(std::move(out));
}

}  // namespace postern::internal
