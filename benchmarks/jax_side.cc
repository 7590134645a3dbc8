// JAX as one side of a race: jax_sides.py in a process of its own.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <vector>

#include "harness.h"

namespace bench {

namespace {

/// A process that is sent lines and answers with lines.
class Child {
 public:
  Child(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
    int in[2], out[2];
    if (pipe(in) || pipe(out) || (id_ = fork()) < 0)
      throw std::runtime_error("no process can be started");
    if (id_ == 0) {
      std::vector<char*> arguments;
      for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
      arguments.push_back(nullptr);
      dup2(in[0], 0);
      dup2(out[1], 1);
      for (const int end : {in[0], in[1], out[0], out[1]}) close(end);
      for (const std::string& variable : environment) putenv(const_cast<char*>(variable.c_str()));
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    to_.reset(fdopen(in[1], "w"));
    from_.reset(fdopen(out[0], "r"));
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    to_.reset();
    waitpid(id_, nullptr, 0);
  }
  void send(std::int64_t number) {
    std::fprintf(to_.get(), "%lld\n", static_cast<long long>(number));
    std::fflush(to_.get());
  }
  void expect(const std::string& word) {
    char line[64] = "";
    if (!std::fgets(line, sizeof line, from_.get()) || word + "\n" != line)
      throw std::runtime_error("jax_sides.py does not answer");
  }

 private:
  struct Close {
    void operator()(FILE* file) const { std::fclose(file); }
  };
  pid_t id_;
  std::unique_ptr<FILE, Close> to_, from_;
};

}  // namespace

std::optional<Side> Jax::side(const std::string& program, const std::string& plugin) {
  if (python_.empty()) return {};
  std::vector<std::string> environment{"TF_CPP_MIN_LOG_LEVEL=3"};
  if (!plugin.empty())
    environment.insert(environment.end(),
                       {"PJRT_NAMES_AND_LIBRARY_PATHS=same:" + plugin, "JAX_PLATFORMS=same"});
  const auto child = std::make_shared<Child>(
      std::vector{python_, folder_ + "/jax_sides.py", program}, environment);
  child->expect("ready");
  return [child](std::int64_t times) {
    child->send(times);
    child->expect("done");
  };
}

}  // namespace bench
