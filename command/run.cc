// postern run.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "arrays.h"
#include "child.h"
#include "commands.h"

namespace command {

namespace pn = postern;
using Json = nlohmann::json;

namespace {

int number(const std::string& name, const std::string& value) {
  int n = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (value.empty() || error != std::errc() || end != value.data() + value.size())
    throw Problem(usage, fmt::format("--set {}: '{}' is no number, or one of more than 32 bits",
                                     name, value));
  return n;
}

std::chrono::nanoseconds seconds(const std::string& name, const std::string& value) {
  double n = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  // As many as nanoseconds can be counted.
  if (value.empty() || error != std::errc() || end != value.data() + value.size() ||
      !(n > 0 && n < 9e9))
    throw Problem(
        usage, fmt::format("--set {}: '{}' is no number of seconds from 1e-9 to 9e9", name, value));
  return std::max(std::chrono::nanoseconds(1),
                  std::chrono::nanoseconds(static_cast<std::int64_t>(n * 1e9)));
}

/// Settings of the process and of the run.
pn::RunOptions settle(const Run& options) {
  pn::Config config;
  pn::RunOptions run;
  for (const std::string& setting : options.settings) {
    const auto at = setting.find('=');
    const std::string name = setting.substr(0, at),
                      value = at == std::string::npos ? "" : setting.substr(at + 1);
    if (at == std::string::npos)
      throw Problem(usage, fmt::format("--set takes NAME=VALUE, got '{}'", setting));
    if (name == "cpu_devices")
      config.cpu_devices = number(name, value);
    else if (name == "max_reentry")
      config.max_reentry = number(name, value);
    else if (name == "plugin")
      config.plugin = value;
    else if (name == "cache_dir")
      config.cache_dir = value;
    else if (name == "deadline")
      run.deadline = seconds(name, value);
    else
      throw Problem(usage, fmt::format("--set: there is no setting '{}'; there are cpu_devices, "
                                       "plugin, cache_dir, max_reentry, deadline",
                                       name));
  }
  if (!options.timeline.empty()) setenv("POSTERN_TIMELINE", options.timeline.c_str(), 1);
  if (options.json) run.sink = &std::cerr;  // what the program prints is not its results
  pn::configure(config);
  return run;
}

/// What prints what a tap or hook is shown: with `json` all of it, an object a line.
pn::Callee printer(const char* kind, bool json) {
  return [kind, json](const pn::TapInfo& info, std::span<const pn::AnyView> leaves) {
    std::string line = fmt::format("{}:", info.name);
    Json values = Json::array();
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const std::string path = i < info.paths.size() ? info.paths[i] : "";
      if (json)
        values.push_back(
            {{"path", path},
             {"type", pn::to_string(leaves[i].type())},
             {"value", command::json_of(pn::Tensor(leaves[i].type(), leaves[i].data()))}});
      else
        line += fmt::format(" {}{}", path.empty() ? "" : path + " = ", pn::to_string(leaves[i]));
    }
    if (json) line = Json{{kind, info.name}, {"values", std::move(values)}}.dump();
    static std::mutex one;
    std::scoped_lock lock(one);
    (json ? std::cerr : std::cout) << line << '\n';
  };
}

/// A table of what taps were shown; with `json` an object a line.
std::string shown(const pn::listen::Stats& stats, bool json) {
  if (!json) return stats.table();
  std::string out;
  const auto number = [](double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); };
  for (const pn::listen::Series& s : stats.series())
    out += Json{{"tap", s.name},
                {"path", s.path},
                {"firings", s.firings},
                {"count", s.all.count},
                {"nan", s.all.nan},
                {"inf", s.all.inf},
                {"min", number(s.all.min)},
                {"max", number(s.all.max)},
                {"mean", number(s.all.mean)},
                {"rms", number(s.all.rms)}}
               .dump() +
           "\n";
  return out;
}

