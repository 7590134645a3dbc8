// Threads with large stacks for deep programs.
#include "pjrt/deep.h"

#include <fmt/format.h>
#include <postern/error.h>
#include <pthread.h>

#include <algorithm>
#include <exception>

#include "core/thread_end.h"

namespace postern::internal::pjrt {

namespace {

constexpr int flat = 16;  // brackets: XLA takes some 8 KiB a level; threads have 512 KiB at least
constexpr int deepest = 1000;  // levels, each of two brackets: a region is "({"
constexpr std::size_t stack_bytes = std::size_t{256} << 20;  // address space; used as needed

struct Job {
  const std::function<void()>& act;
  std::exception_ptr error;
};

void* run(void* data) {
  auto& job = *static_cast<Job*>(data);
  try {
    job.act();
  } catch (...) {
    job.error = std::current_exception();
  }
  return nullptr;
}

}  // namespace

int nesting_of(std::string_view text) {
  int depth = 0, most = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;  // what is escaped ends no quotes
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[' || c == '(') {
      most = std::max(most, ++depth);
    } else if (c == '}' || c == ']' || c == ')') {
      --depth;
    }
  }
  int functions = 0;  // that may call each other in a row: XLA goes into each
  for (std::size_t i = text.find("func"); i != text.npos; i = text.find("func", i + 1)) ++functions;
  return std::max(most, std::min(functions, 2 * deepest));
}

void with_stack_for(int nesting, const std::function<void()>& compile) {
  const Uncancelled here;
  if (nesting <= flat) return compile();
  if (nesting > 2 * deepest)
    throw Error(
        ErrorCode::resource_exhausted,
        fmt::format("to compile a program: branches, loops and lists may be nested {} levels "
                    "deep, it has {}; XLA would need more stack than a thread has",
                    deepest, nesting / 2));
  Job job{compile, nullptr};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_t thread{};
  int failed = pthread_attr_setstacksize(&attributes, stack_bytes);
  if (!failed) failed = pthread_create(&thread, &attributes, run, &job);
  pthread_attr_destroy(&attributes);
  if (failed)
    throw Error(ErrorCode::resource_exhausted,
                fmt::format("to compile a program nested {} levels deep: a thread with a stack of "
                            "{} MiB cannot be made (error {})",
                            nesting / 2, stack_bytes >> 20, failed));
  pthread_join(thread, nullptr);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace postern::internal::pjrt
