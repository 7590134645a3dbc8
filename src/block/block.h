// The primitives behind blocks, and what built-in blocks add to them.
#pragma once
#include "block/overrides.h"
#include "block/sharding_rule.h"
#include "core/primitive.h"
#include "core/site_spec.h"
#include "lower/lowering.h"
#include "transform/split.h"

namespace postern::internal::blocks {

template <class Config>
const Config& config_of(const void* config) {
  return *static_cast<const Config*>(config);
}

/// Rules of a block that knows better than its default: formulas, in ordinary operations and other
/// blocks. Such a block takes operands with any number of leading axes; they all have the same
/// ones.
struct Rules {
  Tensors (*by_default)(const detail::BlockConfig& config, TensorSpan x);
  std::pair<Tensors, Tensors> (*jvp)(const void* config, TensorSpan x, TensorSpan dx);
  /// Cotangents of the operands that are empty in `x`; null where the block is not linear in any.
  Tensors (*transpose)(const void* config, TensorSpan ct, TensorSpan x) = nullptr;
  /// Dead elements of a batch cannot fail or take long; else they become unit matrices.
  bool dead_as_they_are = false;
};

/// One vmap. `mapped` is for the block's operands and for the masks of the levels further in.
struct Level {
  std::int64_t size;
  std::vector<bool> mapped;
  bool masked;
};

/// The equation's operands are the block's, masks of levels, and whatever else `body` needs:
/// captured tensors, then tangents. Its results are the block's, and whatever else `body` gives:
/// tangents, residuals. An override takes the place of the block's own results only.
struct BlockParams {
  std::shared_ptr<const detail::BlockConfig> config;
  ProgramPtr body;            // the default, transformed as the equation was
  Types operands, results;    // of the block as it was written, for one element
  std::vector<Level> levels;  // innermost first
  std::size_t values = 0;     // operands on which the block's own results depend: all but tangents
  const Rules* rules = nullptr;
  int order = 0;  // how many times it was differentiated; an override's vjp is for order 1 alone
  static constexpr int changed = 2;  // order of a derivative whose body is not what jvp made
  std::vector<int> of_operand,
      of_result;  // order 1: whose tangents the last operands and results are
  FieldChain<10> fields(Fields sink) const;

  std::size_t leading() const;  // operands and masks
};
extern const Primitive block_p;

/// A program as one equation.
struct PartParams {
  static constexpr const char* what = "part";
  ProgramPtr body;
};
extern const Primitive part_p;

/// A call of an FFI handler.
struct TargetParams {
  std::shared_ptr<const FfiTarget> target;
  Types results;
  std::optional<VmapMethod> vmap;
  FieldChain<3> fields(Fields sink) const;
};
extern const Primitive target_p, effect_target_p;  // the latter with an effect

/// Returns what an override is chosen by.
Question question(const BlockParams& params, const platforms::Platform* platform);

/// Returns how the override may be cut, for one element; none where it does not say. Throws
/// TypeError for a rule that is none or does not fit.
std::optional<ShardingRule> sharding_of(const BlockParams& params, const Override& override);

/// Returns what an override puts in the place of the block: from its operands and masks to its
/// results. Null: the default is used.
ProgramPtr native_program(const BlockParams& params, const platforms::Platform* platform);
/// Returns what this one puts there.
ProgramPtr program_of(const BlockParams& params, const Override& override);

/// Returns the text of a kept function that does what an override does here, with sites from number
/// `first_site` on; none: it stays as it is.
std::optional<Module> native_function(const Module::Kept& kept, const platforms::Platform& platform,
                                      std::size_t first_site);

/// Returns `p` for a batch: the inputs that `level` maps have an axis in front, then comes the mask
/// if there is one; so do all outputs.
ProgramPtr batched(const Program& p, const Level& level);

/// The part of an override's own derivative that comes after its forward rule: tangents to tangents
/// by the default, cotangents by the override.
struct OwnParams {
  ProgramPtr push;      // known inputs of the block's body, tangents -> tangents
  ProgramPtr backward;  // residuals, cotangents of all results -> cotangents of the operands that
                        // have tangents
  std::size_t residuals;
  std::vector<int> of_result;  // by result of push
  Types results;               // all of the block's, batched
  auto fields(Fields sink) const {
    return sink.field("push", push)
        .field("backward", backward)
        .left_out(residuals)  // the other inputs of `backward` are cotangents of all results
        .hidden("of_result", of_result)
        .hidden("results", results);
  }
};
extern const Primitive own_p;

/// Splits by the override's own derivative where there is one that can be used.
bool split_own(const BlockParams& params, TensorSpan x, Primitive::SplitResult& out);

/// Binds a block whose default config and types determine; it is traced once for each.
Tensors bind_cached(const detail::BlockConfig& config, const Rules* rules,
                    const TensorFunction& by_default, TensorSpan x);
/// Binds one so that has rules.
Tensors bind_cached(const detail::BlockConfig& config, const Rules& rules, TensorSpan x);

}  // namespace postern::internal::blocks

template <>
struct postern::internal::Described<postern::internal::blocks::Level> {
  using L = blocks::Level;
  static constexpr auto fields =
      std::tuple(field("size", &L::size), field("mapped", &L::mapped), field("masked", &L::masked));
};

/// Of a block as it was written. Those that a derivative made are not kept as blocks.
template <>
struct postern::internal::Described<postern::internal::blocks::BlockParams> {
  using B = blocks::BlockParams;
  static constexpr auto fields = std::tuple(
      transient("config", &B::config),  // a file has its name and attributes
      transient("body", &B::body),      // the function of the module
      field("operands", &B::operands), field("results", &B::results), field("levels", &B::levels),
      transient("values", &B::values), transient("rules", &B::rules), transient("order", &B::order),
      transient("of_operand", &B::of_operand), transient("of_result", &B::of_result));
};
