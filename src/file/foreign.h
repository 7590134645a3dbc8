// StableHLO text from elsewhere: what it takes and gives, and its custom calls as sites.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/site.h"

namespace postern::file {

struct Foreign {
  std::vector<Type> inputs, outputs;
  std::vector<SitePtr> sites;
  std::string text;  // with the custom calls that are sites made calls of ours
};

/// Reads a module in StableHLO's own form, as JAX's `lower().as_text()` prints it. Custom calls become sites that call the function of the
/// target's name, but for targets that XLA serves itself or for which an FFI handler is registered. `name` is for errors and places. Throws
/// Error: invalid_argument for what is no such module, unimplemented for what a file may say that we cannot run.
Foreign read_stablehlo(std::string_view text, const std::string& name);

}  // namespace postern::file
