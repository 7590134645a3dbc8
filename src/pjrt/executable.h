// A compiled program, loaded on its devices. An executable must go before its client.
#pragma once
#include "pjrt/device.h"
#include "pjrt/event.h"
#include "pjrt/ffi.h"
#include "pjrt/owned.h"

#include <postern/dtype.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace postern::internal::pjrt {

/// How to start a run; the defaults are an ordinary one.
struct Launch {
  const ExecuteContext* context = nullptr;
  const Device* device = nullptr;  // where to run a portable executable
  Event* complete = nullptr;       // out: ready when the whole run is, also without results
  int number = 0;  // what handlers get as the run's id; two runs on several devices at a time must
                   // not have the same, or their collectives mix
  std::span<const std::int64_t> keep =
      {};  // arguments that must not be donated though the program allows it
};

struct MemoryStats {
  std::int64_t code = 0, arguments = 0, outputs = 0, aliased = 0, temporaries = 0,
               peak = 0;  // bytes
};

struct OptimizedProgram {
  std::string format;  // "hlo", "hlo_with_config": serialized protobufs; "mlir"
  std::string code;
};

/// XLA's own way to say where the parts of an array are (OpSharding in xla_data.proto): the
/// devices' numbers in the program, tile by tile.
struct OutputSharding {
  enum class Kind { replicated, tiled, other } kind = Kind::replicated;
  std::vector<std::int64_t> tiles;  // by axis, then perhaps the number of copies of each tile
  bool copies = false;
  std::vector<std::int64_t> devices;
};

class Executable {
 public:
  Executable() = default;
  /// Takes ownership of `handle`; `compiled`: by this client, not loaded from bytes.
  Executable(const PJRT_Api* api, PJRT_LoadedExecutable* handle, bool compiled);

  explicit operator bool() const { return loaded_ != nullptr; }
  PJRT_LoadedExecutable* handle() const { return loaded_.get(); }
  const PJRT_Api* api() const { return api_; }

  /// Runs on one device. `outputs` has num_outputs() places; they are filled with buffers that the
  /// caller then owns (wrap each in a Buffer), which may still be under way. Allocates nothing.
  /// Throws Error, then `outputs` is as before; a failure inside a run that has begun is reported
  /// by the events instead: those of the outputs keep its code, `complete` says internal. XLA:CPU
  /// checks the sizes of the arguments, not their dtypes.
  void execute(std::span<PJRT_Buffer* const> arguments, std::span<PJRT_Buffer*> outputs,
               const Launch& launch = {}) const;

  /// Runs on all devices of the executable. Both lists are device after device; `complete` is empty
  /// or has one event for each device. `launch.device` and `launch.complete` must be null.
  void execute_multi(std::size_t num_devices, std::span<PJRT_Buffer* const> arguments,
                     std::span<PJRT_Buffer*> outputs, std::span<Event> complete,
                     const Launch& launch = {}) const;

  std::size_t num_outputs() const { return num_outputs_; }  // for each device
  std::vector<DType> output_dtypes() const;
  std::vector<std::vector<std::int64_t>> output_dims() const;  // for each device
  /// Returns the devices that it was compiled for; empty for a portable executable.
  std::vector<Device> devices() const;

  /// Serializes it for Client::deserialize of the same plug-in's build. Throws unimplemented for
  /// one that came from there itself: XLA:CPU writes it without its code, and says so only when
  /// that is run.
  std::string serialize() const;
  OptimizedProgram optimized_program() const;
  /// Returns how XLA spread the results of a partitioned program. Throws Error when the plug-in
  /// does not tell.
  std::vector<OutputSharding> output_shardings() const;
  MemoryStats memory_stats() const;

 private:
  const PJRT_Api* api_ = nullptr;
  Owned<PJRT_LoadedExecutable> loaded_;
  Owned<PJRT_Executable> description_;
  std::size_t num_outputs_ = 0;
  bool compiled_ = false;
  PJRT_ExecuteContext* empty_context_ = nullptr;
};

}  // namespace postern::internal::pjrt
