// Threads take and leave the interpreter's lock here, and stay outside once it ends.
#include "interpreter.h"

#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "lent.h"

namespace postern::python {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<int> inside{0};
thread_local int inside_here = 0;  // this thread's part of it
std::atomic<bool> closed{false};

/// Whether this thread may ask for the interpreter's lock; leave() follows where it may.
bool may_enter() {
  inside.fetch_add(1);
  if (!closed.load()) {
    ++inside_here;
    return true;
  }
  inside.fetch_sub(1);
  return false;
}
void leave() {
  --inside_here;
  inside.fetch_sub(1);
}

/// Keeps what the interpreter knows of a thread of the library's until the thread ends: made anew
/// for each function it would cost more than the function.
struct KnownThread {
  bool known = false;
  ~KnownThread() {
    if (!known || !may_enter()) return;
    PyGILState_Ensure();
    PyGILState_Release(PyGILState_LOCKED);
    PyGILState_Release(PyGILState_UNLOCKED);
    leave();
  }
};
thread_local KnownThread this_thread;

/// The thread on which the interpreter ends.
std::thread::id ending_thread;

/// Nobody waits for this thread any more.
[[noreturn]] void stay() {
  inside.fetch_sub(std::exchange(inside_here, 0));
  while (true) pause();
}

bool ends_here() { return std::this_thread::get_id() == ending_thread; }

PyObject* main_thread = nullptr;  // of threading

std::int64_t now() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

}  // namespace

Entered::Entered() : entered_(may_enter()) {
  if (!entered_) return;
  if (!PyGILState_GetThisThreadState()) {
    this_thread.known = true;
    PyGILState_Ensure();
    PyEval_SaveThread();
  }
  state_ = PyGILState_Ensure();
}

Entered::~Entered() {
  if (!entered_) return;
  PyGILState_Release(state_);
  leave();
}

Inside::Inside() : entered_(may_enter()) {
  if (entered_ || ends_here()) return;
  PyEval_SaveThread();
  stay();
}

Inside::~Inside() {
  if (entered_) leave();
}

Released::Released(For what)
    : counts_(what == For::wait && inside_here > 0), state_(PyEval_SaveThread()) {
  if (counts_) leave();
}

Released::~Released() {
  const bool enters = may_enter();
  if (!enters && !ends_here()) stay();
  PyEval_RestoreThread(state_);
  if (enters && !counts_) leave();
}

PyObject* call_python(PyObject* function, PyObject* const* arguments, std::size_t count,
                      PyObject* names) {
  try {
    return PyObject_Vectorcall(function, arguments, count | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
  } catch (const abi::__forced_unwind&) {
    stay();
  }
}

void close_interpreter(double seconds) {
  ending_thread = std::this_thread::get_id();
  closed = true;
  keep_all_given_back();
  const Released others_run;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (inside.load() > inside_here && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void watch_forks() {
  [[maybe_unused]] static const int registered =
      pthread_atfork(hold_given_back, let_go_of_given_back, [] {
        let_go_of_given_back();
        inside = inside_here;
      });
}

bool in_sub_interpreter() { return PyInterpreterState_Get() != PyInterpreterState_Main(); }

void import_threading() {
  main_thread = nb::object(nb::module_::import_("threading").attr("main_thread")).release().ptr();
}

bool on_main_thread() {
  const nb::object main = nb::steal(PyObject_CallNoArgs(main_thread));
  if (!main.is_valid()) throw nb::python_error();
  return nb::cast<unsigned long>(main.attr("ident")) == PyThread_get_thread_ident();
}

std::string text_of(nb::handle value) {
  const nb::object path = nb::steal(PyOS_FSPath(value.ptr()));
  if (!path.is_valid()) throw nb::python_error();
  const nb::object bytes =
      PyUnicode_Check(path.ptr()) ? nb::steal(PyUnicode_EncodeFSDefault(path.ptr())) : path;
  if (!bytes.is_valid()) throw nb::python_error();
  const std::string text(PyBytes_AS_STRING(bytes.ptr()),
                         static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr())));
  if (text.find('\0') != std::string::npos) {
    const nb::str told =
        nb::str("a name or path cannot hold a null character, got {!r}").format(value);
    PyErr_SetObject(PyExc_ValueError, told.ptr());
    throw nb::python_error();
  }
  return text;
}

std::int64_t nanoseconds(nb::handle seconds) {
  if (seconds.is_none()) return -1;
  const double count = PyFloat_AsDouble(seconds.ptr()) * 1e9;
  if (PyErr_Occurred()) throw nb::python_error();
  if (count >= 9.2e18) return -1;
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(count));
}

Slices::Slices(std::int64_t limit) {
  if (limit >= 0 && limit < INT64_MAX - now())
    end_ = now() + limit;
  else if (!on_main_thread())
    longest_ = -1;  // no limit
}
std::int64_t Slices::next() const {
  if (!end_) return longest_;
  return std::clamp<std::int64_t>(*end_ - now(), 0, longest_);
}
bool Slices::over() const { return end_ && now() >= *end_; }

}  // namespace postern::python
