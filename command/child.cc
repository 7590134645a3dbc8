// Messages to and from child processes. Nothing here waits without looking whether the run goes on.
#include "child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <postern/postern.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "commands.h"

extern char** environ;

namespace command {

namespace pn = postern;

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto patience = 5s;       // for a process to end by itself once its stdin has ended
constexpr auto last_patience = 1s;  // and once it was told to with SIGTERM

/// The processes that live, each the leader of a group of its own, so that what it started ends
/// with it. A signal that ends the command is passed on to them; beyond so many it is not.
constexpr int passed_on[] = {SIGINT, SIGTERM, SIGHUP};
std::array<std::atomic<pid_t>, 256> groups;

void pass_on(int signal) {
  for (const std::atomic<pid_t>& group : groups)
    if (const pid_t id = group.load(); id > 0) kill(-id, signal);
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void watch(pid_t id) {
  [[maybe_unused]] static const bool once = [] {
    for (const int signal : passed_on)
      if (std::signal(signal, pass_on) == SIG_IGN)
        std::signal(signal, SIG_IGN);  // such as below nohup
    return true;
  }();
  for (std::atomic<pid_t>& group : groups) {
    pid_t none = 0;
    if (group.compare_exchange_strong(none, id)) return;
  }
}

void forget(pid_t id) {
  for (std::atomic<pid_t>& group : groups) {
    pid_t expected = id;
    if (group.compare_exchange_strong(expected, 0)) return;
  }
}

}  // namespace

class Child {
 public:
  Child(const std::string& command, const std::string& attributes, const std::atomic<bool>& over)
      : command_(command), over_(over) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0) throw std::runtime_error(std::strerror(errno));
    if (pipe2(out, O_CLOEXEC) != 0) {
      const std::string why = std::strerror(errno);
      close(in[0]);
      close(in[1]);
      throw std::runtime_error(why);
    }
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in[0], 0);
    posix_spawn_file_actions_adddup2(&files, out[1], 1);
    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    sigset_t usual;
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    posix_spawnattr_setsigdefault(&how, &usual);
    posix_spawnattr_setpgroup(&how, 0);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    std::string variable = "POSTERN_ATTRIBUTES=" + attributes;
    std::vector<char*> environment;
    for (char** e = environ; *e; ++e)
      if (std::strncmp(*e, "POSTERN_ATTRIBUTES=", 19) != 0) environment.push_back(*e);
    environment.push_back(variable.data());
    environment.push_back(nullptr);
    std::string shell = "sh", flag = "-c", text = command;
    char* const arguments[] = {shell.data(), flag.data(), text.data(), nullptr};
    const int code = posix_spawn(&process_, "/bin/sh", &files, &how, arguments, environment.data());
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    close(in[0]);
    close(out[1]);
    to_ = in[1];
    from_ = out[0];
    if (code != 0) {
      end_input();
      throw std::runtime_error(
          fmt::format("'{}' could not be started: {}", command, std::strerror(code)));
    }
    watch(process_);
    fcntl(to_, F_SETFL, O_NONBLOCK);
    fcntl(from_, F_SETFL, O_NONBLOCK);
  }
  /// Ends the process, and what it started, also where it has ended itself.
  ~Child() {
    end_input();
    if (process_ <= 0) return;
    kill(-process_, SIGTERM);
    const auto limit = Clock::now() + last_patience;
    if (ended_until(limit))
      waitpid(process_, nullptr, 0);  // sh has; what it started may take longer
    bool lives = true;
    while ((lives = kill(-process_, 0) == 0) && Clock::now() < limit)
      std::this_thread::sleep_for(5ms);
    if (lives) kill(-process_, SIGKILL);
    forget(process_);
    waitpid(process_, nullptr, 0);
  }
  Child(const Child&) = delete;

  /// Its stdin ends, and nobody reads what it writes.
  void end_input() {
    for (int* const file : {&to_, &from_})
      if (*file >= 0) close(std::exchange(*file, -1));
  }
  /// Whether it has ended by then. It is still there to be asked how.
  bool ended_until(Clock::time_point limit) const {
    for (siginfo_t info{};; std::this_thread::sleep_for(5ms)) {
      if (waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
          info.si_pid != 0)
        return true;
      if (Clock::now() >= limit) return false;
    }
  }

  void send(const std::string& message, const pn::StopToken& stop) {
    for (std::size_t at = 0; at < message.size();) {
      wait(POLLOUT,
           stop);  // what comes back meanwhile is kept, so that neither side waits for the other
      const ssize_t n = write(to_, message.data() + at, message.size() - at);
      if (n < 0 && errno != EAGAIN && errno != EINTR)
        fail_ended("input", "had all of its operands");
      if (n > 0) at += static_cast<std::size_t>(n);
    }
  }
  void take(void* to, std::size_t bytes, const pn::StopToken& stop) {
    while (inbox_.size() - taken_ < bytes) {
      if (closed_) fail_ended("output", "had answered");
      wait(POLLIN, stop);
    }
    std::memcpy(to, inbox_.data() + taken_, bytes);
    taken_ += bytes;
    if (taken_ < inbox_.size()) return;
    inbox_.clear();
    taken_ = 0;
  }

 private:
  void wait(short what, const pn::StopToken& stop) {
    pollfd files[] = {{closed_ ? -1 : from_, POLLIN, 0}, {what == POLLOUT ? to_ : -1, POLLOUT, 0}};
    if (stop.stop_requested()) throw std::runtime_error("the run was stopped");
    if (over_)
      throw std::runtime_error(
          fmt::format("the process '{}' was ended with the command", command_));
    poll(files, 2, 20);
    if (!(files[0].revents & (POLLIN | POLLHUP))) return;
    char part[1 << 16];
    const ssize_t n = read(from_, part, sizeof part);
    if (n > 0) inbox_.append(part, static_cast<std::size_t>(n));
    if (n == 0) closed_ = true;  // a tap's process may have no output
  }
  [[noreturn]] void fail_ended(const char* file, const char* before) const {
    std::string how = fmt::format("closed its {}", file);
    if (siginfo_t info{}; ended_until(Clock::now() + 20ms) &&
                          waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOWAIT) == 0)
      how = info.si_code == CLD_EXITED ? fmt::format("ended with exit code {}", info.si_status)
                                       : fmt::format("was ended by signal {}", info.si_status);
    throw std::runtime_error(
        fmt::format("the process '{}' {} before it {}", command_, how, before));
  }

  std::string command_;
  const std::atomic<bool>& over_;
  pid_t process_ = -1;
  int to_ = -1, from_ = -1;
  bool closed_ = false;
  std::string inbox_;
  std::size_t taken_ = 0;
};

