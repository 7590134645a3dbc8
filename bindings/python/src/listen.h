// Listeners of the library, as functions for taps: they are C++ and need no interpreter.
#pragma once
#include <nanobind/nanobind.h>
#include <postern/postern.h>

namespace postern::python {

namespace nb = nanobind;

/// What all of them are to Python.
class Listener {
 public:
  explicit Listener(Callee callee) : callee_(std::move(callee)) {}
  virtual ~Listener() = default;
  const Callee& callee() const { return callee_; }

 private:
  Callee callee_;
};

void bind_listen(nb::module_& m);

}  // namespace postern::python
