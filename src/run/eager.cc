// Operations on concrete tensors, one at a time: each compiled once for its parameters and types.
#include <postern/shard.h>

#include <list>
#include <mutex>
#include <unordered_map>

#include "block/registry.h"
#include "core/check.h"
#include "core/fork.h"
#include "core/result_types.h"
#include "run/compiled.h"
#include "run/driven.h"
#include "run/sharded.h"
#include "trace/trace.h"

namespace postern {

namespace {

using run::CompiledProgram;

/// A bounded cache of one-equation programs; the least recently used goes first.
class OperationCache {
 public:
  std::shared_ptr<const CompiledProgram> find(const Primitive& primitive, const ParamsPtr& params,
                                              std::span<const Tensor> operands) {
    std::string key;
    const Primitive* identity = &primitive;
    key.append(reinterpret_cast<const char*>(&identity), sizeof identity);
    if (params) append_key(key, *params);
    // What holds programs may hold blocks, which become what the overrides say.
    if (params && !programs_of(*params).empty()) key += fmt::format("#{}", blocks::generation());
    for (const Tensor& t : operands) {
      key += fmt::format("|{}{}", to_string(t.type()), t.type().weak ? "w" : "");
      if (const Sharding* s = run::sharding_of(t)) key += " " + to_string(*s);
    }
    std::scoped_lock lock(guard_);
    if (const auto found = entries_.find(key); found != entries_.end()) {
      order_.splice(order_.begin(), order_, found->second.second);
      return found->second.first;
    }
    // Compiled under the lock: threads that want the same operation wait for one compilation.
    auto compiled = compile(primitive, params, operands);
    order_.push_front(key);
    entries_.emplace(key, std::pair{compiled, order_.begin()});
    if (entries_.size() > capacity) {
      entries_.erase(order_.back());
      order_.pop_back();
    }
    return compiled;
  }

 private:
  static std::shared_ptr<const CompiledProgram> compile(const Primitive& primitive,
                                                        const ParamsPtr& params,
                                                        std::span<const Tensor> operands) {
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

  static constexpr std::size_t capacity = 4096;
  std::mutex guard_;
  std::list<std::string> order_;
  std::unordered_map<std::string, std::pair<std::shared_ptr<const CompiledProgram>,
                                            std::list<std::string>::iterator>>
      entries_;
};

}  // namespace

Tensors evaluate_now(const Primitive& primitive, const ParamsPtr& params,
                     std::span<const Tensor> operands) {
  refuse_forked();
  run::DrivenRun* const driven = run::DrivenRun::current();
  if (driven) driven->check_going();
  if (primitive.site) return run::fire_now(primitive, params, operands);
  if (primitive.evaluate) return primitive.evaluate({primitive, params}, operands);
  static OperationCache* const cache = new OperationCache;
  const auto compiled = cache->find(primitive, params, operands);
  Tensors results(compiled->result_count());
  std::vector<const Tensor*> arguments;
  for (const Tensor& t : operands) arguments.push_back(&t);
  if (driven && compiled->calls())
    driven->run_part(*compiled, arguments, results);
  else
    compiled->run(arguments, results);
  return results;
}

}  // namespace postern