namespace {

pn::Type type_from(const std::string& who, Child& child, const pn::StopToken& stop) {
  try {
    return pn::read_npy_header([&](void* to, std::size_t bytes) { child.take(to, bytes, stop); });
  } catch (const pn::Error& e) {
    throw std::runtime_error(fmt::format("{}: {}", who, e.what()));
  }
}

}  // namespace

/// Of one function: a child for each set of attributes that it is called with.
struct Processes::Children {
  std::string command;
  std::mutex guard;  // one message at a time
  std::map<std::string, std::unique_ptr<Child>> by_attributes;
  std::atomic<bool> over{false};

  void serve(const std::string& function, const pn::Attributes& attributes,
             const pn::CallInfo& info, std::span<const pn::AnyView> operands,
             std::span<const pn::AnyMutableView> results) {
    std::scoped_lock lock(guard);
    const std::string text = pn::to_json_text(attributes);
    // After a failure what follows in its pipes is not what we think: the next firing gets a new
    // one.
    std::unique_ptr<Child> child = std::move(by_attributes[text]);
    if (!child) child = std::make_unique<Child>(command, text, over);
    for (const pn::AnyView& v : operands) child->send(pn::npy_bytes(v), info.stop);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const pn::Type want = results[i].type();
      const std::string who = fmt::format("result {} of the process for '{}'", i, function);
      const pn::Type got = type_from(who, *child, info.stop);
      if (got != want)
        throw std::runtime_error(
            fmt::format("{} must be {}, got {}", who, pn::to_string(want), pn::to_string(got)));
      child->take(results[i].data(), want.byte_size(), info.stop);
    }
    by_attributes[text] = std::move(child);
  }
};

void Processes::serve(const std::string& function, const std::string& command) {
  auto children = all_.emplace_back(std::make_shared<Children>());
  children->command = command;
  pn::register_function(
      function,
      [children, function](const pn::Attributes& attributes, const pn::CallInfo& info,
                           std::span<const pn::AnyView> operands,
                           std::span<const pn::AnyMutableView> results) {
        children->serve(function, attributes, info, operands, results);
      },
      {.replace = true});
}

pn::Callee Processes::listen(const std::string& hook, const std::string& command) {
  auto children = all_.emplace_back(std::make_shared<Children>());
  children->command = command;
  return [children, hook](const pn::TapInfo& info, std::span<const pn::AnyView> leaves) {
    children->serve(hook, {}, info, leaves, {});
  };
}

Processes::~Processes() {
  for (const auto& children : all_)
    children->over = true;  // who waits for one goes, and lets go of its guard
  std::vector<std::unique_ptr<Child>> left;
  for (const auto& children : all_) {
    std::scoped_lock lock(children->guard);
    for (auto& [attributes, child] : children->by_attributes)
      if (child) left.push_back(std::move(child));
    children->by_attributes.clear();
  }
  for (const auto& child : left) child->end_input();
  const auto limit = Clock::now() + patience;
  for (const auto& child : left) child->ended_until(limit);
}

}  // namespace command
