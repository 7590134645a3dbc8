// Programs from elsewhere: StableHLO text, portable artifacts, what jax.export writes.
#include <postern/library.h>

#include "foreign.h"

static void load() { postern::internal::foreign::set_reader(postern::internal::foreign::read_any); }

POSTERN_LIBRARY("postern_import", "0.1", load)
