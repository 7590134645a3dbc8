// postern: runs, shows and checks from a shell.
#include <fcntl.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>

#include "commands.h"

namespace {

constexpr const char* completion = R"(# bash: source <(postern completion)
_postern() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options
  case $before in
    --out) COMPREPLY=($(compgen -d -- "$word")); return ;;
    --library | --timeline | --record | --replay) COMPREPLY=($(compgen -f -- "$word")); return ;;
    --set)
      options="cpu_devices= plugin= cache_dir= max_reentry= deadline="
      COMPREPLY=($(compgen -W "$options" -- "$word")); return ;;
    --tap | --hook) COMPREPLY=($(compgen -W "all" -- "$word")); return ;;
  esac
  if [ "$COMP_CWORD" = 1 ]; then
    options="run show check attach doctor merge-timelines completion --help --version"
    COMPREPLY=($(compgen -W "$options" -- "$word")); return
  fi
  case ${COMP_WORDS[1]} in
    run)
      options="--args --entry --library --function --tap --hook --set --out --repeat --time"
      options+=" --timeline --record --replay --json --help" ;;
    attach)
      options="--stats --histogram --print --non-finite --stop-at-non-finite --record --checkpoint"
      options+=" --end --every --until --keep-last --seconds --json --help" ;;
    show) options="--entry --json --help" ;;
    check) options="--args --entry --library --expect --tolerance --help" ;;
    doctor) options="--json --help" ;;
  esac
  if [ -n "$options" ] && [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word")); return
  fi
  COMPREPLY=($(compgen -f -- "$word"))
}
complete -o filenames -F _postern postern
)";

/// "NAME=COMMAND".
std::pair<std::string, std::string> named(const std::string& text) {
  const auto at = text.find('=');
  if (at == 0 || at == std::string::npos || at + 1 == text.size())
    throw command::Problem(command::usage, "NAME=COMMAND is wanted, got '" + text + "'");
  return {text.substr(0, at), text.substr(at + 1)};
}

void add_attach(CLI::App& app, command::Attach& options) {
  app.add_option("PROCESS", options.process,
                 "the number of a process of this machine that has live hooks, or the URL of a "
                 "live page")
      ->required();
  app.add_option("HOOK", options.hooks, "names, or numbers as '#3'; 'all': every live hook");
  const auto flag = [&](const std::string& name, const std::string& kind, const char* does) {
    app.add_flag_callback(
        name, [&options, kind] { options.listeners.emplace_back(kind, ""); }, does);
  };
  const auto file = [&](const std::string& name, const std::string& kind, const char* does) {
    app.add_option_function<std::string>(
        name,
        [&options, kind](const std::string& path) { options.listeners.emplace_back(kind, path); },
        does);
  };
  flag("--stats", "stats", "show mean, min and max of what passes");
  flag("--histogram", "histogram", "show how it is spread");
  flag("--print", "print", "print it");
  flag("--non-finite", "non-finite", "say where the first nan or infinity is");
  flag("--stop-at-non-finite", "stop at non-finite", "end the run with an error at the first one");
  file("--record", "record", "keep what passes in this .npy or .npz file");
  file("--checkpoint", "checkpoint", "keep what passes next as a checkpoint in this folder");
  flag("--end", "end", "end the run that passes next, without an error");
  app.add_option("--every", options.every, "only every n-th firing")->check(CLI::PositiveNumber);
  app.add_option("--until", options.until, "only so many of these")->check(CLI::PositiveNumber);
  app.add_option("--keep-last", options.keep_last,
                 "look at copies, beside the program, which loses all but the last so many")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "look for so long")->check(CLI::PositiveNumber);
  app.add_flag("--json", options.json, "print JSON, an object a line");
  app.footer(
      "Without listeners: lists the live hooks. What is turned on ends with the command.\n"
      "Example: postern attach 4711 gradient --stats --every 10");
}

/// Where stdin, stdout or stderr is closed the next file that is opened would take its place, and
/// get our output.
void fill_standard_files() {
  for (const int file : {0, 1, 2})
    if (fcntl(file, F_GETFD) == -1 && errno == EBADF)
      open("/dev/null", file == 1 ? O_RDONLY : O_RDWR);
}

