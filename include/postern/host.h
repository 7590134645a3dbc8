// Host functions: what a program calls back, what they are told about a firing, and how they stop a
// run.
#pragma once
#include <postern/attributes.h>
#include <postern/detail/api.h>
#include <postern/error.h>
#include <postern/place.h>
#include <postern/sharding.h>
#include <postern/view.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <vector>

namespace postern {

namespace detail {
struct StopState;
}

/// Tells a host function that nobody waits for it any more: its run was cancelled, has failed, or
/// its time limit has passed. No member throws.
class StopToken {
 public:
  explicit StopToken(const detail::StopState* state = nullptr) : state_(state) {}
  /// Returns true from then on.
  POSTERN_API bool stop_requested() const;

 private:
  const detail::StopState* state_;
};

/// A thing of the user's that a run carries to its host functions, which must outlive the run.
///
///   int steps = 0;
///   const pn::Context context = &steps;
///   ++*context.as<int>();
class Context {
 public:
  /// Carries nothing, or a pointer and its type. Throws nothing.
  Context(std::nullptr_t = nullptr) {}
  template <class T>
  Context(T* thing) : thing_(thing), type_(&typeid(T)) {
    static_assert(!std::is_const_v<T>, "postern: a context is not const");
  }
  /// Returns the pointer; null where there is none. TypeError where it is one to another type than
  /// T, unless it was given as void*.
  template <class T>
  T* as() const {
    if (thing_ && *type_ != typeid(T) && *type_ != typeid(void)) refuse(typeid(T));
    return static_cast<T*>(thing_);
  }
  /// Does the same for a cast; the pointer as it is. The latter throws nothing.
  template <class T>
  explicit operator T*() const {
    return as<T>();
  }
  operator void*() const { return thing_; }

 private:
  [[noreturn]] POSTERN_API void refuse(const std::type_info& asked) const;
  void* thing_ = nullptr;
  const std::type_info* type_ = nullptr;
};

/// What a host function is told when its first parameter is `const CallInfo&`. Valid until the
/// function returns. No member throws.
struct CallInfo {
  std::string_view name;  // of the call, tap, hook or print
  int device = 0;         // ordinal, as in devices()
  Place place;            // in the user's source
  std::uint64_t run = 0;  // number of the execution, counted in the process
  StopToken stop;
  Context context = {};          // what RunOptions::context was given
  std::ostream* sink = nullptr;  // where prints of this run go (RunOptions::sink); null: std::cout
  std::int64_t element = -1;     // index in the batch when vmap runs the function for each element,
                                 // row-major over nested vmaps; else -1
  detail::StopState* run_state = nullptr;
  std::span<const std::int64_t> coordinates =
      {};  // inside shard_map: where the device is in the mesh, by axis; else empty
  std::span<const IndexRange> part = {};  // which part of its whole the first leaf is, by axis,
                                          // where that is known; see docs/devices.md
  void* stream = nullptr;  // of a call with Memory::device: the stream that its work belongs on (a
                           // CUstream); null on a CPU
  int process = 0;         // of the cluster: its rank

  /// Ends the run without failure once this function has returned: later calls and taps are
  /// skipped, its outputs are not to be had (asking for them is an error with code cancelled),
  /// `Run::wait` returns `stopped`.
  POSTERN_API void end_run() const;
};

/// The transformations that a tap went through, as applied: "jvp", "transpose", "batch(0)".
using Transforms = std::vector<std::string>;
POSTERN_API std::string to_string(const Transforms& transforms);  // joined with commas; throws
                                                                  // nothing

/// What a tap's function is told when its first parameter is `const TapInfo&`.
struct TapInfo : CallInfo {
  const Transforms& transforms;
  std::span<const std::string> paths;  // of each leaf in the tapped container
  bool recomputed = false;             // true when `checkpoint` runs this tap a second time
  std::span<const bool> mask;  // elements of the batch for which the code is alive; empty: all
  std::uint64_t dropped = 0;   // firings of this place lost so far (TapOptions::keep_last)
};

/// A host function by name, found in the registry when the program runs (see register_function);
/// saved programs need this form.
struct Named {
  std::string name;
  Attributes attributes = {};
};

namespace detail {

/// One operand or result leaf as declared.
struct LeafLayout {
  DType dtype;
  const std::int64_t* dims;
  std::size_t rank;
  std::int64_t size;
};

/// What a site was declared with, beside its leaves.
struct Declared {
  const Attributes* attributes;
  const std::string* result_structure;
  const std::vector<std::string>* result_paths;
};

/// One entry of a host function: its leaves (operands, then results) and what it may be told.
struct Firing {
  const LeafLayout* leaves;
  void* const* data;
  std::size_t operands;
  std::size_t results;
  const TapInfo* info;  // may be null where the function does not take it
  const Declared* declared;
};

/// What a function takes in one position.
struct Parameter {
  enum class Kind : std::uint8_t {
    view,
    mutable_view,
    any_view,
    any_mutable_view,
    number,
    all_operands,
    all_results
  } kind;
  DType dtype;
};

/// A host function with its type erased: shared by the programs that can call it.
struct HostFunction {
  std::vector<Parameter> parameters;
  bool wants_call_info = false, wants_tap_info = false, wants_attributes = false;
  bool by_value = false;
  void (*invoke)(void* object, const Firing& firing) = nullptr;
  std::shared_ptr<void> object;
};

}  // namespace detail

/// A host function as an argument of call, tap, hook: any callable with typed parameters, or
/// `Named`. Remembers where it was written.
///
/// Parameters, in order: optionally `const Attributes&`, optionally `const CallInfo&` or `const
/// TapInfo&`; then one for each leaf of the operands: `View<const T>`, `AnyView`, or a plain number
/// for a leaf of rank 0 (or one `std::span<const AnyView>` for all of them); then, in the in-place
/// form, which returns void, one for each leaf of the results: `View<T>` or `AnyMutableView` (or
/// one `std::span<const AnyMutableView>`), to be filled whole: what is left out has whatever the
/// memory held before. In the by-value form it returns a number, a
/// `std::vector`, an `Array`, a `Tensor`, or a tuple of them, checked against the declaration at
/// the run.
class Callee;

}  // namespace postern

#include <postern/detail/callee.h>
