// MLIR's bytecode: its tables and its operations, as they are in the file. What they mean is for
// their dialects to say (vhlo.h).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spi.h"

namespace postern::internal::imported {

/// Of files that nobody vouches for: whatever lies outside of the bytes or is out of range throws
/// Error.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  std::size_t left() const { return bytes_.size(); }
  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1).front()); }
  std::string_view take(std::uint64_t count);
  std::uint64_t number();
  std::int64_t signed_number();
  /// Reads how many things follow; each takes a byte at least.
  std::size_t count();
  /// Reads a number below `size`, which is of what `what` says.
  std::size_t index(std::size_t size, std::string_view what);

 private:
  std::string_view bytes_;
};

/// Refuses bytes that end before a length says.
[[noreturn]] void refuse_cut(std::string_view why);
/// Refuses what contradicts itself, by whoever's mistake.
[[noreturn]] void refuse_damaged(std::string_view why);

struct Operation;
struct Block {
  std::vector<std::size_t> arguments;  // values
  std::vector<Operation> operations;
};
struct Operation {
  static constexpr auto no_location = static_cast<std::size_t>(-1);
  std::size_t name = 0, location = no_location;       // of Bytecode::operations, of attributes
  std::optional<std::size_t> attributes, properties;  // of attributes, of properties
  std::vector<std::size_t> operands, results;         // values
  std::vector<std::vector<Block>> regions;
};

struct Bytecode {
  /// A type or attribute, in the encoding of its dialect or (`custom` is false) as text.
  struct Entry {
    std::string_view dialect;
    bool custom = false;
    std::string_view bytes;
  };
  std::string_view producer;
  std::vector<std::string_view> strings, properties;
  std::vector<std::string> operations;  // "vhlo.add_v1"
  std::vector<Entry> attributes, types;
  std::vector<std::size_t>
      value_types;  // by value: each has a number of its own in the whole module
  Block top;
};

inline constexpr std::string_view bytecode_magic = "ML\xefR";

/// Reads it; the parts point into `bytes`.
Bytecode read_bytecode(std::string_view bytes);

}  // namespace postern::internal::imported
