// What a Tensor holds: a number or array in host memory, an array on a device or spread over
// several, a traced value, or only a type.
#pragma once
#include <postern/tensor.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "core/mutex.h"

namespace postern::detail {

struct Value {
  enum class Kind : std::uint8_t { host, device, sharded, traced, abstract };
  Value(Kind k, Type t) : type(std::move(t)), kind(k) {}
  virtual ~Value() = default;
  Value(const Value&) = delete;
  Type type;
  Kind kind;
  mutable std::atomic<bool> donated{false};  // a program has taken the memory for its results
};

/// Row-major bytes in host memory, 64-byte aligned or the user's own. The copy on the device is
/// made when it is first needed.
struct HostValue final : Value {
  HostValue(Type t, std::shared_ptr<const void> d)
      : Value(Kind::host, std::move(t)), data(std::move(d)) {}
  std::shared_ptr<const void> data;
  mutable internal::Mutex guard;
  mutable std::shared_ptr<const Value> on_device;  // where it was sent first; stays
  mutable std::atomic<bool> was_sent{false};       // so that nobody need lock to see that
  mutable std::atomic<bool> was_staged{false};     // a run was given it by run/staging
};

/// Marks memory of handles, of which the owner goes with the last tensor that has one: numbers in
/// programs would keep nothing.
struct DropsOwner {
  std::shared_ptr<const void> owner;
  void operator()(const void*) const {}
};

/// Tells whether the trace that a value belongs to is still being written, and by whom.
struct TraceMark {
  std::atomic<bool> open{true};
  std::thread::id thread = std::this_thread::get_id();
  std::string what;  // "jit", "grad", ...
};

struct TracedValue final : Value {
  TracedValue(Type t, std::shared_ptr<const TraceMark> m, int i, Place p)
      : Value(Kind::traced, std::move(t)), mark(std::move(m)), index(i), place(p) {}
  std::shared_ptr<const TraceMark> mark;
  int index;
  Place place;
};

/// Returns " made at digits.cc:7", or which leaf of what its trace was given it is, ", argument
/// leaf 0 of jit,".
std::string origin_of(const TracedValue& value);

/// Ways into a Tensor for the library.
struct Access {
  static const Value* value(const Tensor& t) { return t.value_.get(); }
  static const std::shared_ptr<const Value>& pointer(const Tensor& t) { return t.value_; }
  static Tensor make(std::shared_ptr<const Value> v) { return Tensor(std::move(v)); }
  static const HostValue* host(const Tensor& t) {
    if (t.value_ && t.value_->kind == Value::Kind::host)
      return static_cast<const HostValue*>(t.value_.get());
    return nullptr;
  }
  static const TracedValue* traced(const Tensor& t) {
    if (t.value_ && t.value_->kind == Value::Kind::traced)
      return static_cast<const TracedValue*>(t.value_.get());
    return nullptr;
  }
};

/// Allocates `bytes` bytes aligned for XLA's zero-copy.
std::shared_ptr<void> aligned_bytes(std::size_t bytes);

/// Checks that elements of pred are 0 or 1: XLA computes with their bytes. Others have masks of 0
/// and 255, and mean true by them.
bool are_booleans(const void* bytes, std::size_t count);
void make_booleans(void* bytes, std::size_t count);

/// Throws TypeError if a program has taken the value's memory.
void refuse_donated(const Value& value);

}  // namespace postern::detail

namespace postern::internal {

/// Returns whether several elements share a byte on a device.
inline bool is_packed(DType dtype) { return bit_width(dtype) < 8; }

/// Throws TypeError for what make_type would not make, and for open extents.
void check_type(const Type& type);
/// Returns whether `any` made it, and its name.
bool is_open(std::int64_t extent);
std::string open_name(std::int64_t extent);

/// Returns whether they are of one dtype and shape; whether they are weak does not count.
inline bool alike(const Type& a, const Type& b) { return a.dtype == b.dtype && a.dims == b.dims; }
/// Returns whether the tensor has a value, and one like that.
inline bool is_of(const Tensor& x, const Type& type) {
  return x.has_value() && alike(x.type(), type);
}

/// Says what came, for errors.
inline std::string type_text(const Tensor& x) {
  if (x.has_value()) return to_string(x.type());
  return "an empty Tensor";
}

}  // namespace postern::internal
