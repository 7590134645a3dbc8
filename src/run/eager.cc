// Operations on concrete tensors, one at a time: each compiled once for its parameters and types.
#include <postern/shard.h>

#include <chrono>

#include "block/overrides.h"
#include "core/cache.h"
#include "core/check.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/once.h"
#include "core/result_types.h"
#include "host/float_state.h"
#include "host/timeline.h"
#include "run/array.h"
#include "run/compiled.h"
#include "run/evaluator.h"
#include "run/interpreted.h"
#include "run/residual_store.h"
#include "run/sharded.h"

namespace postern::internal {

namespace {

using run::CompiledProgram;

/// Returns what tells one-equation programs apart.
std::string key_of(const Primitive& primitive, const ParamsPtr& params, TensorSpan operands) {
  std::string key;
  const Primitive* identity = &primitive;
  key.append(reinterpret_cast<const char*>(&identity), sizeof identity);
  if (params) append_key(key, *params);
  // Programs inside may hold blocks, which become what the overrides say.
  if (params && !programs_of(*params).empty()) key += fmt::format("#{}", blocks::generation());
  for (const Tensor& t : operands) {
    key += '|' + to_string(t.type());
    if (t.type().weak) key += 'w';
    if (const Sharding* s = run::sharding_of(t)) key += " " + to_string(*s);
  }
  if (run::several_platforms) key += fmt::format("@{}", run::Runtime::get().here().number);
  return key;
}

std::shared_ptr<const CompiledProgram> compile(const Primitive& primitive, const ParamsPtr& params,
                                               TensorSpan operands) {
  if (log_has("compiles")) {
    std::vector<std::string> of;
    for (const Tensor& t : operands) of.push_back(to_string(t.type()));
    log_line(fmt::format("{} of {} outside of jit compiles", primitive.name, fmt::join(of, ", ")));
  }
  Program p;
  p.name = primitive.name;
  Equation e;
  e.primitive = &primitive;
  e.params = params;
  e.results = 0;
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
  run::Lowerable lowerable;
  lowerable.name = std::string(host::timeline::operation_prefix) + primitive.name;
  lowerable.program = std::make_shared<const Program>(std::move(p));
  lowerable.arguments = operands.size();
  for (const Tensor& t : operands) lowerable.arguments_on.push_back(postern::sharding_of(t));
  return std::make_shared<const CompiledProgram>(run::lower(lowerable), operands.size(), Tensors());
}

/// What is known of one kind of operation.
struct Known {
  std::atomic<std::int64_t> on_host{0};  // elements that the host was asked for
  std::atomic<bool> is_compiled{false};
  Once once;
  std::shared_ptr<const CompiledProgram> program;
};

// The host makes `few_elements` without asking whether the operation is compiled, and until it has
// made `most_on_host` of one kind: to compile takes longer than these and the wait for operands.
constexpr std::int64_t few_elements = 4096, most_on_host = 1 << 22;
constexpr auto longest_wait = std::chrono::milliseconds(20);

/// Returns the elements, if they are in the host's memory and nobody takes them; else null. Waits
/// for XLA to make them, but not for a run that calls: nobody knows when that ends.
const void* settled_bytes(const Tensor& tensor, std::shared_ptr<const void>& keep,
                          std::chrono::milliseconds patience) {
  const detail::Value& value = *detail::Access::value(tensor);
  if (is_packed(value.type.dtype) || value.donated.load()) return nullptr;
  if (value.kind == detail::Value::Kind::host)
    return static_cast<const detail::HostValue&>(value).data.get();
  const run::DeviceValue* const array = run::as_device_value(&value);
  if (!array || array->placed || array->device != 0 || !array->buffer.is_on_cpu()) return nullptr;
  if (!array->is_ready()) {
    if (array->run || !array->after.empty() || array->targets) return nullptr;  // it may call
    const pjrt::Event ready = array->buffer.ready();
    if (!ready.is_ready() && (patience.count() == 0 || !ready.wait_for(patience))) return nullptr;
  }
  return run::host_view(tensor, keep);
}

/// One operation as the host makes it, by the primitive's rule `on_host`.
class OnHost {
 public:
  OnHost(const Primitive& primitive, const ParamsPtr& params, TensorSpan operands)
      : primitive_(primitive), params_(params), operands_(operands) {
    if (!primitive.on_host || run::default_device() != 0) return;
    for (const Tensor& t : operands) types_.push_back(&t.type());
    made_ = result_types(primitive, params.get(), {types_.data(), types_.size()});
    for (const Type* t : types_) elements_ = std::max(elements_, t->size());
    for (const Type& t : made_) elements_ = std::max(elements_, t.size());
  }

