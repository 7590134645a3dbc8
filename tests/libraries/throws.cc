// A library that fails half-way through.
#include <postern/library.h>

#include <stdexcept>

#include "blocks.h"

static void load() {
  postern::override_block<LibraryScale>(
      {.kernel = [](const LibraryScale&, postern::View<const double> in,
                    postern::View<double> out) { out[0] = in[0] + 1000; }});
  throw std::runtime_error("no licence found");
}

POSTERN_LIBRARY("throws", "1", load)
