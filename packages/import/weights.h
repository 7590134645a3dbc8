// Large constants of a module as arguments of its functions: XLA is handed their memory, and reads
// no text of them.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "rules.h"
#include "vhlo.h"

namespace postern::internal::imported {

struct Weights {
  std::vector<Tensor> values;                // of the entry's last arguments
  std::map<std::string, std::size_t> added;  // to each function's arguments
};

/// Takes constants of `large_constant` bytes and more out of the functions: their arguments they
/// become, behind those that there are, and the arguments of all that call them. Where a function
/// is more than called, as one that a custom call names, its constants stay. `functions`: callers
/// first.
Weights take_weights(Bytecode& code, Vhlo& vhlo, const std::map<std::string, Operation*>& functions,
                     const std::vector<std::string>& callers_first, const std::string& entry);

}  // namespace postern::internal::imported
