// A library whose load function waits for another thread, which decomposes a matrix.
#include <postern/library.h>
#include <postern/postern.h>

#include <thread>

static void load() {
  std::thread([] { postern::linalg::cholesky(postern::eye<float>(2)).block_until_ready(); }).join();
}

POSTERN_LIBRARY("uses_linalg", "1", load)