  std::int64_t elements() const { return elements_; }

  /// Returns the results; none where XLA must make them: without a rule, or one that knows these
  /// elements, or where operands are elsewhere or still not there after so long.
  Tensors make(std::chrono::milliseconds patience) const {
    if (made_.empty() || is_packed(made_[0].dtype)) return {};
    std::vector<std::shared_ptr<const void>> keep(operands_.size());
    std::vector<const void*> from;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      from.push_back(settled_bytes(operands_[i], keep[i], patience));
      if (!from.back()) return {};
    }
    Tensors results;
    std::vector<void*> to;
    for (const Type& t : made_) {
      std::shared_ptr<void> bytes = detail::aligned_bytes(t.byte_size());
      to.push_back(bytes.get());
      results.push_back(
          detail::Access::make(std::make_shared<detail::HostValue>(t, std::move(bytes))));
    }
    const host::FloatScope as_compiled{host::FloatState{}};
    const HostArrays arrays{{types_.data(), types_.size()}, from, made_, to};
    if (made_[0].size() > 0 && !primitive_.on_host(params_.get(), arrays)) return {};
    return results;
  }

 private:
  const Primitive& primitive_;
  const ParamsPtr& params_;
  const TensorSpan operands_;
  std::vector<const Type*> types_;
  Types made_;
  std::int64_t elements_ = 0;
};

/// Has the host make the results while few of this kind have been made, else runs it compiled.
Tensors results_of_kind(const Primitive& primitive, const ParamsPtr& params, TensorSpan operands,
                        const OnHost& on_host, std::span<const Tensor* const> arguments) {
  constexpr std::size_t kinds_kept = 4096;
  static auto* const cache = new Cache<Known>(kinds_kept);
  const auto known =
      cache->find(key_of(primitive, params, operands), [] { return std::make_shared<Known>(); });
  const std::int64_t elements = on_host.elements();
  if (!known->is_compiled.load() && known->on_host.fetch_add(elements) + elements <= most_on_host)
    if (Tensors results = on_host.make(longest_wait); !results.empty()) return results;
  known->once([&] { known->program = compile(primitive, params, operands); });
  known->is_compiled = true;
  Tensors results(known->program->result_count());
  run::InterpretedRun* const interpreted = run::InterpretedRun::current();
  if (interpreted && known->program->calls())
    interpreted->run_part(*known->program, arguments, results);
  else
    known->program->run(arguments, results);
  return results;
}

}  // namespace

Tensors run::evaluate_equation(const Primitive& primitive, const ParamsPtr& params,
                               TensorSpan operands) {
  refuse_forked();
  if (auto* const interpreted = run::InterpretedRun::current()) interpreted->check_going();
  if (primitive.site) return run::invoke_now(primitive, params, operands);
  std::vector<const Tensor*> arguments;
  for (const Tensor& t : operands) arguments.push_back(&t);
  const run::AtDevice there(arguments);
  if (primitive.evaluate) return primitive.evaluate({primitive, params}, operands);
  if (primitive.transparent && !platforms::used_here().calls_back)  // XLA cannot enter its sites
    if (const ProgramPtr body = programs_of(*params)[0]; has_site(*body))
      return internal::apply(*body, operands);
  const OnHost on_host(primitive, params, operands);
  Tensors results;
  if (on_host.elements() <= few_elements) results = on_host.make(std::chrono::milliseconds(0));
  if (results.empty()) results = results_of_kind(primitive, params, operands, on_host, arguments);
  run::keep_owned(arguments, results);
  return results;
}

}  // namespace postern::internal
