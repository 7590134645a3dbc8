// Portable artifacts: modules of VHLO in MLIR's bytecode, as `jax.export` and StableHLO's tools
// write them.
#pragma once
#include "reader.h"

namespace postern::internal::imported {

/// What stands around a module about the function it was made of.
struct Exported {
  std::vector<Type> inputs;
  std::vector<std::string> input_names, output_names;
  std::vector<int> kept;               // those that the module takes
  std::vector<std::string> platforms;  // by the number that the module may be given
};

/// Returns the module as text, which XLA reads, with its custom calls made sites. Throws Error.
Imported read_portable(std::string_view bytes, const std::string& name, const std::string& entry,
                       const Exported* exported = nullptr);

}  // namespace postern::internal::imported
