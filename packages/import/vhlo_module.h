// A module of VHLO before it is written: without what has nothing to do here, with barriers where
// XLA must not fold.
#pragma once
#include <set>

#include "portable.h"
#include "vhlo.h"
#include "weights.h"

namespace postern::internal::imported {

/// Returns whether an argument of these attributes is the platform's number.
bool is_platform(Vhlo& vhlo, std::size_t attributes);
/// Returns that number. Throws Error where nobody says which platforms there are.
std::size_t platform_number(const Exported* exported);

struct Prepared {
  std::set<std::string> needed;  // functions that the entry calls; all where there is no entry
  Weights weights;
};
/// Prepares the operations of `code`. Of a branch by platform the one for this platform stays.
/// Throws Error for what XLA must not be given.
Prepared prepare(Bytecode& code, Vhlo& vhlo, const Exported* exported, const std::string& entry);

}  // namespace postern::internal::imported
