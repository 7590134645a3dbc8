// postern_bench [NAME...] [--json FILE]: measures, one JSON object a line.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <iterator>

#include "harness.h"

namespace {

constexpr bench::Benchmark benchmarks[] = {
    {"call_loop", "one call in a compiled loop", bench::call_loop},
    {"call_execute", "an execution with one call", bench::call_execute},
    {"overlap", "compute beside functions that were started before", bench::overlap},
    {"payload", "identity calls from 1 KiB to 256 MiB", bench::payload},
    {"dispatch", "an execution without calls", bench::dispatch},
    {"trace_lower", "tracing and lowering long programs", bench::trace_lower},
    {"compile_calls", "compiling programs of many calls", bench::compile_calls},
    {"import", "programs from elsewhere: read, traced, run", bench::import_programs},
    {"native", "programs on the caller's memory", bench::native},
    {"memory", "peak memory of a large call", bench::memory},
    {"tap_sync", "a synchronous tap in a compiled loop, from 4 B to 256 MiB", bench::tap_sync},
    {"tap_async", "asynchronous taps: of the program's time, delivered, large", bench::tap_async},
    {"tap_overlap", "listeners beside compute", bench::tap_overlap},
    {"serve", "a live page that is open", bench::serve},
    {"live", "a live hook at which nobody listens", bench::live},
    {"tap_tax", "statistics of every layer of a training step", bench::tap_tax},
    {"tap_queue", "a full queue of taps, and 1e7 of them", bench::tap_queue},
    {"checkpoint", "a checkpoint of 1 GiB beside dd, in this folder", bench::checkpoint},
    {"linalg", "decompositions of small and large matrices, and of many", bench::linalg},
    {"attention", "a plug-in's fused attention beside the default", bench::attention},
    {"block_tax", "a block that takes its default", bench::block_tax},
    {"step", "training steps of small networks", bench::step},
    {"grad_trace", "tracing gradients of long programs", bench::grad_trace},
    {"while_grad", "the gradient of a while loop beside that of a scan", bench::while_grad},
    {"vmap_call", "a call for each of 1,000 elements", bench::vmap_call},
    {"pool", "what a pool adds to its simulators", bench::pool},
    {"simulators", "rollouts and PPO around MuJoCo", bench::simulators},
    {"control", "a control loop, from its sensors to its motors", bench::control},
    {"shards", "a tap and a call on each of 1 to 8 devices", bench::shards, 8},
    {"threads", "1, 2 and 4 threads with runs of their own", bench::threads, 4},
    {"failure", "from an exception on one device to the error at the caller", bench::failure, 8},
    {"processes", "sums and halos between processes beside MPI in C", bench::processes},
    {"staged", "what stages add, and their memory", bench::staged},
    {"platforms", "a program of another platform as a site and as a stage", bench::platforms},
    {"gpu", "calls and taps on a GPU, where there is one", bench::gpu},
    {"bridge", "calls that a host's own threads answer", bench::bridge},
    {"python", "runs and calls of the Python package, and what packages make of it", bench::python},
    {"jax_door", "calls and taps of postern.jax beside JAX's own", bench::jax_door},
    {"beam", "a process of the BEAM called from a compiled loop", bench::beam},
    {"torch", "functions of torch in programs, and programs in torch", bench::torch},
    {"load", "a saved program to its first result", bench::load},
    {"soak", "resident memory over 1e7 calls and 1e5 executions", bench::soak},
};

}  // namespace

int main(int count, char** arguments) try {
  CLI::App app("Measures Postern beside its peers; one JSON object a line.");
  std::vector<std::string> names;
  std::string file, python;
  bool list = false;
  std::int64_t steps = 0;
  app.add_option("NAME", names, "which benchmarks; default: all");
  app.add_option("--json", file, "also write the lines to this file");
  app.add_option(
      "--jax", python,
      "a Python that has JAX, to measure it beside; without it recorded figures are used");
  app.add_option("--steps", steps, "of loops that are measured step by step; default: a second's");
  app.add_flag("--list", list, "name the benchmarks");
  CLI11_PARSE(app, count, arguments);
  for (const std::string& name : names)
    if (std::ranges::none_of(benchmarks, [&](const auto& b) { return b.name == name; })) {
      std::cerr << "bench: there is no benchmark " << name << "; --list names them\n";
      return 2;
    }
  if (list) {
    for (const auto& b : benchmarks) std::cout << b.name << ": " << b.what << '\n';
    return 0;
  }
  bench::Report report(bench::Jax(python, POSTERN_BENCH_FOLDER), file);
  report.steps = steps;
  for (const auto& b : benchmarks)
    if (names.empty() || std::ranges::find(names, b.name) != names.end()) {
      const char* set = std::getenv("POSTERN_CPU_DEVICES");
      if (b.devices == 1 || (set && std::atoi(set) >= b.devices))
        b.run(report);
      else  // in a process of its own, so that the others have one device
        report.add_output_of("POSTERN_CPU_DEVICES=" + std::to_string(b.devices) + " '" +
                             arguments[0] + "' " + b.name);
    }
  return 0;
} catch (const std::exception& e) {
  std::cerr << "bench: " << e.what() << '\n';
  return 1;
}
