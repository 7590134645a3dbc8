// Every entry of the C interface with arguments that nobody should give: c_hostile [FIRST]. Each
// entry is swept in a process of its own, over all combinations of values for its parameters; one
// that dies or hangs is told, with the combination, and the sweep goes on after it. Prints the
// entries and the number of calls.
#include "c_hostile.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using namespace hostile;

constexpr unsigned seconds_for_a_call = 30;

struct Entry {
  const char* name;
  std::function<void(std::size_t first)> sweep;  // from this combination on
};
std::vector<Entry> entries;

/// All combinations; the values are made when the entry's turn comes.
template <class R, class... P>
void add(
    const char* name, R (*entry)(P...),
    std::function<std::tuple<std::vector<std::type_identity_t<P>>...>()> values,
    std::function<void()> after = [] {}) {
  entries.push_back(
      {name, [=](std::size_t first) {
         auto lists = values();
         const auto counts = std::apply(
             [](auto&... l) { return std::array<std::size_t, sizeof...(P)>{l.size()...}; }, lists);
         std::size_t total = 1;
         for (const std::size_t n : counts) total *= n;
         for (std::size_t at = first; at < total; ++at) {
           std::size_t rest = at;
           auto pick = [&](auto& list) {
             const std::size_t i = rest % list.size();
             rest /= list.size();
             return list[i];
           };
           const std::tuple<P...> arguments =
               std::apply([&](auto&... l) { return std::tuple<P...>{pick(l)...}; }, lists);
           std::string text = std::string(name) + "(";
           std::apply([&](auto... a) { ((text += described(a) + " "), ...); }, arguments);
           std::snprintf(progress->text, sizeof progress->text, "%s)", text.c_str());
           progress->calls = at + 1;
           alarm(seconds_for_a_call);
           pn_clear_error();
           if constexpr (std::is_same_v<R, int>) {
             const int code = std::apply(entry, arguments);
             constexpr std::string_view no_codes[] = {"pn_bridge_stopped", "pn_bridge_descriptor",
                                                      "pn_inside_device",  "pn_guest_device",
                                                      "pn_program_loops",  "pn_version"};
             const bool a_code = std::ranges::find(no_codes, name) == std::end(no_codes);
             if (a_code && !known(code))
               wrong("gave " + std::to_string(code) + ", which is no pn_code");
             if (a_code && code != PN_OK && code != PN_EMPTY && !*pn_last_error())
               wrong("failed without a text");
           } else {
             static_cast<void>(std::apply(entry, arguments));
           }
           after();
           clear_all();
         }
         check_health();
       }});
}

/// Attributes of firings that are none, broken, of another kind, and good.
void add_attributes() {
  const auto with = [](const char* attributes) {
    pn_firing f{};
    f.attributes = attributes;
    return f;
  };
  static const pn_firing none{}, broken = with("{\"hostile.g\":{\"double\":3}"),
                                 odd = with("{\"hostile.g\":{\"double\":[]}}"),
                                 good = with("{\"hostile.g\":{\"strings\":[\"\"]}}");
  static const std::vector<const pn_firing*> firings{nullptr, &none, &broken, &odd, &good};
  add("pn_attribute_bool", pn_attribute_bool, [] {
    return std::tuple{firings, texts, places<int>()};
  });
  add("pn_attribute_int64", pn_attribute_int64, [] {
    return std::tuple{firings, texts, places<std::int64_t>()};
  });
  add("pn_attribute_double", pn_attribute_double, [] {
    return std::tuple{firings, texts, places<double>()};
  });
  add("pn_attribute_string", pn_attribute_string, [] {
    return std::tuple{firings, texts, places<const char*>()};
  });
  add("pn_attribute_bool_at", pn_attribute_bool_at, [] {
    return std::tuple{firings, texts, sizes, places<int>()};
  });
  add("pn_attribute_int64_at", pn_attribute_int64_at, [] {
    return std::tuple{firings, texts, sizes, places<std::int64_t>()};
  });
  add("pn_attribute_double_at", pn_attribute_double_at, [] {
    return std::tuple{firings, texts, sizes, places<double>()};
  });
  add("pn_attribute_string_at", pn_attribute_string_at, [] {
    return std::tuple{firings, texts, sizes, places<const char*>()};
  });
  add("pn_attribute_size", pn_attribute_size, [] {
    return std::tuple{firings, texts, places<std::size_t>()};
  });
}

