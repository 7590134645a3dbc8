// postern doctor.
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "commands.h"

namespace command {

namespace pn = postern;
using Json = nlohmann::json;

namespace {

struct Check {
  std::string name, what, cure;  // cure: empty when all is well
};

/// A program that is compiled, run, and calls back.
Check self_test() {
  int calls = 0;
  const auto f = pn::jit([&](pn::Tensor x) {
    return pn::call(
        x.type(),
        [&](pn::View<const float> in, pn::View<float> out) {
          ++calls;
          out[0] = in[0] + 1;
        },
        x * 2.0f);
  });
  const float got = f(pn::tensor<float>({3})).to_vector<float>().at(0);
  if (got == 7 && calls == 1)
    return {"self-test", "a compiled program called a function of this process and got its result",
            ""};
  return {"self-test",
          fmt::format("a compiled program gave {} in place of 7, with {} calls", got, calls),
          "the plug-in is not to be trusted"};
}

/// What the process has of one platform.
void check_platform(const pn::PluginInfo& plugin, const std::function<void(const Check&)>& tell) {
  const std::vector<pn::DeviceInfo> devices = pn::devices(plugin.platform);
  tell({"plug-in", plugin.path, ""});
  tell({"PJRT", fmt::format("{}.{}", plugin.api_major, plugin.api_minor), ""});
  tell({"devices", fmt::format("{} of kind {}", devices.size(), plugin.platform), ""});
  tell(plugin.calls_back
           ? Check{"calls", "compiled programs can call functions of the process", ""}
           : Check{"calls", "compiled programs cannot call back: those with calls run in stages",
                   ""});
  tell({"extensions", fmt::format("{}", fmt::join(plugin.extensions, ", ")), ""});
  tell({"memory", fmt::format("{}", fmt::join(plugin.memory_kinds, ", ")), ""});
  const pn::DeviceScope there(devices.front().ordinal);
  tell(self_test());
}

Check cache() {
  const char* folder = std::getenv("POSTERN_CACHE_DIR");
  if (!folder || !*folder)
    return {"cache",
            "none: programs are compiled in each process anew (POSTERN_CACHE_DIR names a folder)",
            ""};
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const bool writable = !error && access(folder, W_OK | X_OK) == 0;
  return {"cache", folder,
          writable ? "" : "the folder cannot be written: choose another with POSTERN_CACHE_DIR"};
}

}  // namespace

namespace {

void check_platforms(const std::function<void(const Check&)>& tell) {
  try {
    std::string last;
    for (const pn::DeviceInfo& device : pn::devices()) {
      if (std::exchange(last, device.kind) == device.kind) continue;
      check_platform(pn::plugin_info(device.kind), tell);
    }
  } catch (const std::exception& e) {
    tell({"plug-in", e.what(),
          "name a PJRT plug-in that can be used here with POSTERN_PLUGIN; scripts/bootstrap "
          "fetches the usual one"});
  }
}

/// What a process has told by its end of a pipe, in lines, when it has ended, or after so long,
/// when it is ended.
std::vector<std::string> lines_of(pid_t process, int pipe, std::chrono::seconds limit,
                                  int& status) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::string text;
  for (bool more = true; more;) {
    using namespace std::chrono;
    const auto left = duration_cast<milliseconds>(end - steady_clock::now());
    pollfd file{pipe, POLLIN, 0};
    more = left.count() > 0 && poll(&file, 1, static_cast<int>(left.count())) > 0;
    char part[4096];
    if (const ssize_t n = more ? read(pipe, part, sizeof part) : 0; n > 0)
      text.append(part, static_cast<std::size_t>(n));
    else if (more)
      break;
    if (!more) kill(process, SIGKILL);
  }
  waitpid(process, &status, 0);
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Checks the platforms in a process of its own, which a plug-in may end.
void check_platforms_apart(std::vector<Check>& checks) {
  constexpr std::chrono::seconds limit(120);
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("doctor: there is no pipe");
  std::cout.flush();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("doctor: there is no process");
  if (child == 0) {
    close(ends[0]);
    check_platforms([&](const Check& c) {
      const std::string line = Json{c.name, c.what, c.cure}.dump() + "\n";
      if (write(ends[1], line.data(), line.size()) < 0) _exit(failed);
    });
    _exit(ok);
  }
  close(ends[1]);
  int status = 0;
  for (const std::string& line : lines_of(child, ends[0], limit, status)) {
    const Json c = Json::parse(line);
    checks.push_back({c.at(0), c.at(1), c.at(2)});
  }
  close(ends[0]);
  if (WIFEXITED(status) && WEXITSTATUS(status) == ok) return;
  std::string how = fmt::format("ended with exit code {}", WEXITSTATUS(status));
  if (WIFSIGNALED(status)) how = fmt::format("was ended by signal {}", WTERMSIG(status));
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
    how = fmt::format("was still at work after {} s", limit.count());
  std::string at = "opened the plug-in";
  if (checks.size() > 1) at = "compiled and ran a program";
  checks.push_back({"plug-in", fmt::format("a process that {} {}", at, how),
                    "the plug-in does not bear this machine or this version of Postern: name "
                    "another with POSTERN_PLUGIN"});
}

}  // namespace

int doctor(bool json) {
  std::vector<Check> checks{{"postern", POSTERN_VERSION, ""}};
  check_platforms_apart(checks);
  checks.push_back(cache());
  bool well = true;
  Json list = Json::array();
  for (const Check& c : checks) {
    well = well && c.cure.empty();
    list.push_back({{"name", c.name}, {"what", c.what}, {"ok", c.cure.empty()}, {"cure", c.cure}});
    if (!json)
      std::cout << fmt::format("{:<10} {}  {}\n", c.name, c.cure.empty() ? "ok" : "!!", c.what)
                << (c.cure.empty() ? "" : fmt::format("{:<14} {}\n", "", c.cure));
  }
  if (json) std::cout << Json{{"ok", well}, {"checks", list}}.dump(2) << '\n';
  return well ? ok : failed;
}

}  // namespace command
