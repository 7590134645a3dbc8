// Arrays on devices: what concrete tensors hold once they have been computed or sent.
#pragma once
#include <atomic>

#include "core/value.h"
#include "pjrt/buffer.h"
#include "run/runtime.h"

namespace postern::run {

class RunRecord;
using Runs = std::vector<std::shared_ptr<RunRecord>>;

struct DeviceValue final : detail::Value {
  DeviceValue(Type t, pjrt::Buffer b, int lane, int device, std::shared_ptr<RunRecord> r);
  ~DeviceValue() override;

  pjrt::Buffer buffer;
  int lane;                        // where the memory is
  int device;                      // what users see
  std::shared_ptr<RunRecord> run;  // of the program with calls that makes it, while that is under way or if it failed
  Runs after;                      // those of what it is made from, likewise
  mutable std::atomic<bool> ready{false};
};

/// Adds the runs whose failure would be the value's.
void add_pending(const detail::Value& value, Runs& runs);
/// Throws the error of the first of these runs that failed or was ended early.
void rethrow_failure(const Runs& runs);

/// Waits for the data; throws the error of the run that makes it.
void await(const DeviceValue& value);

/// The tensor's array on `lane`, sent there if need be. Throws TypeError for traced and empty tensors. The result lives as long as `keep`.
pjrt::Buffer* on_lane(const Tensor& tensor, Lane& lane, std::shared_ptr<const void>& keep);

/// The tensor's row-major bytes: host memory as it is, or a copy from the device. `what` names the user in errors.
std::shared_ptr<const void> host_bytes(const Tensor& tensor, const char* what);

}  // namespace postern::run
