// The operations of a text in MLIR's form: which there are, and inside of what.
#pragma once
#include "mlir_text.h"

namespace postern::internal::imported {

struct TextOperation {
  std::string_view name;         // "stablehlo.add", "func.func", "call"
  std::size_t begins, at, end;   // its results, or itself; its name, perhaps quoted; behind that
  std::size_t limit;             // where it has ended: the next one, or the region's end
  std::size_t region, function;  // where it stands; the func.func (itself, if it is one), or npos
  std::vector<MlirText::Symbol> symbols;  // that it names: a function or target comes first
};
/// What is between braces. The first is the file.
struct TextRegion {
  std::size_t outer, owner;      // a region; an operation, or npos
  std::size_t last;              // operation in it, or npos
  std::size_t from = 0, to = 0;  // its braces
};
struct TextOperations {
  std::vector<TextOperation> all;  // as they stand in the text
  std::vector<TextRegion> regions;
};

/// Throws Error for what XLA's parser dies of, brackets in brackets without end, and for what is
/// not for here: operations of VHLO, and modules for several devices; unless `generic`, functions
/// and custom calls in MLIR's generic form, without which Shardy's constraints are none to see.
TextOperations read_operations(const MlirText& text, bool generic = false);

/// What stands behind the colon of an operation: the types of its operands, and of its results
/// where they are told apart, else the same.
struct TextSignature {
  std::vector<std::string_view> operands, results;
  std::size_t begins = 0, end = 0;  // behind the colon
};
TextSignature signature_of(const MlirText& text, const TextOperation& operation);

/// A value where it is used.
struct TextValue {
  std::size_t from, to;
};
/// The values that the operation names in front of its types, those inside of its regions not.
std::vector<TextValue> operands_of(const MlirText& text, const TextOperation& operation);

}  // namespace postern::internal::imported
