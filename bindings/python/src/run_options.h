// What is said of one run, as C takes it.
#pragma once
#include <nanobind/nanobind.h>
#include <postern/c.h>

#include <string>
#include <vector>

namespace postern::python {

namespace nb = nanobind;

/// A run's device, deadline, prints, and functions of its own. What is lent to the library is given
/// back here unless a run has it.
class RunOptions {
 public:
  RunOptions() { c_.size = sizeof c_; }
  /// Of `postern._options`: (device, nanoseconds, print or None, hooks, functions), the last two
  /// lists of (name, function, whether it wants an Info).
  explicit RunOptions(const nb::tuple& said);
  RunOptions(const RunOptions&) = delete;
  ~RunOptions();

  const pn_start_options* c() const { return &c_; }
  /// A run has what was lent.
  void taken() { kept_ = false; }

 private:
  void bind(const nb::list& listed, std::vector<pn_binding>& into);

  std::vector<std::string> names_;
  std::vector<pn_binding> hooks_, functions_;
  pn_start_options c_{};
  bool kept_ = true;
};

}  // namespace postern::python