void add_all() {
  add_attributes();
  using Tensors = std::vector<const pn_tensor*>;
  using Programs = std::vector<const pn_program*>;
  using Natives = std::vector<const pn_native*>;
  add("pn_version", pn_version, [] { return std::tuple<>(); });
  add("pn_guest_handler", pn_guest_handler, [] { return std::tuple<>(); });
  add("pn_guest_instantiate", pn_guest_instantiate, [] { return std::tuple<>(); });
  add("pn_guest_state_type", pn_guest_state_type, [] { return std::tuple<>(); });
  add("pn_inside_device", pn_inside_device, [] { return std::tuple<>(); });
  add("pn_guest_device", pn_guest_device, [] { return std::tuple<>(); });
  add("pn_guest_platform", pn_guest_platform, [] { return std::tuple<>(); });
  add("pn_guest_handlers", pn_guest_handlers, [] {
    return std::tuple{std::vector<const char*>{nullptr, "", "cpu", "cuda", "rocm", "\xff\xfe"},
                      places<pn_guest_parts>()};
  });
  add("pn_guest_calls", pn_guest_calls, [] { return std::tuple<>(); });
  add("pn_guest_state_info", pn_guest_state_info, [] { return std::tuple<>(); });
  add("pn_load_library", pn_load_library, [] {
    return std::tuple{std::vector<const char*>{nullptr, "", "/no/such/library.so", "\xff\xfe"}};
  });
  add("pn_registered_function", pn_registered_function, [] {
    return std::tuple{std::vector<std::size_t>{0, 1, SIZE_MAX}};
  });
  add("pn_register_callee", pn_register_callee, [] {
    return std::tuple{std::vector<const char*>{nullptr, "", "some"},
                      std::vector<const void*>{nullptr}, std::vector<int>{0, 1}};
  });
  add("pn_guest_failure", pn_guest_failure, [] {
    return std::tuple{std::vector<std::uint64_t>{0, 1, UINT64_MAX}};
  });
  add("pn_last_error", pn_last_error, [] { return std::tuple<>(); });
  add("pn_last_cause", pn_last_cause, [] { return std::tuple<>(); });
  add("pn_clear_error", pn_clear_error, [] { return std::tuple<>(); });
  add("pn_dtype_name", pn_dtype_name, [] { return std::tuple{ints}; });
  // First with what is refused or harmless; what it set is the process's, so that no later one may
  // want a health check.
  add("pn_configure", pn_configure, [] {
    return std::tuple{std::vector<int>{INT_MIN, -1, 0}, std::vector<const char*>{nullptr, ""},
                      std::vector<const char*>{nullptr, "", "/no/such/folder", "\xff\xfe"}};
  });
  add("pn_configure_with", pn_configure_with, [] {
    static const pn_options none{}, good{sizeof(pn_options), 0, nullptr, nullptr, 0},
        bad{sizeof(pn_options), -1, nullptr, "\xff\xfe", UINT64_MAX};
    return std::tuple{std::vector<const pn_options*>{nullptr, &none, &bad, &good}};
  });
  add("pn_tensor_copy", pn_tensor_copy, [] { return std::tuple{arrays(), places<pn_tensor*>()}; });
  add("pn_tensor_borrow", pn_tensor_borrow, [] {
    return std::tuple{arrays(), releases, users, places<pn_tensor*>()};
  });
  add("pn_tensor_view", pn_tensor_view, [] {
    return std::tuple{Tensors{nullptr, tensor()}, places<pn_array>()};
  });
  add(
      "pn_tensor_free", pn_tensor_free,
      [] {
        return std::tuple{std::vector<pn_tensor*>{nullptr, tensor()}};
      },
      [] {});
  add("pn_tensor_from_dlpack", pn_tensor_from_dlpack, [] {
    static std::int64_t shape[] = {2, 2}, wild[] = {INT64_MAX, 2}, odd[] = {-2, 2},
                        strides[] = {1, 2}, none[] = {0, 0};
    static std::vector<DLManagedTensor> all;
    const DLDataType f32{kDLFloat, 32, 1};
    for (const DLTensor& t :
         {DLTensor{numbers, {kDLCPU, 0}, 2, f32, shape, nullptr, 0},
          DLTensor{numbers, {kDLCPU, 0}, 2, f32, shape, strides, 0},
          DLTensor{numbers, {kDLCPU, 0}, 2, f32, shape, none, 0},
          DLTensor{numbers, {kDLCPU, 0}, -1, f32, shape, nullptr, 0},
          DLTensor{numbers, {kDLCPU, 0}, INT_MAX, f32, shape, nullptr, 0},
          DLTensor{numbers, {kDLCPU, 0}, 2, f32, nullptr, nullptr, 0},
          DLTensor{numbers, {kDLCPU, 0}, 2, f32, wild, nullptr, 0},
          DLTensor{numbers, {kDLCPU, 0}, 2, f32, wild, strides, 0},
          DLTensor{numbers, {kDLCPU, 0}, 2, f32, odd, nullptr, 0},
          DLTensor{numbers, {kDLCPU, 0}, 2, f32, odd, strides, 0},
          DLTensor{nullptr, {kDLCPU, 0}, 2, f32, shape, nullptr, 0},
          DLTensor{numbers, {kDLCUDA, 0}, 2, f32, shape, nullptr, 0},
          DLTensor{numbers, {kDLMetal, 0}, 2, f32, shape, nullptr, 0},
          DLTensor{numbers, {kDLCPU, 0}, 2, {kDLFloat, 7, 1}, shape, nullptr, 0},
          DLTensor{numbers, {kDLCPU, 0}, 2, {kDLFloat, 32, 4}, shape, nullptr, 0},
          DLTensor{numbers, {kDLCPU, 0}, 2, {255, 255, 65535}, shape, nullptr, 0}})
      all.push_back({t, nullptr, nullptr});
    std::vector<DLManagedTensor*> list{nullptr};
    for (DLManagedTensor& m : all) list.push_back(&m);
    return std::tuple{list, places<pn_tensor*>()};
  });
  add("pn_tensor_to_dlpack", pn_tensor_to_dlpack, [] {
    return std::tuple{Tensors{nullptr, tensor()}, places<DLManagedTensor*>()};
  });
  add("pn_tensor_of_shards", pn_tensor_of_shards, [] {
    static const pn_tensor *const good[] = {tensor(), tensor()}, *const bad[] = {nullptr, tensor()};
    auto shardings = texts;
    for (const char* text : {R"({"mesh": {"axes": [["x", 1]], "devices": [0]}, "spec": [["x"]]})",
                             R"({"mesh": {"axes": [["x", 2]], "devices": [0, 1]}, "spec": []})",
                             R"({"mesh": {"axes": [["x", 1e99]], "devices": 0}, "spec": {}})"})
      shardings.push_back(text);
    return std::tuple{shardings, std::vector<const pn_tensor* const*>{nullptr, good, bad}, sizes,
                      std::vector<int>{0, 1}, places<pn_tensor*>()};
  });
  add("pn_tensor_shard", pn_tensor_shard, [] {
    const Tensors all{nullptr, tensor()};
    return std::tuple{all, sizes, places<std::int32_t>(), places<pn_tensor*>()};
  });
  add("pn_load_file", pn_load_file, [] {
    auto paths = texts;
    for (const char* p : {"/", "/dev/null", "/no/such/file", "/proc/self/mem"}) paths.push_back(p);
    return std::tuple{paths, places<pn_program*>()};
  });
  add("pn_load_entry", pn_load_entry, [] {
    return std::tuple{std::vector<const char*>{nullptr, "/dev/null", "/no/such/file"}, texts,
                      places<pn_program*>()};
  });
  add("pn_load_text", pn_load_text,  // whose second size is never more than the text has
      [] {
        return std::tuple{std::vector<const char*>{nullptr, module_text},
                          std::vector<std::size_t>{0, 1, 50, SIZE_MAX / 2 + 1, SIZE_MAX},
                          places<pn_program*>()};
      });
  add("pn_program_free", pn_program_free, [] {
    return std::tuple{std::vector<pn_program*>{nullptr, program()}};
  });
  const auto programs = [] { return std::tuple{Programs{nullptr, program()}}; };
  add("pn_program_inputs", pn_program_inputs, programs);
  add("pn_program_outputs", pn_program_outputs, programs);
  add("pn_program_input", pn_program_input, [] {
    return std::tuple{Programs{nullptr, program()}, sizes};
  });
  add("pn_program_output", pn_program_output, [] {
    return std::tuple{Programs{nullptr, program()}, sizes};
  });
  add("pn_program_input_name", pn_program_input_name, [] {
    return std::tuple{Programs{nullptr, program()}, sizes};
  });
  add("pn_program_output_name", pn_program_output_name, [] {
    return std::tuple{Programs{nullptr, program()}, sizes};
  });
  add("pn_program_loops", pn_program_loops, [] {
    return std::tuple{Programs{nullptr, program()}};
  });
  add("pn_program_function", pn_program_function, [] {
    return std::tuple{Programs{nullptr, program()}, sizes};
  });
  add("pn_program_hook", pn_program_hook, [] {
    return std::tuple{Programs{nullptr, program()}, sizes};
  });
  const auto arguments = [] {
    static const pn_tensor* const good[] = {tensor()};
    static const pn_tensor* const bad[] = {nullptr};
    return std::vector<const pn_tensor* const*>{nullptr, good, bad};
  };
  add("pn_run", pn_run, [=] {
    serve();
    return std::tuple{Programs{nullptr, program()}, arguments(), sizes, places<pn_tensor*>()};
  });
  add("pn_native_of", pn_native_of, [] {
    static const pn_tensor *const none[] = {nullptr}, *const bound[] = {tensor()};
    static const char *const good[] = {"f32[4]"}, *const bad[] = {"f32[4"},
                             *const null[] = {nullptr};
    static pn_native_options options[8]{};
    for (pn_native_options& o : options) o.size = sizeof o;
    options[0].size = 0;
    options[1].derivative = 3;
    options[2].derivative = PN_VALUE_AND_GRADIENT;
    options[3].derivative = PN_JVP;
    options[4].bound = none;
    options[5].bound = bound;
    options[6].types = good;
    options[7].types = bad;
    static pn_native_options more{sizeof(pn_native_options), PN_VALUE, nullptr, null};
    std::vector<const pn_native_options*> list{nullptr, &more};
    for (const pn_native_options& o : options) list.push_back(&o);
    return std::tuple{Programs{nullptr, program()}, list, places<pn_native*>()};
  });
  add("pn_native_free", pn_native_free, [] {
    return std::tuple{std::vector<pn_native*>{nullptr, native()}};
  });
  add("pn_native_inputs", pn_native_inputs, [] { return std::tuple{Natives{nullptr, native()}}; });
  add("pn_native_outputs", pn_native_outputs, [] {
    return std::tuple{Natives{nullptr, native()}};
  });
  add("pn_native_input", pn_native_input, [] {
    return std::tuple{Natives{nullptr, native()}, sizes};
  });
  add("pn_native_output", pn_native_output, [] {
    return std::tuple{Natives{nullptr, native()}, sizes};
  });
  add("pn_native_call", pn_native_call, [] {
    serve();
    static float made[4] = {};
    static const void *const in[] = {numbers}, *const no_in[] = {nullptr};
    static void *const out[] = {made}, *const no_out[] = {nullptr};
    return std::tuple{std::vector<void*>{nullptr, native()},
                      std::vector<const void* const*>{nullptr, in, no_in},
                      std::vector<void* const*>{nullptr, out, no_out}};
  });
  add("pn_start", pn_start, [=] {
    serve();
    return std::tuple{Programs{nullptr, program()}, arguments(), sizes, places<pn_started*>()};
  });
  add("pn_start_with", pn_start_with, [=] {
    serve();
    static const pn_binding none{}, unknown{"no such", plus_one, nullptr, nullptr, nullptr};
    static pn_start_options options[8]{};
    for (pn_start_options& o : options) o.size = sizeof o;
    options[1].size = 0;
    options[2].device = INT_MAX;
    options[3].deadline_ns = INT64_MIN;
    options[4].deadline_ns = INT64_MAX;
    options[5].hooks = &none;
    options[5].hook_count = 1;
    options[6].functions = &unknown;
    options[6].function_count = 1;
    options[7].functions = nullptr;
    options[7].function_count = SIZE_MAX;
    std::vector<const pn_start_options*> list{nullptr};
    for (const pn_start_options& o : options) list.push_back(&o);
    return std::tuple{Programs{nullptr, program()}, arguments(), sizes, list,
                      places<pn_started*>()};
  });
  add("pn_device_count", pn_device_count, [] { return std::tuple{places<std::size_t>()}; });
  add("pn_started_wait", pn_started_wait, [] {
    return std::tuple{std::vector<pn_started*>{nullptr, started()}, limits, places<pn_tensor*>()};
  });
  add("pn_started_cancel", pn_started_cancel, [] {
    return std::tuple{std::vector<pn_started*>{nullptr, started()}};
  });
  add("pn_started_free", pn_started_free, [] {
    return std::tuple{std::vector<pn_started*>{nullptr, started()}};
  });
  add("pn_barrier", pn_barrier, [] { return std::tuple{limits}; });
  add("pn_fail", pn_fail, [] { return std::tuple{texts}; });
  add("pn_fail_with", pn_fail_with, [] { return std::tuple{texts, users, releases}; });
  add(
      "pn_register", pn_register,
      [] {
        return std::tuple{texts, std::vector<pn_function>{nullptr, plus_one}, users, releases,
                          ints};
      },
      [] { pn_unregister("hostile.g"); });
  add("pn_unregister", pn_unregister, [] { return std::tuple{texts}; });
  add("pn_bridge_create", pn_bridge_create, [] { return std::tuple{places<pn_bridge*>()}; });
  add("pn_bridge_serve", pn_bridge_serve, [] {
    return std::tuple{std::vector<pn_bridge*>{nullptr, bridge()}, texts, ints};
  });
  add("pn_bridge_next", pn_bridge_next, [] {
    // The greatest limit is for ever: only a bridge that is closed meanwhile answers.
    pn_bridge *const closed = bridge(), *const closing = bridge();
    pn_bridge_close(closed);
    std::thread([closing] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      pn_bridge_close(closing);
    }).detach();
    const pn_request* r = nullptr;
    if (pn_bridge_next(closing, INT64_MAX, &r) != PN_CLOSED)
      wrong("INT64_MAX was over before the bridge was closed");
    return std::tuple{std::vector<pn_bridge*>{nullptr, closed, closing}, limits,
                      places<const pn_request*>()};
  });
  // With a call that waits for its answer, which nobody may get wrong.
  static pn_bridge* serving = nullptr;
  static std::vector<std::uint64_t> tags;
  const auto asked = [] {
    serving = bridge();
    const pn_tensor* const x = tensor();
    if (pn_bridge_serve(serving, "hostile.f", 1) != PN_OK) wrong("serving was refused");
    must<pn_started*>([&](pn_started** s) { return pn_start(program(), &x, 1, s); }, "a run");
    const pn_request* r = nullptr;
    if (pn_bridge_next(serving, 20'000'000'000, &r) != PN_OK) wrong("no call came");
    tags = {0, r ? r->tag : 0, UINT64_MAX};
    return std::vector<pn_bridge*>{nullptr, serving};
  };
  add("pn_bridge_reply", pn_bridge_reply, [=] {
    const auto list = asked();
    return std::tuple{list, tags, arrays(), sizes};
  });
  add("pn_bridge_fail", pn_bridge_fail, [=] {
    const auto list = asked();
    return std::tuple{list, tags, ints, texts};
  });
  add("pn_bridge_fail_with", pn_bridge_fail_with, [=] {
    const auto list = asked();
    return std::tuple{list, tags, ints, texts, users, releases};
  });
  add("pn_bridge_stopped", pn_bridge_stopped, [=] {
    const auto list = asked();
    return std::tuple{std::vector<const pn_bridge*>{list[0], list[1]}, tags};
  });
  add("pn_bridge_descriptor", pn_bridge_descriptor, [] {
    return std::tuple{std::vector<const pn_bridge*>{nullptr, bridge()}};
  });
  add("pn_bridge_notify", pn_bridge_notify, [] {
    static const auto ready = [](void*) {};
    return std::tuple{std::vector<pn_bridge*>{nullptr, bridge()},
                      std::vector<void (*)(void*)>{nullptr, ready}, users};
  });
  add("pn_bridge_fill", pn_bridge_fill, [=] {
    const auto list = asked();
    return std::tuple{list, tags, arrays(), sizes};
  });
  add("pn_bridge_end", pn_bridge_end, [=] { return std::tuple{asked()}; });
  add("pn_bridge_close", pn_bridge_close, [=] { return std::tuple{asked()}; });
  add("pn_bridge_free", pn_bridge_free, [=] { return std::tuple{asked()}; });
}

/// Functions that return what is no pn_code, and nothing of what they should.
void add_codes() {
  entries.push_back({"codes", [](std::size_t first) {
                       for (std::size_t at = first; at < ints.size(); ++at) {
                         progress->calls = at + 1;
                         std::snprintf(progress->text, sizeof progress->text,
                                       "a function that returns %d", ints[at]);
                         alarm(seconds_for_a_call);
                         static int code;
                         code = ints[at];
                         pn_register(
                             "hostile.f", [](void*, const pn_firing*) { return code; }, nullptr,
                             nullptr, 1);
                         const pn_tensor* const x = tensor();
                         const int got = pn_run(program(), &x, 1, slots<pn_tensor*>.data());
                         if (got != (code == PN_OK ? PN_OK : PN_THREW))
                           wrong("the run gave " + std::to_string(got));
                         clear_all();
                       }
                       check_health();
                     }});
}

}  // namespace

/// What is given as a folder may be made.
struct Scratch {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("postern_hostile_" + std::to_string(getpid()));
  Scratch() {
    std::filesystem::create_directory(path);
    std::filesystem::current_path(path);
  }
  ~Scratch() { std::filesystem::remove_all(path); }
};

int main() {
  const Scratch scratch;
  progress = static_cast<Progress*>(
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  add_all();
  add_codes();
  std::size_t calls = 0, died = 0;
  for (const Entry& entry : entries) {
    progress->calls = 0;
    for (bool over = false; !over;) {
      std::fflush(stdout);
      const pid_t child = fork();  // the library has done nothing yet
      if (child == 0) {
        entry.sweep(progress->calls);
        std::fflush(stdout);
        _exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      over = WIFEXITED(status);
      if (over && WEXITSTATUS(status) == 0) break;
      ++died;
      std::printf("%s: %s %d\n", progress->text, over ? "exit code" : "died of signal",
                  over ? WEXITSTATUS(status) : WTERMSIG(status));
    }
    calls += progress->calls;
    std::printf("%s\n", entry.name);
  }
  std::printf("%zu calls, %zu died, %zu wrong\n", calls, died, progress->wrong);
  return died + progress->wrong == 0 ? 0 : 1;
}
