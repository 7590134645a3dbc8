// Sharding rules: how a kernel may be cut into parts, as block.h has them.
#pragma once
#include <postern/sharding.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/primitive.h"

namespace postern::internal::blocks {

using Factors = std::vector<std::string>;  // by axis; empty: of one that is never cut

/// A rule, as it was written, or for operands and results of some ranks.
struct ShardingRule {
  std::vector<Factors> operands, results;
  std::vector<std::string> whole, summed;

  bool may_cut(const std::string& factor) const;
};

/// Throws TypeError for what is no rule; `what` has it: "ffi_call 'x'".
ShardingRule parse_sharding(const std::string& what, std::string_view text);
std::string to_string(const ShardingRule& rule);

/// Returns it with a factor for each axis of these. Throws TypeError where their number, ranks or
/// extents do not fit the rule.
ShardingRule fitted(const std::string& what, ShardingRule rule, const Types& operands,
                    const Types& results);

/// Returns the rule for one more axis in front, of the operands that `mapped` marks and all
/// results.
ShardingRule with_axis_in_front(ShardingRule rule, const std::string& factor,
                                const std::vector<bool>& mapped);

/// How a value lies: by axis, the axes of a mesh that cut it.
struct Layout {
  const Mesh* mesh = nullptr;  // null: nothing cuts it, or nobody knows
  std::vector<std::vector<std::string>> axes;

  bool is_cut() const { return mesh != nullptr; }
};

/// What cuts a kernel.
struct KernelCut {
  const Mesh* mesh;
  std::vector<P> in, out;
  std::vector<std::string> summed;                                      // mesh axes
  std::vector<std::pair<std::string, std::vector<std::string>>> along;  // factors

  /// Returns into how many parts a factor is cut.
  std::int64_t parts(const std::string& factor) const;
  /// Returns the type of a part of what has these factors.
  Type part(Type whole, const Factors& factors) const;
};

/// Returns the cut that operands ask for which lie so; none where they are not cut along a factor
/// that may be. Of two that ask for one mesh axis the first has it.
std::optional<KernelCut> cut_of(const ShardingRule& fitted, const Types& operands,
                                const std::vector<Layout>& layouts);

/// Returns whether operands of the one become operands of the other, wider one; and results of the
/// one results of the other.
bool converts(DType from, DType to);
bool converts_back(DType from, DType to);
/// Says which operand does not become what a kernel takes; empty if all do.
std::string refused_conversion(const std::vector<DType>& dtypes, std::span<const Type> operands);
/// Throws TypeError where as many dtypes are not given, or something does not become them.
void check_dtypes(const std::string& what, const std::vector<DType>& operand_dtypes,
                  const Types& operands, const std::vector<DType>& result_dtypes,
                  const Types& results);
/// Calls `f` with the operands in these dtypes; its results as they shall be.
Tensors in_dtypes(const std::vector<DType>& dtypes, TensorSpan operands, const Types& results,
                  const TensorFunction& f);
/// Returns what the operands are when a kernel of these dtypes sees them.
Types with_dtypes(Types types, const std::vector<DType>& dtypes);

}  // namespace postern::internal::blocks
