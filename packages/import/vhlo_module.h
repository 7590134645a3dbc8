// A module of VHLO before it is written: without what has nothing to do here, with barriers where
// XLA must not fold.
#pragma once
#include <set>

#include "portable.h"
#include "vhlo.h"

namespace postern::internal::imported {

/// Returns whether an argument of these attributes is the platform's number.
bool is_platform(Vhlo& vhlo, std::size_t attributes);
/// Returns that number. Throws Error where nobody says which platforms there are.
std::size_t platform_number(const Exported* exported);

/// Prepares the operations of `code`. Of a branch by platform the one for this platform stays.
/// Returns the functions that @main needs, all that there are if it has no @main. Throws Error for
/// what XLA must not be given.
std::set<std::string> prepare(Bytecode& code, Vhlo& vhlo, const Exported* exported);

}  // namespace postern::internal::imported
