// Pools of simulators, for who makes the first.
#include <postern/library.h>

#include "calls.h"
#include "spi.h"

static void load() { postern::internal::pools::set_maker(postern::internal::pools::make); }

POSTERN_LIBRARY("postern_pool", "0.1", load)
