// postern merge-timelines: the timelines of a job's processes become one.
//
// A timeline of Postern's has one event a line, so files of any length are read twice, line by
// line: first for what the collectives took, then to be written with the common clock.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "commands.h"

namespace command {

namespace {

using Json = nlohmann::json;

/// One process's part in a collective, in microseconds of process 0's clock.
struct Part {
  int process;
  std::int64_t thread;
  double begin, end;
};
/// Run among those over processes, number in it, device, who takes part: the same on all of them.
using Meeting = std::tuple<std::uint64_t, std::uint64_t, int, std::string>;

constexpr std::string_view begin_of_all = "{\"traceEvents\":[\n", end_of_merged = "\n]}\n";

struct Timeline {
  std::string file;
  int process = 0;
  double begin = 0;  // of the file's clock
  double clock_error = 0;
};

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw Problem(bad_file, fmt::format("{}: {}", file, why));
}

std::optional<Json> object_in(std::string_view line) {
  while (!line.empty() && (line.back() == ',' || line.back() == '\r')) line.remove_suffix(1);
  Json json = Json::parse(line, nullptr, false);
  if (json.is_discarded() || !json.is_object()) return std::nullopt;
  return json;
}

/// Calls f(event) for each event of the file; what it says of itself.
template <class F>
Timeline read(const std::string& file, const F& f) {
  std::error_code none;
  const auto kind = std::filesystem::status(file, none).type();
  std::ifstream in;
  if (kind == std::filesystem::file_type::regular) in.open(file);
  if (!in.is_open()) refuse(file, "cannot be read");
  std::string line;
  if (!std::getline(in, line) || line + '\n' != begin_of_all)
    refuse(file, "is no timeline that Postern wrote");
  std::optional<Timeline> timeline;
  constexpr std::string_view other = "\"otherData\":";
  while (std::getline(in, line)) {
    if (line == "],") continue;
    if (line.starts_with(other)) {
      line.pop_back();  // the brace of the whole
      const auto json = object_in(std::string_view(line).substr(other.size()));
      if (!json || !json->contains("process")) break;
      timeline = {file, json->at("process").get<int>(), json->at("begin").get<double>(),
                  json->at("clock_error").get<double>()};
      continue;
    }
    const auto event = object_in(line);
    if (!event) refuse(file, "is damaged: a line of it is no event");
    f(*event);
  }
  if (!timeline) refuse(file, "is cut, or from a Postern that did not say whose events they are");
  return *timeline;
}

bool is_meeting(const Json& event) {
  return event.contains("args") && event["args"].contains("job_run");
}
Meeting meeting_of(const Json& event) {
  const Json& a = event.at("args");
  return {a.at("job_run").get<std::uint64_t>(), a.at("number").get<std::uint64_t>(),
          a.at("device").get<int>(), a.at("processes").get<std::string>()};
}

/// Refuses to make the merged file of a timeline that one process wrote: where OUT was forgotten,
/// the first of these stands in its place.
void check_place(const std::string& to, const std::vector<std::string>& files) {
  std::error_code none;
  for (const std::string& file : files)
    if (std::filesystem::equivalent(to, file, none))
      throw Problem(usage, fmt::format("{}: is among the timelines to be merged; the first name is "
                                       "that of the file to be made",
                                       to));
  if (!std::filesystem::is_regular_file(to, none)) return;
  std::ifstream in(to, std::ios::binary);
  std::string begin(begin_of_all.size(), ' '), end(end_of_merged.size(), ' ');
  in.read(begin.data(), std::ssize(begin));
  in.seekg(-std::ssize(end), std::ios::end).read(end.data(), std::ssize(end));
  if (in && begin == begin_of_all && end != end_of_merged)
    throw Problem(usage, fmt::format("{}: is a timeline of one process, and no merged one to be "
                                     "replaced; the first name is that of the file to be made",
                                     to));
}

/// The merged file. It is written beside and takes its place in end(), when all of it is on disk;
/// what is no regular file (a pipe) is written as it comes.
class Output {
 public:
  explicit Output(const std::string& file) : file_(file), place_(file) {
    struct stat about {};
    const bool there = ::stat(file.c_str(), &about) == 0;
    const bool as_it_comes = there && !S_ISREG(about.st_mode);
    if (there && ::access(file.c_str(), W_OK) != 0) fail();
    const int handle = as_it_comes ? ::open(file.c_str(), O_WRONLY | O_CLOEXEC) : open_beside();
    if (handle < 0) fail();
    if (there && !as_it_comes) static_cast<void>(::fchmod(handle, about.st_mode & 07777));
    out_.reset(::fdopen(handle, "w"));
    write(begin_of_all);
  }
  ~Output() {
    if (!beside_.empty()) ::unlink(beside_.c_str());
  }
  Output(const Output&) = delete;

