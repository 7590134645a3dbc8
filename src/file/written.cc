// Operations that are known by their text alone: as functions of the module, with no rules but to
// run.
#include <algorithm>

#include "block/target.h"
#include "core/check.h"
#include "file/import.h"
#include "lower/lowering.h"
#include "ops/family.h"
#include "platform/platform.h"

namespace postern::internal::imported {

namespace {

struct WrittenParams {
  std::string name, function;
  std::vector<Type> results;
  std::vector<std::string> handlers;
  Effect effect;
  auto fields(Fields sink) const {
    return sink.field("name", name)
        .hidden("function", function)
        .field("results", results)
        .hidden("handlers", handlers)
        .hidden("effect", static_cast<int>(effect));
  }
};

Types written_type(const Params* params, TypeSpan) { return as<WrittenParams>(*params).results; }
Effect written_effect(const Params* params) { return as<WrittenParams>(*params).effect; }

Jvp written_jvp(const Op& op, TensorSpan x, TensorSpan) {
  const auto& p = op.as<WrittenParams>();
  if (std::ranges::any_of(p.results, is_differentiable, &Type::dtype))
    throw_type_error(
        fmt::format("{}: it is known by its text alone, and has no derivative", p.name));
  return {bind_n(op.primitive, op.params, x), Tensors(p.results.size())};
}

Batched written_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                      const Tensor& mask) {
  const auto& p = op.as<WrittenParams>();
  return blocks::one_by_one(op, p.results, x, axes, size,
                            p.effect == Effect::pure ? Tensor() : mask);
}

void written_lower(Lowering& out, const Equation& e) {
  const auto& p = as<WrittenParams>(*e.params);
  if (const platforms::Platform* const platform = platforms::lowered_for(out))
    for (const std::string& handler : p.handlers)
      blocks::handler_access.require(handler, *platform);
  std::vector<Type> inputs;
  for (std::size_t i = 0; i < e.operands.size(); ++i) inputs.push_back(out.operand_type(e, i));
  const std::string name = out.written_function(p.function, placeholder);
  out.define_all(e, out.called(name, out.operands(e), inputs, p.results));
}

constexpr Primitive written_p{.name = "stablehlo",
                              .type = written_type,
                              .jvp = written_jvp,
                              .batch = written_batch,
                              .lower = written_lower,
                              .effect = written_effect};

}  // namespace

std::vector<Tensor> written(const WrittenOperation& operation, std::span<const Tensor> operands) {
  return bind_n(written_p,
                make_params(WrittenParams{operation.name, operation.function, operation.results,
                                          operation.handlers, operation.effect}),
                operands);
}

}  // namespace postern::internal::imported
