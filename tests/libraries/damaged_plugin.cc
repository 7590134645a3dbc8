// The plug-in, of which one function can be made to be missing or to fail: programs/damaged.cc.
// TEST_PLUGIN_VERSION=MAJOR.MINOR: it says that it speaks that version of PJRT. TEST_COMPILE=HOW:
// what it does in place of compiling a program whose text has the word TEST_DOOMED ("doomed").
#include <dlfcn.h>
#include <pjrt_c_api.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t header = offsetof(PJRT_Api, PJRT_Error_Destroy);
constexpr std::size_t most = (sizeof(PJRT_Api) - header) / sizeof(void*);
using Function = PJRT_Error*(void*);

std::array<Function*, most> real{};
std::array<std::atomic<long>, most> calls{};
std::atomic<int> failing{-1};
std::vector<char> copy;
PJRT_Error* const ours = reinterpret_cast<PJRT_Error*>(&copy);  // the one error that we make

template <std::size_t N>
PJRT_Error* entered(void* args) {
  ++calls[N];
  if (failing.load() == static_cast<int>(N)) return ours;
  return real[N](args);
}

PJRT_Api* table() { return reinterpret_cast<PJRT_Api*>(copy.data()); }
void** entries() { return reinterpret_cast<void**>(copy.data() + header); }

const PJRT_Api* real_api = nullptr;

void destroy_error(PJRT_Error_Destroy_Args* args) {
  if (args->error != ours) real_api->PJRT_Error_Destroy(args);
}
void message_of(PJRT_Error_Message_Args* args) {
  if (args->error != ours) return real_api->PJRT_Error_Message(args);
  args->message = "damaged";
  args->message_size = 7;
}
PJRT_Error* code_of(PJRT_Error_GetCode_Args* args) {
  if (args->error != ours) return real_api->PJRT_Error_GetCode(args);
  args->code = PJRT_Error_Code_UNAVAILABLE;
  return nullptr;
}

PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
  const std::string_view how = std::getenv("TEST_COMPILE");
  const char* const word = std::getenv("TEST_DOOMED");
  const std::string_view text(args->program->code, args->program->code_size);
  if (text.find(word ? word : "doomed") == std::string_view::npos)
    return real_api->PJRT_Client_Compile(args);
  if (how == "throws") throw std::logic_error("a pass failed");
  if (how == "throws a number") throw 42;
  if (how == "has no memory") throw std::bad_alloc();
  if (how == "fails") return ours;
  if (how == "ends the thread") pthread_exit(nullptr);
  if (how == "ends the process") std::exit(7);
  if (how == "aborts") std::abort();
  if (how == "does not return") pause();
  return nullptr;  // and no program
}

std::size_t count() { return (real_api->struct_size - header) / sizeof(void*); }

template <std::size_t... N>
void wrap(std::index_sequence<N...> /*all*/) {
  const auto one = [&](std::size_t n, Function* mine) {
    if (n >= count()) return;
    std::memcpy(&real[n], entries() + n, sizeof(void*));
    if (real[n]) std::memcpy(entries() + n, &mine, sizeof(void*));
  };
  (one(N, entered<N>), ...);
}

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  static const bool made = [] {
    void* library = dlopen(REAL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    real_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
    const auto* bytes = reinterpret_cast<const char*>(real_api);
    copy.assign(bytes, bytes + real_api->struct_size);
    wrap(std::make_index_sequence<most>());
    table()->PJRT_Error_Destroy = destroy_error;
    table()->PJRT_Error_Message = message_of;
    table()->PJRT_Error_GetCode = code_of;
    if (std::getenv("TEST_COMPILE")) table()->PJRT_Client_Compile = compile;
    if (const char* version = std::getenv("TEST_PLUGIN_VERSION"))
      std::sscanf(version, "%d.%d", &table()->pjrt_api_version.major_version,
                  &table()->pjrt_api_version.minor_version);
    return true;
  }();
  return made ? table() : nullptr;
}

/// How often the n-th function was called; -1: there is none.
extern "C" long test_calls(int n) {
  if (static_cast<std::size_t>(n) >= std::min(count(), most)) return -1;
  return calls[static_cast<std::size_t>(n)].load();
}
extern "C" void test_fail(int n) { failing = n; }
extern "C" void test_remove(int n) { entries()[n] = nullptr; }
/// The table ends before the n-th function, as one of an older version does.
extern "C" void test_cut(int n) {
  table()->struct_size = header + static_cast<std::size_t>(n) * sizeof(void*);
}
