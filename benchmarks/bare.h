// The floor: a program on PJRT's C API as a C programmer would call it, and an FFI handler that
// only copies.
#pragma once
#include <postern/dtype.h>

#include <cstdint>
#include <span>
#include <string>

#include "pjrt/client.h"

namespace bench {

class Bare {
 public:
  /// Compiles StableHLO for one device. Its custom calls to "bench_identity" copy their operand,
  /// those to "bench_look" read its first element.
  explicit Bare(const std::string& stablehlo, int device = 0);

  /// The argument of all later runs.
  void set_argument(postern::DType dtype, std::span<const std::int64_t> dims, const void* data);
  /// Executes `times` times, waits for the result each time, and frees it.
  void run(std::int64_t times);
  /// Does so with the argument's numbers copied from `in` and the result's copied to `out`: the
  /// least that a program of numbers in memory of a caller's can do.
  void run_copying(const void* in, void* out, std::size_t bytes, std::int64_t times);
  /// Does so with an argument that is `in`, used where it is, and copies the result to `out`, by
  /// the functions that are there for it.
  void run_on(postern::DType dtype, std::span<const std::int64_t> dims, const void* in, void* out,
              std::int64_t times);

 private:
  PJRT_Buffer* execute(PJRT_Buffer* argument) const;
  std::size_t device_;
  postern::internal::pjrt::Executable executable_;
  postern::internal::pjrt::Buffer argument_;
};

/// A loop of so many steps, each of which has the bare handler copy f32[4].
std::string identity_loop(std::int64_t steps);

/// The name under which ffi_call finds the handler of "bench_identity".
const char* target_of_copy();

}  // namespace bench
