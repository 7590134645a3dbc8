// Interpreter: into Python from threads of the library, and its end.
#pragma once
#include <nanobind/nanobind.h>
#include <postern/c.h>

#include <cstdint>
#include <optional>
#include <string>

namespace postern::python {

namespace nb = nanobind;

/// The interpreter's lock for a thread that may be the library's own; not had once the interpreter
/// ends.
class Entered {
 public:
  Entered();
  ~Entered();
  Entered(const Entered&) = delete;
  explicit operator bool() const { return entered_; }

 private:
  bool entered_;
  PyGILState_STATE state_{};
};

/// Around a function that Python calls (nb::call_guard): the interpreter does not end before it
/// returns, and once it ends such a thread stays where it is. CPython would end it as it takes the
/// lock, by an exception that C++ frames do not let through.
class Inside {
 public:
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;

 private:
  bool entered_;
};

/// Lets other threads of Python run while it lives. A thread that would come back once the
/// interpreter ends stays where it is.
class Released {
 public:
  /// The interpreter's end waits for `work`, as XLA crashes where the process goes beneath it, but
  /// not for a `wait`.
  enum class For : std::uint8_t { work, wait };
  explicit Released(For what = For::work);
  ~Released();
  Released(const Released&) = delete;

 private:
  const bool counts_;
  PyThreadState* state_;
};

/// Calls a Python function as PyObject_Vectorcall does. A thread that CPython would end meanwhile,
/// since the interpreter ends, stays where it is.
PyObject* call_python(PyObject* function, PyObject* const* arguments, std::size_t count,
                      PyObject* names);

/// From now on nobody enters. Waits, at most so many seconds, for those who are inside.
void close_interpreter(double seconds);

/// Whether this is not the interpreter that the process began with.
bool in_sub_interpreter();

/// Looks up what `on_main_thread` asks, with the module rather than at each run.
void import_threading();
/// Has a process that is forked off know that none of the library's threads is in Python there.
void watch_forks();

/// Whether this thread is the one that sees signals.
bool on_main_thread();

/// A name or path as the library takes it. Raises TypeError for what is neither, and ValueError for
/// a null character, which would cut it short.
std::string text_of(nb::handle value);

/// Seconds as the C interface counts: -1 for no limit, which None, infinity and what is too much
/// mean.
std::int64_t nanoseconds(nb::handle seconds);

/// What `wait(nanoseconds)` gives within a limit, asked for little by little: Python sees signals
/// such as Ctrl-C only when C returns. Raises what a signal's handler raises. Threads that see no
/// signals wait for ever at once, which the library refuses where it would never end.
template <class Wait>
int waited(Wait wait, std::int64_t limit);

/// How much longer the next part of a wait is, and whether it is the last.
class Slices {
 public:
  explicit Slices(std::int64_t limit);
  std::int64_t next() const;
  bool over() const;

 private:
  std::optional<std::int64_t> end_;  // on the steady clock
  std::int64_t longest_ = 100'000'000;
};

template <class Wait>
int waited(Wait wait, std::int64_t limit) {
  const Slices slices(limit);
  while (true) {
    int code = PN_OK;
    {
      const Released others_run(Released::For::wait);
      code = wait(slices.next());
    }
    if (code != PN_EMPTY) return code;
    if (PyErr_CheckSignals() < 0) throw nb::python_error();
    if (slices.over()) return code;
  }
}

}  // namespace postern::python
