// Programs from elsewhere over which a process may end: each is loaded and run in a process of its
// own. Usage: foreign_each FILE; in it each text stands behind a line "//// NAME". Prints a line
// for each: NAME, then "ok" and what it gives, "refused" and the error of loading, "failed" and
// that of the run, or "died" and the signal.
#include <postern/postern.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace pn = postern;

namespace {

std::string told(const std::string& text) {
  const pn::Loaded program = pn::load_text(text, "program");
  try {
    std::vector<pn::Tensor> inputs;
    for (const pn::Type& t : program.inputs()) inputs.push_back(pn::zeros(t));
    std::string out = "ok";
    for (const pn::Tensor& t : program.run(inputs)) out += " " + pn::to_string(t);
    return out;
  } catch (const pn::Error& e) {
    return std::string("failed ") + e.what();
  }
}

/// Never returns.
void one(const std::string& name, const std::string& text) {
  alarm(60);
  pn::register_function("demo.f", [](pn::View<const float> in, pn::View<float> out) {
    std::copy(in.begin(), in.end(), out.begin());
  });
  std::string line;
  try {
    line = told(text);
  } catch (const pn::Error& e) {
    line = std::string("refused ") + e.what();
  }
  std::ranges::replace(line, '\n', ' ');
  std::cout << name + " " + line + "\n" << std::flush;
  std::_Exit(0);
}

}  // namespace

int main(int, char** arguments) {
  ::unsetenv("XLA_FLAGS");  // the kernels that users run, not those of a quick test
  std::ifstream in(arguments[1]);
  std::vector<std::pair<std::string, std::string>> programs;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("//// "))
      programs.emplace_back(line.substr(5), "");
    else
      programs.back().second += line + "\n";
  }
  for (const auto& [name, text] : programs) {
    const pid_t child = fork();
    if (child == 0) one(name, text);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) std::cout << name << " died " << WTERMSIG(status) << "\n";
    std::cout << std::flush;
  }
}