/// Hooks that the user wants to see print, or are served by a process.
void bind_hooks(const pn::Loaded& program, const Run& options, Processes& processes,
                pn::RunOptions& run) {
  std::set<std::string> known;
  for (const pn::SavedSite& site : program.sites())
    if (site.kind == "hook") known.insert(site.name);
  for (const auto& [name, command] : options.hooks) {
    if (name != "all" && !known.contains(name))
      throw Problem(
          usage, fmt::format("--hook: the program has no hook '{}'; it has {}", name,
                             known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
    const pn::Callee fn =
        command.empty() ? printer("hook", options.json) : processes.listen(name, command);
    for (const std::string& hook : name == "all" ? known : std::set{name})
      run.hooks.push_back({hook, fn});
  }
}

/// The program with a tap at each operation that matches.
pn::Loaded with_taps(const pn::Loaded& program, const std::string& pattern,
                     const std::set<std::string>& taps, const pn::Callee& shower) {
  try {
    return program.with_tap(pattern, shower);
  } catch (const pn::TypeError& e) {
    throw Problem(
        usage,
        fmt::format("--tap: the program has no tap '{}'; it has {}. {}", pattern,
                    taps.empty() ? "none" : fmt::format("{}", fmt::join(taps, ", ")), e.what()));
  }
}

/// Lets the taps that the user wants to see show it, and taps the operations that match.
pn::Loaded show_taps(pn::Loaded program, const std::vector<std::string>& wanted,
                     const pn::Callee& shower) {
  std::set<std::string> known;
  std::map<std::string, std::string> shown;  // function, name of a tap that calls it
  std::vector<const pn::SavedSite*> others;
  for (const pn::SavedSite& site : program.sites()) {
    if (site.kind == "call" || site.function.empty()) continue;
    known.insert(site.name);
    if (std::ranges::find(wanted, site.name) == wanted.end() &&
        std::ranges::find(wanted, "all") == wanted.end()) {
      others.push_back(&site);
      continue;
    }
    shown[site.function] = site.name;
    pn::register_function(site.function, shower, {.replace = true});
  }
  // What prints has taken the place of the function that these would call.
  for (const pn::SavedSite* const other : others)
    if (const auto found = shown.find(other->function); found != shown.end())
      throw Problem(
          usage,
          fmt::format("--tap {}: the tap '{}' calls '{}' too: show both, with --tap '{}' or all",
                      found->second, other->name, other->function, other->name));
  for (const std::string& name : wanted)
    if (name != "all" && !known.contains(name)) program = with_taps(program, name, known, shower);
  return program;
}

void check_functions(const pn::Loaded& program, const pn::RunOptions& run) {
  const std::vector<std::string> there = pn::registered_functions();
  std::string missing;
  for (const pn::SavedSite& site : program.sites())
    if (!site.function.empty() && std::ranges::find(there, site.function) == there.end() &&
        std::ranges::find(run.hooks, site.name, &pn::HookBinding::name) == run.hooks.end())
      missing += fmt::format("\n  {} ({} '{}' at {})", site.function, site.kind, site.name,
                             pn::to_string(site.place));
  if (!missing.empty())
    throw Problem(usage, fmt::format("the program calls functions that nobody serves:{}\nGive them "
                                     "with --library LIB.so or --function "
                                     "NAME=COMMAND{}",
                                     missing,
                                     missing.find("tap") != std::string::npos
                                         ? ", or see what a tap shows with --tap NAME"
                                         : ""));
}

/// Waits for asynchronous taps. With a deadline no longer than that: what serves one may never take
/// what it is shown.
void deliver(std::chrono::nanoseconds limit) {
  if (limit.count() == 0) return pn::barrier();
  if (const std::size_t left = pn::barrier(limit); left > 0)
    throw Problem(failed, fmt::format("{} firings of taps were not delivered within the deadline "
                                      "of {:g} s, from the run's end",
                                      left, std::chrono::duration<double>(limit).count()));
}

}  // namespace

// Everything that can be refused is looked at before the first run: options, functions, inputs,
// folders. Settings come first, because Postern takes none once it is in use, and libraries before
// the program, which is read by what they bring. Functions are looked for once commands and shown
// taps are registered; a replay needs none, as it has their results.
//
// Then the program runs as often as asked, one run after the other; the results of the last are
// written or printed, once all that taps were shown has been delivered and the recording is closed:
// what fails there leaves no results behind. With --json they and the times are one line at the
// end. Returns `ok`; throws Problem, with the code that the command ends with, or Postern's Error.
int run(const Run& options) {
  pn::RunOptions how = settle(options);
  for (const std::string& path : options.libraries) pn::load_library(path);
  pn::Loaded program = pn::load(options.program, {.entry = options.entry});
  const pn::listen::Stats stats;
  Processes processes;
  for (const auto& [name, command] : options.functions) processes.serve(name, command);
  program = show_taps(program, options.taps,
                      options.stats ? pn::Callee(stats) : printer("tap", options.json));
  bind_hooks(program, options, processes, how);
  if (options.replay.empty()) check_functions(program, how);
  const std::vector<pn::Tensor> arguments = read_inputs(options.inputs, options.named, program);
  if (!options.out.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.out, error);
    if (error) throw Problem(bad_file, fmt::format("{}: {}", options.out, error.message()));
  }

  std::optional<pn::Taping> taping;
  if (!options.record.empty()) taping.emplace(pn::record(options.record));
  if (!options.replay.empty()) taping.emplace(pn::replay(options.replay));
  const bool progress = isatty(STDERR_FILENO) && options.repeat > 1;
  std::vector<double> milliseconds;
  std::vector<pn::Tensor> results;
  for (std::int64_t i = 0; i < options.repeat; ++i) {
    if (progress) std::cerr << fmt::format("\rrun {} of {} ", i + 1, options.repeat) << std::flush;
    const auto start = std::chrono::steady_clock::now();
    const auto started = program.start(arguments, how);
    if (started.wait() == pn::RunStatus::stopped)
      throw Problem(failed, "a host function ended the run early: it has no results");
    results = started.result();
    for (const pn::Tensor& t : results) t.block_until_ready();
    milliseconds.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count());
  }
  deliver(how.deadline);
  if (taping) taping->close();
  if (progress) std::cerr << '\r' << std::string(40, ' ') << '\r';
  if (options.stats) (options.json ? std::cerr : std::cout) << shown(stats, options.json);

  if (!options.expect.empty())
    return as_expected(results, program, options.expect, options.tolerance) ? ok : failed;
  Json json = {{"results", Json::array()}};
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string file =
        options.out.empty()
            ? ""
            : (std::filesystem::path(options.out) / fmt::format("out{}.npy", i)).string();
    if (!file.empty()) pn::write_npy(file, results[i]);
    const std::string type = pn::to_string(results[i].type());
    Json result = {{"type", type}};
    const std::string& name = program.output_names()[i];
    if (!name.empty()) result["name"] = name;
    if (file.empty())
      result["value"] = json_of(results[i]);
    else
      result["file"] = file;
    if (!options.json)
      std::cout << (file.empty() ? fmt::format("{} {}", type, pn::to_string(results[i])) : file)
                << '\n';
    json["results"].push_back(std::move(result));
  }
  if (options.time) {
    const double first = milliseconds.front();
    std::ranges::sort(milliseconds);
    const double median = milliseconds[milliseconds.size() / 2];
    json["first_ms"] = first;
    json["median_ms"] = median;
    if (!options.json)
      std::cout
          << (options.repeat > 1
                  ? fmt::format(
                        "{:.3g} ms at the median of {} runs; the first, with compiling, {:.3g} ms",
                        median, options.repeat, first)
                  : fmt::format("{:.3g} ms, with compiling", first))
          << '\n';
  }
  if (options.json) std::cout << json.dump() << '\n';
  if (!options.timeline.empty())
    pn::write_timeline(options.timeline);  // once more at the end of the process, which cannot fail
  return ok;
}

}  // namespace command
