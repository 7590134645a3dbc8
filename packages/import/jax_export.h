// What `jax.export.export(...)(...).serialize()` writes: a flatbuffer around a portable artifact.
#pragma once
#include "foreign.h"

namespace postern::internal::foreign {

/// Throws Error.
Foreign read_jax_export(std::string_view bytes, const std::string& name);

}  // namespace postern::internal::foreign