/// The exit code, now that all output was made: what did not arrive was not done.
int written(int code) {
  errno = 0;
  std::cout.flush();
  if (std::cout.good()) return code;
  const std::string why = errno ? std::string(": ") + std::strerror(errno) : "";
  std::cerr << "postern: the output cannot be written" << why << '\n';
  return code == command::ok ? command::bad_file : code;
}

int act(int count, char** arguments) try {
  std::signal(SIGPIPE,
              SIG_IGN);  // a process that serves a function may die; writing to it then fails
  CLI::App app(
      "Runs saved programs, and StableHLO programs from elsewhere, whose calls reach host "
      "functions; listens at hooks of processes that run.",
      "postern");
  app.set_version_flag("--version", "postern " POSTERN_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 all is well, 1 the run failed, 2 the command line is wrong, 3 a file cannot "
      "be read, written or understood.");

  command::Run options;
  std::vector<std::string> functions, hooks;
  CLI::App* const run = app.add_subcommand("run", "Run a program and print or keep its results");
  run->add_option("PROGRAM", options.program, "what postern::save wrote, or StableHLO text")
      ->required();
  run->add_option("INPUT", options.inputs,
                  "one for each input: a .npy file, a .npz file (its arrays in order), or numbers "
                  "such as '[1, 2.5]'");
  const auto add_entry = [](CLI::App& to, std::string& entry) {
    to.add_option("--entry", entry, "the function, where the program has several");
  };
  const auto add_named = [&options](CLI::App& to) {
    to.add_option("--args", options.named,
                  "a .npz or .safetensors file whose arrays have inputs' names; INPUTs are the "
                  "others, in order")
        ->allow_extra_args(false);
  };
  add_entry(*run, options.entry);
  add_named(*run);
  run->add_option("--library", options.libraries,
                  "load this shared object first: it may register functions and kernels")
      ->allow_extra_args(false);
  run->add_option("--function", functions,
                  "NAME=COMMAND: the function is served by this process: a .npy message for each "
                  "operand on its stdin, one for each result "
                  "on its stdout; its attributes are in POSTERN_ATTRIBUTES as JSON")
      ->allow_extra_args(false);
  CLI::Option* const taps =
      run->add_option(
             "--tap", options.taps,
             "print what this tap shows ('all': every tap), in place of calling its function; or "
             "a pattern, 'layer_3/*': the results of the operations of that name, kind or line")
          ->allow_extra_args(false);
  run->add_flag("--stats", options.stats,
                "print a table of what --tap shows, at the end, in place of the values")
      ->needs(taps);
  run->add_option("--hook", hooks,
                  "print what this hook shows ('all': every hook), or NAME=COMMAND: this process "
                  "listens there, as --function has it")
      ->allow_extra_args(false);
  run->add_option(
         "--set", options.settings,
         "NAME=VALUE: cpu_devices, plugin, cache_dir, max_reentry, or deadline (seconds for a run)")
      ->allow_extra_args(false);
  run->add_option("--out", options.out,
                  "write the results to this folder as out0.npy, out1.npy, ...");
  run->add_option("--repeat", options.repeat, "run so many times")->check(CLI::PositiveNumber);
  run->add_flag("--time", options.time, "say how long it took");
  run->add_option("--timeline", options.timeline,
                  "write a timeline to this file, for Perfetto or chrome://tracing");
  CLI::Option* const record = run->add_option("--record", options.record,
                                              "keep what its functions see and give in this file");
  run->add_option("--replay", options.replay,
                  "take what functions give from this recording: none is called")
      ->excludes(record);
  run->add_flag("--json", options.json,
                "print one JSON object; what taps and hooks show goes to stderr, an object a line");
  run->footer(
      "Example: postern run model.mlir image.npy --function 'scores.log=python3 log.py' --out "
      "results --time");

  std::string program;
  bool json = false, operations = false;
  CLI::App* const show =
      app.add_subcommand("show", "Show a program's inputs, outputs, calls and taps");
  show->add_option("PROGRAM", program, "what postern::save wrote, or StableHLO text")->required();
  add_entry(*show, options.entry);
  show->add_flag("--operations", operations,
                 "list its operations too: what `postern run --tap PATTERN` finds them by");
  show->add_flag("--json", json, "print one JSON object");
  CLI::App* const check =
      app.add_subcommand("check", "Run a program and compare its results with what they must be");
  check->add_option("PROGRAM", options.program, "what postern::save wrote, or from elsewhere")
      ->required();
  check->add_option("INPUT", options.inputs, "as for run");
  add_entry(*check, options.entry);
  add_named(*check);
  check
      ->add_option("--expect", options.expect,
                   "a .npz file whose arrays have results' names, or are in their order; or .npy")
      ->required();
  check->add_option("--tolerance", options.tolerance,
                    "the greatest difference, or part of what is expected where that is more than "
                    "1 (1e-6)");
  check->add_option("--library", options.libraries, "as for run")->allow_extra_args(false);
  check->footer("Example: postern check model.jax input.npy --expect output.npz --tolerance 1e-5");
  CLI::App* const doctor =
      app.add_subcommand("doctor", "Check that everything that programs need is here and works");
  doctor->add_flag("--json", json, "print one JSON object");
  command::Attach attached;
  CLI::App* const attach =
      app.add_subcommand("attach", "List the live hooks of a process that runs, and listen there");
  add_attach(*attach, attached);
  std::string merged;
  std::vector<std::string> timelines;
  CLI::App* const merge = app.add_subcommand(
      "merge-timelines", "Make one timeline of those that the processes of a job wrote");
  merge->add_option("OUT", merged, "the file to write, for Perfetto or chrome://tracing")
      ->required();
  merge->add_option("TIMELINE", timelines, "what POSTERN_TIMELINE had each process write")
      ->required();
  merge->footer(
      "Example: POSTERN_TIMELINE=timeline.json mpirun -n 2 ./program && postern merge-timelines "
      "all.json timeline.0.json timeline.1.json");
  CLI::App* const complete = app.add_subcommand("completion", "Print a completion script for bash");

  try {
    // From the last to the first. CLI11 takes words in brackets for lists of its own, unless a
    // space comes first.
    std::vector<std::string> words;
    for (int i = count; i-- > 1;)
      words.push_back((*arguments[i] == '[' ? " " : "") + std::string(arguments[i]));
    app.parse(std::move(words));
    for (std::string& input : options.inputs)
      if (input.starts_with(" [")) input.erase(0, 1);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? command::ok : command::usage;
  }
  if (complete->parsed()) std::cout << completion;
  if (show->parsed()) return command::show(program, options.entry, operations, json);
  if (check->parsed()) return command::run(options);
  if (doctor->parsed()) return command::doctor(json);
  if (attach->parsed()) {
    if (attached.listeners.empty() != attached.hooks.empty())
      throw command::Problem(command::usage,
                             attached.hooks.empty()
                                 ? "attach: name the hooks to listen at, or 'all'"
                                 : "attach: say what is to listen there, such as --stats");
    return command::attach(attached);
  }
  if (merge->parsed()) return command::merge_timelines(merged, timelines);
  if (run->parsed()) {
    for (const std::string& f : functions) options.functions.push_back(named(f));
    for (const std::string& h : hooks)
      options.hooks.push_back(h.find('=') == std::string::npos ? std::pair{h, std::string()}
                                                               : named(h));
    return command::run(options);
  }
  return command::ok;
} catch (const command::Problem& e) {
  std::cerr << "postern: " << e.what() << '\n';
  return e.exit;
} catch (const postern::CallbackError& e) {
  std::cerr << "postern: the run failed: " << e.what() << '\n';
  return command::failed;
} catch (const postern::TypeError& e) {
  std::cerr << "postern: " << e.what() << '\n';
  return command::usage;
} catch (const postern::Error& e) {
  std::cerr << "postern: " << e.what() << '\n';
  using Code = postern::ErrorCode;
  const bool file = e.code() == Code::not_found || e.code() == Code::data_loss ||
                    e.code() == Code::unavailable || e.code() == Code::invalid_argument ||
                    e.code() == Code::unimplemented;
  return file ? command::bad_file : command::failed;
} catch (const std::exception& e) {
  std::cerr << "postern: " << e.what() << '\n';
  return command::failed;
}

}  // namespace

int main(int count, char** arguments) {
  fill_standard_files();
  return written(act(count, arguments));
}
