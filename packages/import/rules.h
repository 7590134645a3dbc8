// What XLA must not be given, whichever way a program is written. Operations are named without
// dialect and version here: "add".
#pragma once
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace postern::internal::imported {

/// How often a body names a function, and in how many regions of one another at most.
struct Calls {
  std::size_t count = 0, depth = 0;
  void add(std::size_t at_depth);
};
/// By function, those that its body names.
using CallGraph = std::map<std::string, std::map<std::string, Calls, std::less<>>, std::less<>>;
/// The functions, callers before those that they call. XLA writes each call's body in its place, as
/// the interpreter does. So throws Error where functions call themselves, which would never end,
/// and where calls are too deep in one another or too many, as each is made wherever its caller is.
std::vector<std::string> callers_first(const CallGraph& calls);

/// Without dialect and version: of "stablehlo.add", "vhlo.add_v1".
std::string_view bare_name(std::string_view operation);

/// Throws Error for what XLA ends the process over, waits for without end, or gets wrong in silence
/// on one device. Types are as "tensor<2xf32>".
void require_possible(std::string_view name, std::span<const std::string_view> operands,
                      std::span<const std::string_view> results);
/// Returns whether that depends on the types.
bool types_matter(std::string_view name);

/// XLA applies these operations' bodies to elements, and ends the process over much of what they
/// may hold: loops, other such bodies, whatever calls.
bool applies_bodies(std::string_view name);

/// What stands in such bodies, also by way of functions that they call.
class AppliedBodies {
 public:
  /// An operation of a function. `target`: of custom calls. `where` is for who asks.
  void holds(const std::string& function, bool applied, std::string_view name,
             std::string_view target, std::size_t where);
  /// `applied` says whether the call stands in such a body.
  void calls(bool applied, const std::string& callee);
  struct Found {
    std::string why;
    std::size_t where;
  };
  /// Returns what has no place in one.
  std::optional<Found> refused(const CallGraph& calls) const;

 private:
  std::optional<Found> in_body_;        // what stands in a body itself
  std::map<std::string, Found> found_;  // by function
  std::set<std::string> called_;
};

/// Returns whether an operation must not see what its operands are: XLA's folding of it is not what
/// it computes when the program runs. `first`: its first operand's type; `constants`: whether all
/// of them are known. As in Lowering::folds_wrongly.
bool folds_wrongly(std::string_view name, std::string_view first, bool constants);
/// The same numbers in another shape: what is made of constants is one.
bool moves_only(std::string_view name);
/// Takes shapes as operands, which XLA must find to be constants: where such operations are,
/// integers are folded.
bool takes_shapes(std::string_view name);
bool is_integer_type(std::string_view type);

/// XLA lays arrays out anew by their strides in bytes, and reads what is no number where elements
/// are smaller: it fails over, or ends the process. These operations do so: they move bytes.
bool moves_axes(std::string_view name);
/// Returns, of an array with elements of less than a byte and axes that may be moved, the type with
/// bytes in their place; empty for all other types.
std::string in_bytes(std::string_view type);

}  // namespace postern::internal::imported
