// Arrays on devices: what concrete tensors hold once they have been computed or sent.
#pragma once
#include <postern/shard.h>

#include <atomic>
#include <functional>
#include <optional>
#include <span>

#include "core/value.h"
#include "pjrt/buffer.h"
#include "run/runtime.h"

namespace postern::internal::run {

class RunRecord;
using Runs = std::vector<std::shared_ptr<RunRecord>>;

/// What a run made or a transfer brought, and who is to blame when it cannot be had.
struct ComputedValue : detail::Value {
  ComputedValue(Kind k, Type t, std::shared_ptr<RunRecord> r)
      : Value(k, std::move(t)), run(std::move(r)) {}

  std::shared_ptr<RunRecord>
      run;     // of the program with calls that makes it, while that is under way or if it failed
  Runs after;  // those of what it is made from, likewise
  mutable std::atomic<bool> ready{false};
  bool is_ready() const { return ready.load(std::memory_order_acquire); }
};

struct DeviceValue final : ComputedValue {
  DeviceValue(Type t, pjrt::Buffer b, int lane, int device, std::shared_ptr<RunRecord> r);
  ~DeviceValue() override;

  /// The memory as another lane's buffer.
  struct View {
    int lane;
    pjrt::Buffer buffer;
    View* next;
  };

  pjrt::Buffer buffer;
  int lane;                                    // where the memory is
  int device;                                  // what users see
  bool placed = false;                         // put there by the user, or made from what was
  std::shared_ptr<const std::string> targets;  // of FFI that its program calls, for errors
  mutable std::atomic<int> readers{0};
  mutable std::atomic<View*> views{nullptr};  // one for each lane that has seen it in place
};

/// Returns it as what lies on one device; null for what does not, and for none.
inline const DeviceValue* as_device_value(const detail::Value* value) {
  if (!value || value->kind != detail::Value::Kind::device) return nullptr;
  return static_cast<const DeviceValue*>(value);
}

/// While one lives, no program takes the value's memory. XLA has its own count for that, which two
/// threads must not touch at once.
class Reading {
 public:
  /// Throws TypeError for a value that was donated.
  explicit Reading(const DeviceValue& value);
  ~Reading() { value_.readers.fetch_sub(1); }
  Reading(const Reading&) = delete;

 private:
  const DeviceValue& value_;
};

/// What a run takes of its arguments' memory. Whoever looks at them from then on gets a TypeError,
/// unless the run could not begin.
class Donation {
 public:
  Donation() = default;
  ~Donation();
  Donation(const Donation&) = delete;

  /// Takes it, but for its memory where somebody reads it. Throws TypeError for a value that
  /// another run has taken.
  void take(const std::shared_ptr<const detail::Value>& value, std::size_t parameter);
  /// Leaves that parameter its memory: the program works on a copy.
  void keep(std::size_t parameter);
  /// Returns the parameters whose memory stays.
  std::span<const std::int64_t> kept() const { return kept_; }
  /// Notes that the run has begun: what was taken stays taken.
  void stands() { taken_.clear(); }

 private:
  std::vector<std::shared_ptr<const detail::Value>> taken_;
  std::vector<std::int64_t> kept_;
};

/// Rethrows what is being handled; an error of XLA's with the FFI targets that its program calls,
/// if it calls any: XLA names none.
[[noreturn]] void rethrow_naming(const std::shared_ptr<const std::string>& targets);

/// Returns the array's first part, which arrays of the same memory share, or what is in one piece.
const detail::Value* memory_of(const detail::Value* value);
/// Notes that a program has taken it.
void mark_donated(const detail::Value& value);
/// Throws TypeError when the value that is donated is given to the program once more, perhaps as
/// another array of the same parts.
void refuse_twice(std::span<const detail::Value* const> given, std::size_t donated);

/// Adds the runs whose failure would be the value's.
void add_pending(const detail::Value& value, Runs& runs);
/// Throws the error of the first of these runs that failed or was ended early.
void rethrow_failure(const Runs& runs);

/// Waits for the data; throws the error of the run that makes it.
void await(const DeviceValue& value);
/// Does XLA's part of that.
void await_buffer(const DeviceValue& value);
/// Does so for any value; `wait` does XLA's part.
void await_by(const ComputedValue& value, const std::function<void()>& wait);

/// Copies the row-major elements to `to`, when they are there.
void copy_out(const DeviceValue& value, void* to);
/// Copies those of a buffer that is ready.
void copy_out(const pjrt::Buffer& buffer, const Type& type, void* to);
/// Sends host memory to a buffer on `lane`, used in place where it is aligned.
pjrt::Buffer send(const Type& type, const std::shared_ptr<const void>& bytes, const Lane& lane);
/// Does so and returns the array there, or that of a buffer which is there already.
std::shared_ptr<DeviceValue> sent_to(const Lane& lane, const Type& type,
                                     const std::shared_ptr<const void>& bytes);
std::shared_ptr<DeviceValue> placed_on(const Type& type, pjrt::Buffer buffer, const Lane& lane);
/// Makes an array of another lane a buffer of this one. Where the two share memory and the contents
/// are there, it is the same memory, which the buffer keeps alive; else a copy, which within a
/// client nobody waits for unless a run that calls back makes the contents.
pjrt::Buffer seen_on(std::shared_ptr<const detail::Value> array, const Lane& lane);

/// Where a program with such arguments runs.
struct Home {
  int device;
  bool put;  // one of them was put there, else it is the thread's default device
};
/// Throws TypeError for tensors that were put on different devices.
Home home_of(std::span<const Tensor* const> tensors);
/// Returns the device, or the first of those, where a program with such arguments is, whether they
/// lie on one or several.
int device_for(std::span<const Tensor* const> tensors);
int default_device();
/// Has the thread trace, lower and run for the platform of a device, as if a DeviceScope of it were
/// there, unless what the thread does is for that platform.
class AtDevice {
 public:
  explicit AtDevice(int device);
  /// Does so for that of these tensors.
  explicit AtDevice(std::span<const Tensor* const> tensors);

 private:
  std::optional<DeviceScope> scope_;
};
/// Throws TypeError when it is none of devices().
void check_device(int device);

/// Returns the tensor's array on `lane`, sent there if need be. Throws TypeError for traced and
/// empty tensors. The result lives as long as `keep` and `staged`, if that is given and is the way.
/// `staged` is for runs that only read the array, and that hold `keep` until they have ended.
pjrt::Buffer* on_lane(const Tensor& tensor, Lane& lane, std::shared_ptr<const void>& keep,
                      StagedOperands* staged = nullptr);

/// Returns the tensor's row-major bytes, seen where they are if that is host memory, as long as
/// `keep` lives: null, or what an earlier call for the tensor made of it.
const void* host_view(const Tensor& tensor, std::shared_ptr<const void>& keep);

/// Returns the tensor's row-major bytes: host memory as it is, or a copy from the device. `what`
/// names the user in errors.
std::shared_ptr<const void> host_bytes(const Tensor& tensor, const char* what);

}  // namespace postern::internal::run
