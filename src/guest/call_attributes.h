// What a custom call of another XLA asks for, by its attributes, and the site that this makes.
#pragma once
#include <postern/attributes.h>
#include <postern/sharding.h>

#include <string>
#include <vector>

#include "core/site_spec.h"

namespace postern::internal::guest {

/// The target of those custom calls.
inline constexpr const char* target = "postern_guest";
/// Attributes that begin so are the function's own.
inline constexpr std::string_view own_prefix = "with_";

/// The attributes, in any order; others are refused:
///
///   function    string: of register_function
///   name        string: of the site, in errors and what functions are told
///   file, line  string, i64: in the user's source
///   kind        string: "call"; "tap", whose results are none; or "async", a tap that is not
///               waited for
///   timeout     i64: nanoseconds; 0: none
///   every       i64: invocations 0, every, 2 * every, ... of the place reach a tap's function
///   levels      string: batch levels, outermost first, as "3:TF,2:TT": sizes, and which operands
///               have them in front; the function is entered for each element
///   parallel    i64: not 0: for many elements at a time
///   paths       string: the operands' names, a line for each
///   transforms  string: of a tap that shows derivatives, as "jvp,transpose"
///   kept        i64: not 0: the function is the one that has the name when the program is loaded,
///               as long as the program is, also when the name is gone
///   axes        string: of the mesh around the call, as "2 x", a line for each: size and name. The
///               last operand, a ui32, is then the position on the mesh, and not the function's
///   meets       i64: not 0: so many devices make the call with the same operands; the function is
///               entered once, as on the device `leader` (i64), and what comes of it is all
///               devices'
///   with_...    any: the function's own attributes, without the prefix
struct CallAttributes {
  std::string function, name, file, kind, levels, paths, transforms, axes;
  std::int64_t line = 0, timeout = 0, every = 1, parallel = 0, kept = 0, meets = 0, leader = 0;
  Attributes own;

  /// Takes one attribute. Throws Error for one that is not in the list, or is of another type.
  void set(std::string_view attribute, const Attribute& value);
  /// Throws Error unless all that there must be is there, and in range.
  void require() const;
  /// Returns all of it as text: the same for calls that ask for the same.
  std::string key() const;

  bool on_mesh() const { return !axes.empty(); }
  std::vector<MeshAxis> mesh_axes() const;
  /// Returns the coordinates of that position, by axis. Throws Error where the mesh has none.
  std::vector<std::int64_t> coordinates(std::int64_t position) const;
};

/// Returns the site of a call with buffers of these types, without tokens. Throws Error where the
/// batch levels do not fit them, or the position on a mesh is missing.
std::shared_ptr<SiteSpec> spec_of(const CallAttributes& attributes, std::vector<Type> operands,
                                  std::vector<Type> results);

}  // namespace postern::internal::guest
