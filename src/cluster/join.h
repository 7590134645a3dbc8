// The library that carries messages between processes.
#pragma once
#include "cluster/transport.h"

namespace postern::internal::clusters {

/// Returns whether Config::cluster or POSTERN_CLUSTER names one.
bool names_transport();
/// Loads the one that Config::cluster or POSTERN_CLUSTER names and joins its job; null where none
/// is named. Throws PluginError.
const Transport* open_transport();

}  // namespace postern::internal::clusters
