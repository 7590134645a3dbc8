// Host functions of the library's own, which its sites enter.
#pragma once
#include <postern/attributes.h>
#include <postern/host.h>

#include <memory>
#include <string_view>

namespace postern::internal {

/// Rooms further down have them: `src/wiring.cc` names them.
struct OwnFunctions {
  /// That of a call of site/residual_store.h; null for all other names.
  std::shared_ptr<const detail::HostFunction> (*of_residuals)(std::string_view name);
  /// That of a collective over processes with these attributes (shard/processes.h), for which it
  /// throws TypeError if they are none.
  std::shared_ptr<const detail::HostFunction> (*of_processes)(const Attributes& attributes);
};
extern const OwnFunctions own_functions;

}  // namespace postern::internal
