// A library that loads itself.
#include <postern/library.h>

#include <string>

static void load() {
  postern::load_library(std::string(POSTERN_TEST_LIBRARIES) + "/asks_for_itself.so");
}

POSTERN_LIBRARY("asks_for_itself", "1", load)
