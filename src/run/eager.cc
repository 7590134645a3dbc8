// Operations on concrete tensors, one at a time: each compiled once for its parameters and types.
#include <postern/shard.h>

#include "block/overrides.h"
#include "core/cache.h"
#include "core/check.h"
#include "core/fork.h"
#include "core/result_types.h"
#include "run/compiled.h"
#include "run/driven.h"
#include "run/evaluator.h"
#include "run/loop_tape.h"
#include "run/sharded.h"

namespace postern::internal {

namespace {

using run::CompiledProgram;

/// What tells one-equation programs apart.
std::string key_of(const Primitive& primitive, const ParamsPtr& params, TensorSpan operands) {
  std::string key;
  const Primitive* identity = &primitive;
  key.append(reinterpret_cast<const char*>(&identity), sizeof identity);
  if (params) append_key(key, *params);
  // What holds programs may hold blocks, which become what the overrides say.
  if (params && !programs_of(*params).empty()) key += fmt::format("#{}", blocks::generation());
  for (const Tensor& t : operands) {
    key += '|' + to_string(t.type());
    if (t.type().weak) key += 'w';
    if (const Sharding* s = run::sharding_of(t)) key += " " + to_string(*s);
  }
  return key;
}

std::shared_ptr<const CompiledProgram> compile(const Primitive& primitive, const ParamsPtr& params,
                                               TensorSpan operands) {
  Program p;
  p.name = primitive.name;
  Equation e{&primitive, params, {}, 0, 0, {}};
  std::vector<const Type*> types;
  for (const Tensor& t : operands) {
    e.operands.push_back(static_cast<ValueId>(p.types.size()));
    p.inputs.push_back(e.operands.back());
    p.types.push_back(t.type());
    types.push_back(&t.type());
  }
  e.first = static_cast<ValueId>(p.types.size());
  for (Type& t : result_types(primitive, params.get(), {types.data(), types.size()})) {
    p.outputs.push_back(static_cast<ValueId>(p.types.size()));
    p.types.push_back(std::move(t));
    ++e.results;
  }
  p.equations.push_back(std::move(e));
  std::vector<std::optional<Sharding>> on;
  for (const Tensor& t : operands) on.push_back(postern::sharding_of(t));
  auto module = run::lower({primitive.name,
                            std::make_shared<const Program>(std::move(p)),
                            operands.size(),
                            {},
                            {},
                            std::move(on),
                            {}});
  return std::make_shared<const CompiledProgram>(std::move(module), operands.size(), Tensors());
}

}  // namespace

Tensors run::evaluate_equation(const Primitive& primitive, const ParamsPtr& params,
                               TensorSpan operands) {
  refuse_forked();
  run::DrivenRun* const driven = run::DrivenRun::current();
  if (driven) driven->check_going();
  if (primitive.site) return run::fire_now(primitive, params, operands);
  if (primitive.evaluate) return primitive.evaluate({primitive, params}, operands);
  constexpr std::size_t programs_kept = 4096;
  static auto* const cache = new Cache<const CompiledProgram>(programs_kept);
  const auto compiled = cache->find(key_of(primitive, params, operands),
                                    [&] { return compile(primitive, params, operands); });
  Tensors results(compiled->result_count());
  std::vector<const Tensor*> arguments;
  for (const Tensor& t : operands) arguments.push_back(&t);
  if (driven && compiled->calls())
    driven->run_part(*compiled, arguments, results);
  else
    compiled->run(arguments, results);
  run::keep_tapes(arguments, results);
  return results;
}

}  // namespace postern::internal
