// VHLO's text as StableHLO's.
#pragma once
#include <string>
#include <string_view>

namespace postern::internal::imported {

/// Returns a module that is written in VHLO as StableHLO in MLIR's generic form.
std::string from_vhlo(std::string_view text);

}  // namespace postern::internal::imported
