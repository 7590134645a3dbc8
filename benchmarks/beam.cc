// Calls that processes of the BEAM answer, where Erlang and Elixir are there.
#include <postern/postern.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "harness.h"

namespace bench {

namespace pn = postern;

#ifdef POSTERN_BENCH_EBIN
namespace {

constexpr std::int64_t calls_of_a_run = 1000, started = 64;  // a run has so many calls open at most

/// A loop of calls of `name` with what the argument holds; results as the operand, or one number.
void save(const std::filesystem::path& file, const std::string& name, std::int64_t size,
          bool number) {
  const auto loop = pn::jit([&](pn::Tensor x) {
    return pn::fori_loop(
        0, calls_of_a_run,
        [&](pn::Tensor, pn::Tensor y) {
          const pn::Type out = number ? pn::type<float>({1}) : y.type();
          const pn::Tensor got =
              pn::call({.effect = pn::Effect::unordered}, out, pn::Named{name}, number ? x : y);
          return number ? y + got : got;
        },
        number ? pn::zeros(pn::type<float>({1})) : x);
  });
  pn::save(file, loop.lower(pn::abstract(pn::type<float>({size}))));
}

/// A loop that starts calls and waits for none; the run ends when all are answered.
void save_started(const std::filesystem::path& file) {
  const auto loop = pn::jit([&](pn::Tensor x) {
    return pn::fori_loop(
        0, started,
        [](pn::Tensor, pn::Tensor y) {
          pn::start_call({.effect = pn::Effect::unordered}, y.type(),
                         pn::Named{"bench.beam.started"}, y);
          return y + 1.0f;
        },
        x);
  });
  pn::save(file, loop.lower(pn::abstract(pn::type<float>({1}))));
}

}  // namespace

void beam(Report& report) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("postern_beam_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  for (int i = 0; i < 4; ++i)
    save(folder / ("scalar_" + std::to_string(i)), "bench.beam." + std::to_string(i), 1, false);
  save(folder / "scalar_copying", "bench.beam.copying", 1, false);
  save(folder / "looked_4", "bench.beam.look", 1, true);
  save(folder / "looked", "bench.beam.look", 262'144, true);
  save(folder / "looked_copying", "bench.beam.look_copying", 262'144, true);
  save_started(folder / "started");
  report.add_output_of(
      "POSTERN_NIF='" POSTERN_BENCH_NIF "' COPYING_NIF='" POSTERN_BENCH_COPYING
      "' elixir -pa '" POSTERN_BENCH_EBIN "' '" POSTERN_BENCH_FOLDER "/beam/side.exs' '" +
      folder.string() + "' " + std::to_string(calls_of_a_run) + " " + std::to_string(started));
  std::filesystem::remove_all(folder);
  // A folder of compiled Nx, as scripts/try_nx leaves it.
  if (const char* nx = std::getenv("POSTERN_BENCH_NX")) {
    std::string paths;
    for (const char* name : {"complex", "telemetry", "nx"})
      paths += " -pa '" + std::string(nx) + "/" + name + "'";
    report.add_output_of("POSTERN_NIF='" POSTERN_BENCH_NIF "' elixir -pa '" POSTERN_BENCH_EBIN "'" +
                         paths + " '" POSTERN_BENCH_FOLDER "/beam/defn.exs'");
  }
}
#else
void beam(Report&) {}  // scripts/bootstrap --beam gets what it needs
#endif

}  // namespace bench
