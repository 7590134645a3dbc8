// Messages to and from child processes. Nothing here waits without looking whether the run goes on.
#include "child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <postern/postern.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "arrays.h"
#include "commands.h"
#include "file/site_json.h"

extern char** environ;

namespace command {

namespace pn = postern;

namespace {

class Child {
 public:
  Child(const std::string& command, const std::string& attributes) : command_(command) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error(std::strerror(errno));
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
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF);
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
    to_ = in[1], from_ = out[0];
    if (code != 0) {
      process_ = -1;
      throw std::runtime_error(fmt::format("'{}' could not be started: {}", command, std::strerror(code)));
    }
    fcntl(to_, F_SETFL, O_NONBLOCK);
    fcntl(from_, F_SETFL, O_NONBLOCK);
  }
  ~Child() {
    close(to_);
    close(from_);
    if (process_ > 0) waitpid(process_, nullptr, 0);
  }
  Child(const Child&) = delete;

  void send(const std::string& message, const pn::StopToken& stop) {
    for (std::size_t at = 0; at < message.size();) {
      wait(POLLOUT, stop);  // what comes back meanwhile is kept, so that neither side waits for the other
      const ssize_t n = write(to_, message.data() + at, message.size() - at);
      if (n < 0 && errno != EAGAIN && errno != EINTR) fail_ended();
      if (n > 0) at += static_cast<std::size_t>(n);
    }
  }
  void take(void* to, std::size_t bytes, const pn::StopToken& stop) {
    while (inbox_.size() - taken_ < bytes) {
      if (closed_) fail_ended();
      wait(POLLIN, stop);
    }
    std::memcpy(to, inbox_.data() + taken_, bytes);
    taken_ += bytes;
    if (taken_ == inbox_.size()) inbox_.clear(), taken_ = 0;
  }

 private:
  void wait(short what, const pn::StopToken& stop) {
    pollfd files[] = {{closed_ ? -1 : from_, POLLIN, 0}, {what == POLLOUT ? to_ : -1, POLLOUT, 0}};
    if (stop.stop_requested()) throw std::runtime_error("the run was stopped");
    poll(files, 2, 20);
    if (!(files[0].revents & (POLLIN | POLLHUP))) return;
    char part[1 << 16];
    const ssize_t n = read(from_, part, sizeof part);
    if (n > 0) inbox_.append(part, static_cast<std::size_t>(n));
    if (n == 0) closed_ = true;  // a tap's process may have no output
  }
  [[noreturn]] void fail_ended() {
    int status = 0;
    std::string how = "closed its output";
    if (waitpid(process_, &status, WNOHANG) == process_ || (usleep(20000), waitpid(process_, &status, WNOHANG) == process_)) {
      process_ = -1;
      how = WIFEXITED(status) ? fmt::format("ended with exit code {}", WEXITSTATUS(status))
                              : fmt::format("was ended by signal {}", WTERMSIG(status));
    }
    dead = true;
    throw std::runtime_error(fmt::format("the process '{}' {} before it had answered", command_, how));
  }

 public:
  bool dead = false;

 private:
  std::string command_;
  pid_t process_ = -1;
  int to_ = -1, from_ = -1;
  bool closed_ = false;
  std::string inbox_;
  std::size_t taken_ = 0;
};

/// Of one function: a child for each set of attributes that it is called with.
struct Children {
  std::string command;
  std::mutex guard;  // one message at a time
  std::map<std::string, std::unique_ptr<Child>> by_attributes;
};

}  // namespace

void serve_by_process(const std::string& function, const std::string& command) {
  auto children = std::make_shared<Children>();
  children->command = command;
  pn::register_function(function,
                        [children, function](const pn::Attributes& attributes, const pn::CallInfo& info,
                                             std::span<const pn::AnyView> operands, std::span<const pn::AnyMutableView> results) {
                          std::scoped_lock lock(children->guard);
                          const std::string text = pn::file::attributes_text(attributes);
                          std::unique_ptr<Child>& child = children->by_attributes[text];
                          if (!child || child->dead) child = std::make_unique<Child>(children->command, text);
                          for (const pn::AnyView& v : operands) child->send(npy_message(v.type(), v.data()), info.stop);
                          for (std::size_t i = 0; i < results.size(); ++i) {
                            const pn::Type want = results[i].type();
                            const std::string who = fmt::format("result {} of the process for '{}'", i, function);
                            const pn::Type got =
                                read_npy_header(who, [&](void* to, std::size_t bytes) { child->take(to, bytes, info.stop); });
                            if (got != want) {
                              child->dead = true;  // what follows is not what we think
                              throw std::runtime_error(fmt::format("{} must be {}, got {}", who, pn::to_string(want), pn::to_string(got)));
                            }
                            child->take(results[i].data(), want.byte_size(), info.stop);
                          }
                        },
                        {.replace = true});
}

}  // namespace command
