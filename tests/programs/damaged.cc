// Runs programs on a plug-in of which one function after another is missing or fails, each time in
// a process of its own: it must go well all the same, or end by a typed error. Prints what did
// neither, and how many there were of each.
#include <dlfcn.h>
#include <postern/postern.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

namespace pn = postern;

enum Outcome : int { well = 0, wrong = 1, typed = 3, foreign = 4 };

/// Uses what Postern uses: transfers, programs with and without calls, donation, files, devices.
Outcome use() {
  try {
    pn::configure({.cpu_devices = 2, .exit_limit = std::chrono::milliseconds(200)});
    const pn::Tensor x = pn::tensor<float>({1, 2, 3, 4});
    const auto called = [](pn::Tensor v) {
      pn::print("{}", v);
      return pn::call(
                 v.type(),
                 [](pn::View<const float> in, pn::View<float> out) {
                   for (std::int64_t i = 0; i < in.size(); ++i) out[i] = 2 * in[i];
                 },
                 v) +
             1.0f;
    };
    auto f = pn::jit(called);
    if (f(x).to_vector<float>() != std::vector<float>{3, 5, 7, 9}) return wrong;
    auto plain = pn::jit([](pn::Tensor v) { return v * v; });
    pn::Tensor y = plain(x);
    for (int i = 0; i < 3; ++i) y = plain(y);
    if (y.to_vector<float>()[1] != 65536) return wrong;
    if (pn::device_put(x, 1).to_vector<float>()[3] != 4) return wrong;
    if (plain(pn::device_put(x, 1)).to_vector<float>()[3] != 16) return wrong;
    auto given = pn::jit([](pn::Tensor v) { return v + 1.0f; }, {.donate = {0}});
    if (given(plain(x)).to_vector<float>()[0] != 2) return wrong;
    if (f.stages(x).empty()) return wrong;
    pn::plugin_info();
    pn::barrier();
    return well;
  } catch (const pn::Error& e) {
    std::fprintf(stderr, "%s", e.what());
    return typed;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s", e.what());
    return foreign;
  }
}

/// Does that in another process, after `before`; then `after`. A signal is 1000 + its number.
int use_in_a_process(
    const std::string& output, const std::function<void()>& before,
    const std::function<void()>& after = [] {}) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // what takes so long hangs
    if (!std::freopen(output.c_str(), "w", stderr)) _exit(wrong);
    if (!std::freopen("/dev/null", "w", stdout)) _exit(wrong);
    before();
    const Outcome outcome = use();
    after();
    std::exit(outcome);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

std::string contents(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

int main(int, char** argv) {
  const std::string output = argv[1];
  void* plugin = dlopen(std::getenv("POSTERN_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
  if (!plugin) return 2;
  reinterpret_cast<void* (*)()>(dlsym(plugin, "GetPjrtApi"))();
  const auto calls = reinterpret_cast<long (*)(int)>(dlsym(plugin, "test_calls"));
  const int undamaged = use_in_a_process(
      output, [] {},
      [&] {
        std::fprintf(stderr, "called: ");
        for (int n = 0; calls(n) >= 0; ++n)
          if (calls(n) > 0) std::fprintf(stderr, "%d ", n);
      });
  std::string called = contents(output);
  called.erase(0, called.find("called: ") + 8);  // XLA writes too
  if (undamaged != well) {
    std::printf("undamaged: %d %s\n", undamaged, called.c_str());
    return 1;
  }
  std::map<int, int> outcomes;
  for (const char* how : {"test_remove", "test_fail", "test_cut"}) {
    const auto damage = reinterpret_cast<void (*)(int)>(dlsym(plugin, how));
    std::istringstream numbers("0 1 2 " + called);  // those of errors first
    for (int n = 0; numbers >> n;) {
      const int code = use_in_a_process(output, [&] { damage(n); });
      ++outcomes[code];
      if ((code != well && code != typed) || argv[2])
        std::printf("%s %d: %d %s\n", how, n, code, contents(output).c_str());
    }
  }
  std::printf("%d went well, %d ended by an error\n", outcomes[well], outcomes[typed]);
}
