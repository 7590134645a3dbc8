// Programs from elsewhere: StableHLO text, portable artifacts, what jax.export writes.
#include <postern/library.h>

#include "reader.h"

static void load() {
  postern::internal::imported::set_reader(postern::internal::imported::read_any);
}

POSTERN_LIBRARY("postern_import", "0.1", load)