  void add(const Json& event) {
    write((first_ ? "" : ",\n") + event.dump());
    first_ = false;
  }
  void end() {
    write(end_of_merged);
    if (std::fflush(out_.get()) != 0) fail();
    if (beside_.empty()) return;
    if (::fsync(::fileno(out_.get())) != 0 || ::rename(beside_.c_str(), place_.c_str()) != 0)
      fail();
    beside_.clear();
  }

 private:
  int open_beside() {
    std::error_code none;  // through a link to the file itself
    if (const auto real = std::filesystem::canonical(file_, none); !none) place_ = real;
    for (int n = 0;; ++n) {
      const std::string name = place_.parent_path() / fmt::format(".postern-{}-{}", ::getpid(), n);
      const int handle = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (handle >= 0) beside_ = name;
      if (handle >= 0 || errno != EEXIST) return handle;
    }
  }
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  void write(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), out_.get()) != text.size()) fail();
  }
  [[noreturn]] void fail() const {
    refuse(file_, fmt::format("cannot be written: {}", std::strerror(errno)));
  }

  const std::string file_;
  std::filesystem::path place_;
  std::string beside_;  // empty if written as it comes, or in its place
  std::unique_ptr<std::FILE, Close> out_;
  bool first_ = true;
};

struct Waits {
  double microseconds = 0;
  std::uint64_t collectives = 0;
};

}  // namespace

// First each file is read for its place on the common clock and for its part in each meeting; two
// of one process are refused before anything is written. Then all events are written, with their
// process and the common time, and behind them who waited for whom: a wait shorter than the clocks
// differ by is none. Each pair's sum is printed at the end.
int merge_timelines(const std::string& to, const std::vector<std::string>& files) {
  check_place(to, files);
  std::vector<Timeline> timelines;
  std::map<Meeting, std::vector<Part>> meetings;
  for (const std::string& file : files) {
    std::vector<std::pair<Meeting, Part>> parts;
    const Timeline timeline = read(file, [&](const Json& e) {
      if (!is_meeting(e)) return;
      const double begin = e.at("ts").get<double>();
      parts.emplace_back(meeting_of(e), Part{0, e.at("tid").get<std::int64_t>(), begin,
                                             begin + e.at("dur").get<double>()});
    });
    for (const Timeline& other : timelines)
      if (other.process == timeline.process)
        refuse(file, fmt::format("is of process {}, and so is {}", timeline.process, other.file));
    for (auto& [meeting, part] : parts) {
      part.process = timeline.process;
      part.begin += timeline.begin;
      part.end += timeline.begin;
      meetings[std::move(meeting)].push_back(part);
    }
    timelines.push_back(timeline);
  }
  double zero = timelines.front().begin, error = 0;
  for (const Timeline& t : timelines) {
    zero = std::min(zero, t.begin);
    error = std::max(error, t.clock_error);
  }

  Output out(to);
  for (const Timeline& t : timelines) {
    out.add({{"name", "process_name"},
             {"ph", "M"},
             {"pid", t.process},
             {"args", {{"name", fmt::format("process {}", t.process)}}}});
    out.add({{"name", "process_sort_index"},
             {"ph", "M"},
             {"pid", t.process},
             {"args", {{"sort_index", t.process}}}});
    read(t.file, [&](Json e) {
      e["pid"] = t.process;
      if (e.contains("ts")) e["ts"] = e["ts"].get<double>() + t.begin - zero;
      out.add(e);
    });
  }

  std::map<std::pair<int, int>, Waits> waits;  // who, for whom
  std::uint64_t arrow = 0;
  for (const auto& [meeting, parts] : meetings) {
    const Part& last = *std::ranges::max_element(parts, {}, &Part::begin);
    for (const Part& p : parts) {
      const double waited = std::min(last.begin, p.end) - p.begin;
      if (p.process == last.process || waited <= error) continue;
      Waits& sum = waits[{p.process, last.process}];
      sum.microseconds += waited;
      ++sum.collectives;
      out.add({{"name", fmt::format("waits for process {}", last.process)},
               {"cat", "wait"},
               {"ph", "X"},
               {"ts", p.begin - zero},
               {"dur", waited},
               {"pid", p.process},
               {"tid", p.thread}});
      const Json both = {{"name", "comes last"}, {"cat", "wait"}, {"id", ++arrow}};
      Json from = both, into = both;
      from.update(
          {{"ph", "s"}, {"ts", last.begin - zero}, {"pid", last.process}, {"tid", last.thread}});
      into.update({{"ph", "f"},
                   {"bp", "e"},
                   {"ts", p.begin + waited - zero},
                   {"pid", p.process},
                   {"tid", p.thread}});
      out.add(from);
      out.add(into);
    }
  }
  out.end();
  for (const auto& [who, sum] : waits)
    std::cout << fmt::format("process {} waited {:.3f} ms for process {}, in {} collectives\n",
                             who.first, sum.microseconds / 1000, who.second, sum.collectives);
  return ok;
}

}  // namespace command
