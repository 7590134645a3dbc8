// VHLO, StableHLO's dialect for keeping: its types and attributes from bytecode to text, and what
// we must know of them.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "bytecode.h"
#include "location.h"
#include "spi.h"

namespace postern::internal::imported {

/// Returns the names of an operation's own attributes in the order in which bytecode keeps them.
/// Throws Error for operations that StableHLO 1.13, which the plug-in speaks, does not have.
std::span<const std::string_view> vhlo_attribute_names(std::string_view operation);

[[noreturn]] void refuse_newer(std::string_view what);

/// Reads extents that follow: "2, ?". They go into `kept` too.
std::string extents_text(ByteReader& in, std::vector<std::int64_t>* kept = nullptr);

/// Returns the type of functions of such lists of types.
std::string vhlo_function(std::string_view inputs, std::string_view outputs);

struct VhloType {
  std::string text, builtin;                 // "!vhlo.tensor_v1<2x!vhlo.f32_v1>", "tensor<2xf32>"
  std::vector<std::size_t> inputs, outputs;  // of functions
  std::vector<std::int64_t> dims;            // of tensors
  std::size_t element_size =
      0;  // of tensors' elements, and of numbers, where their bytes can be written
  bool is_tensor = false, is_token = false;
};

struct VhloAttribute {
  enum class Kind { other, boolean, integer, real, string, array, dictionary, tensor, type, word };
  Kind kind = Kind::other;
  std::string text;  // none of a large constant, see Vhlo::text
  std::string_view
      bytes;  // of strings and tensors; of words (an attribute of StableHLO's own) which it is
  std::size_t type = 0;      // of tensors, numbers and types
  std::int64_t integer = 0;  // of booleans too
  double real = 0;
  std::vector<std::size_t> items;  // of arrays; of dictionaries name, value, name, ...
};

/// What the attributes of these names are in all operations. XLA converts VHLO without looking, and
/// dies of others.
struct VhloExpected {
  std::string_view attributes;
  VhloAttribute::Kind kind;
  std::string_view of = {};                       // numbers' and elements' type; which word
  std::optional<VhloAttribute::Kind> items = {};  // of arrays
  bool or_none = false;                           // or the type that says that there is none
};
const VhloExpected& vhlo_expected(std::string_view attribute);

/// From so many bytes on XLA is handed a constant's memory: see take_weights.
inline constexpr std::size_t large_constant = 1 << 16;

class Vhlo {
 public:
  Vhlo(const Bytecode& code, std::size_t file_size);

  const VhloType& type(std::size_t index);
  const VhloAttribute& attribute(std::size_t index);
  /// Returns its text. That of a large constant is made when it is asked for.
  const std::string& text(std::size_t index);

  /// Returns one of that kind; anything else is refused.
  const VhloAttribute& attribute(std::size_t index, VhloAttribute::Kind kind,
                                 std::string_view what);
  /// Throws Error unless it is what an operation's attribute of that name must be.
  void expect(std::size_t index, std::string_view name);
  /// Returns whether it is the type that stands for an attribute that is not there.
  bool is_none(const VhloAttribute& found);
  /// Names and values of a dictionary.
  std::vector<std::pair<std::string, std::size_t>> dictionary(std::size_t index);
  using Named = std::vector<std::pair<std::string_view, std::size_t>>;
  /// Reads an operation's own attributes. Throws Error unless they are what they must be.
  Named properties(const Operation& op);
  static std::size_t find(const Named& all, std::string_view name);
  /// Converts it to what a host function is given; what it could not read is given as its text.
  Attribute host_attribute(std::size_t index);
  /// Returns the name and the line of a location, as far as it has them.
  Location location(std::size_t index);

 private:
  class Deeper;

  VhloType read_type(std::size_t index);
  void read_tensor_type(VhloType& out, ByteReader& in, bool with_encoding);
  VhloAttribute read_attribute(std::size_t index);
  void read_vhlo(VhloAttribute& out, ByteReader& in);
  void read_builtin(VhloAttribute& out, ByteReader& in);
  void read_items(VhloAttribute& out, ByteReader& in);
  void read_number(VhloAttribute& out, ByteReader& in, bool real);
  void read_tensor(VhloAttribute& out, ByteReader& in);
  std::string tensor_text(const VhloAttribute& tensor);
  const VhloType& next_type(ByteReader& in) { return type(in.index(code_.types.size(), "type")); }
  std::string_view next_string(ByteReader& in) {
    return code_.strings[in.index(code_.strings.size(), "string")];
  }
  std::string list(std::span<const std::size_t> types);
  void spend(std::size_t bytes);
  bool fits(const VhloAttribute& found, VhloAttribute::Kind kind, std::string_view of);

  const Bytecode& code_;
  std::vector<std::optional<VhloType>> types_;
  std::vector<std::optional<VhloAttribute>> attributes_;
  std::size_t budget_;
  int depth_ = 0;
};

}  // namespace postern::internal::imported
