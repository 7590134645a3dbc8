// What goes wrong, as typed exceptions. Every error that Postern throws derives from Error.
//
// Each header says which errors its functions throw. Not said again is what follows from running
// something: PluginError where the process has no plug-in that can be used, CompileError where XLA
// refuses a program, Error(resource_exhausted) where there is no memory left, and the failure of
// the run that makes an operand, at once or where the result is read. What throws nothing throws
// none of these either; it may lack memory for its own few bytes (std::bad_alloc).
//
//   try {
//     std::vector<float> values = y.to_vector<float>();
//   } catch (const pn::CallbackError& e) {  // a host function of the run that makes y has failed
//     std::cerr << e.site().name << " on device " << e.device() << ": " << e.what() << "\n";
//   } catch (const pn::Error& e) {
//     if (e.code() != pn::ErrorCode::resource_exhausted) throw;
//   }
//
// No function or member here throws.
#pragma once
#include <postern/detail/api.h>
#include <postern/place.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace postern {

/// The reason of an error, for programs that act on it. The first group are PJRT's status codes
/// (the gRPC canonical codes), the second Postern's own.
enum class ErrorCode {
  ok = 0,
  cancelled = 1,
  unknown = 2,
  invalid_argument = 3,
  deadline_exceeded = 4,
  not_found = 5,
  already_exists = 6,
  permission_denied = 7,
  resource_exhausted = 8,
  failed_precondition = 9,
  aborted = 10,
  out_of_range = 11,
  unimplemented = 12,
  internal = 13,
  unavailable = 14,
  data_loss = 15,
  unauthenticated = 16,
  threw = 100,   // a host function threw
  bad_result,    // a host function returned something that does not fit its declaration
  timeout,       // a time limit passed
  reentry,       // nested too deep, or a wait for oneself
  closed,        // the other side is gone
  unregistered,  // no host function of that name
};

/// Returns "invalid_argument", "threw", ...
POSTERN_API const char* to_string(ErrorCode code);

/// Base of all errors of Postern. `what()` is a complete sentence: what was asked, what was
/// required, what came, where.
class POSTERN_API Error : public std::runtime_error {
 public:
  /// Takes as `text` what what() gives.
  Error(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  /// Returns the reason, for programs; the text is for people.
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

/// Found before anything runs: shapes, dtypes, containers, missing rules, misuse of traced values.
/// Code invalid_argument.
class POSTERN_API TypeError : public Error {
 public:
  /// Has the code invalid_argument.
  explicit TypeError(const std::string& text) : Error(ErrorCode::invalid_argument, text) {}
};

/// XLA refused to compile a program; the text is XLA's, with what was compiled.
class POSTERN_API CompileError : public Error {
 public:
  using Error::Error;
};

/// A plug-in or library that is missing, is none, or is too old.
class POSTERN_API PluginError : public Error {
 public:
  using Error::Error;
};

/// The name and the place in the source of a call, tap, hook or print.
struct POSTERN_API Site {
  std::string name;
  Place place;
};

/// A host function failed while a program ran. `cause()` is the original exception (null if there
/// was none), `device()` the ordinal of the device that ran it, `others()` the texts of further
/// failures of the same run or barrier (bounded), `count()` of how many there were in all.
class POSTERN_API CallbackError : public Error {
 public:
  /// Takes what the functions below it give.
  CallbackError(ErrorCode code, const std::string& text, Site site, int device,
                std::exception_ptr cause, std::vector<std::string> others = {},
                std::size_t count = 1)
      : Error(code, text),
        site_(std::move(site)),
        device_(device),
        cause_(std::move(cause)),
        others_(std::move(others)),
        count_(count) {}
  /// Returns which call, tap, hook or print, on which device, and why.
  const Site& site() const { return site_; }
  int device() const { return device_; }
  std::exception_ptr cause() const { return cause_; }
  const std::vector<std::string>& others() const { return others_; }
  std::size_t count() const { return count_; }

 private:
  Site site_;
  int device_;
  std::exception_ptr cause_;
  std::vector<std::string> others_;
  std::size_t count_;
};

/// A call took longer than its limit, or a run longer than its deadline. Code timeout.
class POSTERN_API TimeoutError : public CallbackError {
 public:
  using CallbackError::CallbackError;
};

}  // namespace postern
