// Programs around a world: a control loop, from its sensors to its motors, and training in MuJoCo.
#include <iostream>
#include <stdexcept>
#include <string>

#include "harness.h"

namespace bench {

namespace {

/// Adds the rows that a script of this folder prints of a program, beside what JAX's Python has.
void compare(Report& report, const std::string& script, const std::string& program,
             const std::string& more) {
  const std::string python = report.jax_python().empty() ? "" : "'" + report.jax_python() + "'";
  report.add_output_of("'" POSTERN_BENCH_FOLDER "/" + script + "' '" + program + "' " + more +
                       python);
}

}  // namespace

void control(Report& report) {
  const std::string program = POSTERN_BENCH_CONTROL;
  if (program.empty()) throw std::runtime_error("control: built without the examples");
  const std::int64_t steps = report.steps > 0 ? report.steps : 1'000'000;
  compare(report, "control_side.py", program,
          "'" POSTERN_BENCH_COUNTS "' " + std::to_string(steps) + " ");
}

void simulators(Report& report) {
  const std::string side = POSTERN_BENCH_SIMULATORS;
  if (side.empty())
    std::cerr << "bench: simulators is left out: it was built before scripts/bootstrap --mujoco\n";
  else
    compare(report, "simulators/compare.py", side, "");
  if (!report.jax_python().empty())  // which has gymnasium
    report.add_output_of("PYTHONPATH='" POSTERN_BENCH_PYTHON "' '" + report.jax_python() +
                         "' -W ignore '" POSTERN_BENCH_FOLDER "/simulators/python_side.py'");
}

}  // namespace bench
