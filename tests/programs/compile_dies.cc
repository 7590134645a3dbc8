// Compiles a program that the plug-in (TEST_COMPILE of libraries/damaged_plugin.cc) does not bear,
// between others, and prints what came of it; from "two threads" at once, where that is asked.
#include <postern/postern.h>

#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <typeinfo>
#include <vector>

namespace pn = postern;

void run(const char* name, int size) {
  const auto f = pn::jit([](pn::Tensor x) { return pn::tanh(x) * 2.0f; }, {.name = name});
  try {
    const float y = f(pn::zeros(pn::type<float>({size}))).to_vector<float>().at(0);
    std::printf("%s: %g\n", name, y);
  } catch (const pn::CompileError& e) {
    std::printf("%s: CompileError %s: %s\n", name, pn::to_string(e.code()), e.what());
  } catch (const std::exception& e) {
    std::printf("%s: %s: %s\n", name, typeid(e).name(), e.what());
  }
  std::fflush(stdout);
}

int main(int count, char**) {
  run("first", 1);
  if (count > 1) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) threads.emplace_back([] { run("doomed", 2); });
    for (std::thread& t : threads) t.join();
  } else {
    run("doomed", 2);
  }
  run("last", 3);
}
