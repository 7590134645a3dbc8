// Programs from elsewhere: StableHLO text, portable artifacts, what jax.export writes.
#include <postern/library.h>

#include "interpreter.h"
#include "reader.h"

static void load() {
  using namespace postern::internal::imported;
  set_reader({read_any, open_module, operations_in, require_match});
}

POSTERN_LIBRARY("postern_import", "0.1", load)
