// Functions that a process of another language serves.
#pragma once
#include <postern/run.h>

#include <memory>
#include <string>
#include <vector>

namespace command {

/// Processes that serve functions. They end with this: their stdin ends; after five seconds SIGTERM
/// is sent to those that live, with what they have started, and SIGKILL a second later.
class Processes {
 public:
  Processes() = default;
  ~Processes();
  Processes(const Processes&) = delete;

  /// Starts the command (by sh) when the function is first called, once for each set of attributes,
  /// and registers the function that passes operands to its stdin and takes results from its
  /// stdout.
  void serve(const std::string& function, const std::string& command);
  /// Returns a function that passes what a hook shows to such a process.
  postern::Callee listen(const std::string& hook, const std::string& command);

 private:
  struct Children;
  std::vector<std::shared_ptr<Children>> all_;
};

}  // namespace command
