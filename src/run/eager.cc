// Operations on concrete tensors, one at a time: each compiled once for its parameters and types.
#include <postern/shard.h>

#include <list>
#include <mutex>
#include <unordered_map>

#include "block/registry.h"
#include "core/check.h"
#include "host/fire.h"
#include "host/registry.h"
#include "host/tape.h"
#include "run/array.h"
#include "run/compiled.h"
#include "run/sharded.h"
#include "trace/trace.h"

namespace postern {

namespace {

using run::CompiledProgram;

/// A bounded cache of one-equation programs; the least recently used goes first.
class OperationCache {
 public:
  std::shared_ptr<const CompiledProgram> find(const Primitive& primitive, const ParamsPtr& params, std::span<const Tensor> operands) {
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
  static std::shared_ptr<const CompiledProgram> compile(const Primitive& primitive, const ParamsPtr& params,
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
    for (Type& t : primitive.type(params.get(), {types.data(), types.size()})) {
      p.outputs.push_back(static_cast<ValueId>(p.types.size()));
      p.types.push_back(std::move(t));
      ++e.results;
    }
    p.equations.push_back(std::move(e));
    std::vector<std::optional<Sharding>> on;
    for (const Tensor& t : operands) on.push_back(postern::sharding_of(t));
    auto module = run::lower({primitive.name, std::make_shared<const Program>(std::move(p)), operands.size(), {}, {}, std::move(on), {}});
    return std::make_shared<const CompiledProgram>(std::move(module), operands.size(), Tensors());
  }

  static constexpr std::size_t capacity = 4096;
  std::mutex guard_;
  std::list<std::string> order_;
  std::unordered_map<std::string, std::pair<std::shared_ptr<const CompiledProgram>, std::list<std::string>::iterator>> entries_;
};

/// Where a call outside of programs is said to be: where its first operand is that was put somewhere.
int device_of(const SiteSpec& spec, std::span<const Tensor> operands) {
  if (spec.device >= 0) {
    run::check_device(spec.device);
    return spec.device;
  }
  const int otherwise = run::device_for({});
  for (const Tensor& t : operands) {
    const Tensor* const one = &t;
    if (const int device = run::device_for({&one, 1}); device != otherwise) return device;
  }
  return otherwise;
}

/// A call or tap outside every program: the function runs here and now, on this thread, with the checks of the compiled path.
Tensors fire_now(const Primitive& primitive, const ParamsPtr& params, std::span<const Tensor> operands) {
  const SitePtr& spec = as<SiteParams>(*params).site;
  const int device = device_of(*spec, operands);
  const host::Nesting* nested = host::nesting();
  const int limit = run::Runtime::get().config().max_reentry;
  if (nested && nested->depth >= limit)
    throw CallbackError(
        ErrorCode::reentry,
        fmt::format("{} is nested {} levels deep, {} are allowed (Config::max_reentry)", host::describe(*spec), nested->depth, limit),
        Site{spec->name, spec->place}, device, nullptr);
  auto sites = std::make_shared<std::vector<host::HostSite>>();
  sites->emplace_back(spec, spec->function);
  const std::shared_ptr<host::Tape> tape = host::current_tape();
  if (!spec->function && host::enters_functions(tape)) *sites = host::resolve_names(*sites);

  std::vector<const Type*> types;
  std::vector<std::shared_ptr<const void>> keep;
  std::vector<void*> buffers;
  for (const Tensor& t : operands) {
    types.push_back(&t.type());
    keep.push_back(run::host_bytes(t, "an operand"));
    buffers.push_back(const_cast<void*>(keep.back().get()));
  }
  Tensors results;
  if (spec->kind == SiteSpec::Kind::tap) {
    results.assign(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(spec->operands.size()));
  } else {
    for (const Type& t : primitive.type(params.get(), {types.data(), types.size()})) {
      std::shared_ptr<void> bytes = detail::aligned_bytes(t.byte_size());
      buffers.push_back(bytes.get());
      results.push_back(detail::Access::make(std::make_shared<detail::HostValue>(t, std::move(bytes))));
    }
  }
  host::RunState state;
  state.sites = sites->data();
  state.owner = sites;
  state.site_count = 1;
  state.number = run::Runtime::get().next_run();
  state.device = device;
  state.tape = tape;
  if (tape) state.taped_run = tape->begin_run(spec->name);
  PlaceScope::Replace at({});  // what the function does has places of its own
  if (!host::fire(state, sites->front(), buffers.data(), device) || !host::results_fit(state, sites->front(), buffers.data(), device))
    state.rethrow();
  return results;
}

}  // namespace

Tensors evaluate_now(const Primitive& primitive, const ParamsPtr& params, std::span<const Tensor> operands) {
  if (primitive.site) return fire_now(primitive, params, operands);
  if (primitive.evaluate) return primitive.evaluate({primitive, params}, operands);
  static OperationCache* const cache = new OperationCache;
  const auto compiled = cache->find(primitive, params, operands);
  Tensors results(compiled->result_count());
  std::vector<const Tensor*> arguments;
  for (const Tensor& t : operands) arguments.push_back(&t);
  compiled->run(arguments, results);
  return results;
}

}  // namespace postern
