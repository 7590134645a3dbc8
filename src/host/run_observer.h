// Observers of runs: a stage of a package's own, in every invocation of the runs that a thread
// starts. It stands before the site's queue and limits, and may give results in place of what is
// behind it; a recording is one.
#pragma once
#include <postern/error.h>
#include <postern/type.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "host/stop.h"

namespace postern::internal::host {

struct Invocation;
struct Stage;

/// An invocation as its run's observer sees it, while it stands there.
class ObservedInvocation {
 public:
  ObservedInvocation(const Stage& stage, Invocation& invocation);
  ObservedInvocation(const ObservedInvocation&) = delete;

  std::uint64_t run;        // the observer's number for it
  std::int64_t site;        // counted in the program
  std::string_view kind;    // "call", "tap", "hook", "print"
  bool is_tap;              // anything but a call
  const std::string& name;  // the site's
  int device;
  std::int64_t element;  // of the batch, where the function is entered for each; else -1
  bool on_device;        // its data is a GPU's: nobody but a kernel can read it
  std::span<const Type> operands, results;

  /// Returns the bytes of an operand, row-major; of a result, when it is there.
  std::string_view operand(std::size_t number) const { return bytes(number); }
  std::string_view result(std::size_t number) const { return bytes(operands.size() + number); }
  /// Gives a call its result: as many bytes as its type has.
  POSTERN_API void give(std::size_t number, std::string_view bytes);

  /// Enters what is behind, once. Returns whether the run goes on.
  POSTERN_API bool enter();
  /// Fails the run, as a function of this site that threw; false.
  POSTERN_API bool fail(ErrorCode code, const std::string& what);
  /// Ends the run, as end_run() does; false.
  POSTERN_API bool end();
  /// Returns what the run's first failure said, if it has failed.
  POSTERN_API std::optional<std::string> failure() const;

  /// Returns who ends a wait here, and when it is late.
  POSTERN_API const detail::StopState& stop() const;
  POSTERN_API std::chrono::steady_clock::time_point deadline() const;

 private:
  POSTERN_API std::string_view bytes(std::size_t leaf) const;

  const Stage& stage_;
  Invocation& invocation_;
};

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// Begins the next run, of the program with this text, and returns its number. What it throws
  /// keeps the run from beginning.
  virtual std::uint64_t begin_run(std::string_view program) = 0;
  /// Stands at an invocation: enters it, or does without. Returns whether the run goes on; what it
  /// throws fails the run. Devices and elements of a batch come side by side.
  virtual bool enter(ObservedInvocation& i) = 0;
  /// Returns whether it enters any: else the runs' functions need not be there.
  virtual bool enters_functions() const { return true; }
  /// Returns what it knows of why a run waits for a started call that it has not started.
  virtual std::string about_lost_calls() const { return {}; }
};

/// Has an observer see the runs that this thread starts, until it is null; not those that host
/// functions start. Throws Error(failed_precondition) when the thread has one already.
POSTERN_API void observe_runs(std::shared_ptr<RunObserver> observer);
/// Returns who sees the runs that are started now: null also inside of host functions.
std::shared_ptr<RunObserver> current_observer();

struct ObservedRun {
  std::shared_ptr<RunObserver> observer;  // null: nobody
  std::uint64_t run = 0;
};
/// Returns the run that the calling thread works for, as its observer knows it.
POSTERN_API ObservedRun observed_run();

}  // namespace postern::internal::host
