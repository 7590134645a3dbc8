// Measuring fairly on a machine that also does other work: the sides of a comparison take turns,
// round by round, and their medians are compared.
#pragma once
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace bench {

/// One line of output. `ratio` is value / peer_value; a line without a peer has neither.
struct Line {
  std::string name;
  double value;
  std::string unit;
  std::string peer = "";
  double peer_value = 0;
  std::string note = "";
};

/// Does something so many times.
using Side = std::function<void(std::int64_t times)>;

/// What JAX takes for the same work: measured now where it is installed, else as recorded.
class Jax {
 public:
  /// `python`: of an environment with JAX; empty: none. `folder`: where peers.py and
  /// recorded_jax.json are.
  Jax(std::string python, std::string folder)
      : python_(std::move(python)), folder_(std::move(folder)) {}
  /// The line `name` of benchmark `benchmark`, completed with JAX's value and where it comes from.
  /// The value stays 0 where there is none.
  Line beside(Line ours, const std::string& benchmark);
  /// A program of jax_sides.py, kept ready in a process of its own to take part in a race; none
  /// where JAX is not installed. `plugin`: a PJRT plug-in that JAX uses in place of the XLA that it
  /// brings.
  std::optional<Side> side(const std::string& program, const std::string& plugin);
  const std::string& python() const { return python_; }

 private:
  void measure(const std::string& benchmark);
  std::string python_, folder_;
  std::vector<std::string> measured_;
  std::vector<Line> lines_;
  std::string recorded_where_;
};

/// Writes lines as JSON objects, to stdout and to a file.
class Report {
 public:
  Report(Jax jax, const std::string& file);
  void add(const Line& line);
  /// With JAX as the peer; `benchmark` is what peers.py knows it by.
  void add_jax(const Line& ours, const std::string& benchmark) {
    add(jax_.beside(ours, benchmark));
  }
  /// The lines that a command prints.
  void add_output_of(const std::string& command);
  const std::string& jax_python() const { return jax_.python(); }
  std::int64_t steps = 0;  // that --steps asks for; 0: as many as the benchmark likes
  std::optional<Side> jax_side(const std::string& program, const std::string& plugin = "") {
    return jax_.side(program, plugin);
  }

 private:
  Jax jax_;
  std::ofstream file_;
};

/// Nanoseconds for one time of each side: medians over `rounds` rounds in which each side works for
/// about `round_ms`. `rest`: before each turn, so that threads of another side that wait awake have
/// gone to sleep; a turn then begins with one time that does not count.
std::vector<double> race(const std::vector<Side>& sides, int rounds = 15, double round_ms = 20,
                         std::chrono::milliseconds rest = {});

/// Nanoseconds that `work` takes.
double timed(const std::function<void()>& work);

double median(std::vector<double> values);

/// Bytes of memory that the process has now, and at most had since the last reset.
std::int64_t resident_bytes();
std::int64_t peak_bytes();
void reset_peak();

/// What a command prints.
std::string output_of(const std::string& command);

/// A benchmark: what ./bench NAME runs.
struct Benchmark {
  const char* name;
  const char* what;
  void (*run)(Report& report);
  int devices = 1;  // that the process must have
};

void call_loop(Report&);
void call_execute(Report&);
void overlap(Report&);
void payload(Report&);
void dispatch(Report&);
void trace_lower(Report&);
void compile_calls(Report&);
void import_programs(Report&);
void memory(Report&);
void soak(Report&);
void step(Report&);
void grad_trace(Report&);
void while_grad(Report&);
void vmap_call(Report&);
void pool(Report&);
void native(Report&);
void control(Report&);
void simulators(Report&);
void linalg(Report&);
void shards(Report&);
void platforms(Report&);
void threads(Report&);
void gpu(Report&);
void failure(Report&);
void staged(Report&);
void bridge(Report&);
void load(Report&);
void python(Report&);
void jax_door(Report&);
void beam(Report&);
void torch(Report&);
void attention(Report&);
void block_tax(Report&);
void tap_sync(Report&);
void tap_async(Report&);
void tap_overlap(Report&);
void serve(Report&);
void live(Report&);
void tap_tax(Report&);
void tap_queue(Report&);
void checkpoint(Report&);
void processes(Report&);

}  // namespace bench
