// POSTERN_VERSIONS before a function of plain numbers: one version for each width of vector that
// the machine may have, the best chosen when the library is loaded. Results are the same to the
// bit: no version fuses multiplications and additions.
#pragma once
#include <cstdlib>  // tells which C library it is

// Sanitizers come too late for how a version is chosen.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define POSTERN_VERSIONS [[gnu::target_clones("avx2", "default")]]
#else
#define POSTERN_VERSIONS
#endif
