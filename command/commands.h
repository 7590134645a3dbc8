// What the command can do. Each returns the exit code.
#pragma once
#include <postern/postern.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace command {

/// Exit codes: the run failed; the command line is wrong; a file cannot be read, written or
/// understood.
enum Exit : int { ok = 0, failed = 1, usage = 2, bad_file = 3 };

/// Something that the user can mend, with the exit code that says what kind of thing it is.
struct Problem : std::runtime_error {
  Problem(Exit code, const std::string& text) : std::runtime_error(text), exit(code) {}
  Exit exit;
};

struct Run {
  std::string program;
  std::string entry;                // the function; empty: @main, or the only one
  std::vector<std::string> inputs;  // files, or values as text
  std::vector<std::string> named;   // files of arrays that have the inputs' names
  std::vector<std::string> libraries;
  std::vector<std::pair<std::string, std::string>>
      functions;                  // name, command of the process that serves it
  std::vector<std::string> taps;  // to show: names, or "all"
  std::vector<std::pair<std::string, std::string>> hooks;  // name or "all", command; empty: to show
  std::vector<std::string> settings;                       // name=value
  std::string out, timeline, record, replay;
  std::int64_t repeat = 1;
  bool time = false, json = false, stats = false;
  std::string expect;  // a file of what the results must be
  double tolerance = 1e-6;
};
int run(const Run& options);

struct Attach {
  std::string process;                                         // its number, or a URL
  std::vector<std::string> hooks;                              // names
  std::vector<std::pair<std::string, std::string>> listeners;  // their kinds, with a file or folder
  std::int64_t every = 1, until = 0, keep_last = 0;
  double seconds = 0;
  bool json = false;
};
int attach(const Attach& options);

int show(const std::string& program, const std::string& entry, bool operations, bool json);
int doctor(bool json);
/// One timeline of those that the processes of a job wrote; says who waited for whom.
int merge_timelines(const std::string& to, const std::vector<std::string>& files);

}  // namespace command
