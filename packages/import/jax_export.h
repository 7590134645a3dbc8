// What `jax.export.export(...)(...).serialize()` writes: a flatbuffer around a portable artifact.
#pragma once
#include "reader.h"

namespace postern::internal::imported {

/// Throws Error.
Imported read_jax_export(std::string_view bytes, const std::string& name);

}  // namespace postern::internal::imported
