// deep_nesting LEVELS STACK_KIB FORM: a program of so many branches or loops in one another, traced
// and called on a thread with such a stack. Prints the result, or the error.
#include <postern/postern.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <string>

using postern::Tensor;

namespace {

int levels = 0;
bool loops = false;

Tensor nested(int level, const Tensor& x) {
  if (level == 0) return x * 2.0f;
  if (loops)
    return postern::while_loop([](Tensor v) { return v < 1.0f; },
                               [&](Tensor v) { return nested(level - 1, v) + 1.0f; }, x);
  return postern::cond(
      x < 1e6f, [&](Tensor v) { return nested(level - 1, v + 1.0f); }, [](Tensor v) { return v; },
      x);
}

void* run(void*) {
  try {
    const auto f = postern::jit([](Tensor x) { return nested(levels, x); });
    std::printf("%g\n", static_cast<double>(f(Tensor(0.0f)).item<float>()));
  } catch (const postern::Error& e) {
    std::printf("%s: %s\n", std::string(to_string(e.code())).c_str(), e.what());
  }
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  levels = std::atoi(argv[1]);
  loops = std::string(argv[3]) == "while";
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, static_cast<std::size_t>(std::atoi(argv[2])) << 10);
  pthread_t thread{};
  if (pthread_create(&thread, &attributes, run, nullptr) != 0) return 3;
  pthread_join(thread, nullptr);
}
